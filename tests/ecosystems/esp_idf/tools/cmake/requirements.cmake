# What a component requires, by its CMakeLists.txt: in a script, where no target and no build can be spoken of.
macro(idf_component_register)
  cmake_parse_arguments(GIVEN "" "" "SRCS;SRC_DIRS;INCLUDE_DIRS;REQUIRES;PRIV_REQUIRES" ${ARGN})
  set(registered TRUE)
  return() # from the file that is read
endmacro()

include(${FOLDER}/CMakeLists.txt)
if(NOT registered)
  message(FATAL_ERROR "${FOLDER} registers no component")
endif()
message(STATUS "${GIVEN_REQUIRES};${GIVEN_PRIV_REQUIRES}")
