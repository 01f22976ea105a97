# As much of Zephyr's build system as a sample asks for, for the board in the folder BOARD_DIR. As there, modules are
# read from zephyr/module.yml and built before the sample's own project begins.
get_filename_component(ZEPHYR ${CMAKE_CURRENT_LIST_DIR}/../../.. ABSOLUTE)
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
project(Zephyr-Kernel C ASM)

# Settings of the sample, CONFIG_…, and whether a module's Kconfig implies more.
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/prj.conf settings REGEX "^CONFIG_")
foreach(setting ${settings})
  string(REGEX MATCH "^(CONFIG_[A-Z0-9_]+)=(.*)$" found ${setting})
  if(NOT CMAKE_MATCH_2 STREQUAL "n")
    set(${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  endif()
endforeach()

add_library(zephyr_interface INTERFACE)
target_include_directories(zephyr_interface INTERFACE ${ZEPHYR}/include)
target_compile_options(zephyr_interface INTERFACE -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16 -Os
  -ffreestanding -fno-common -std=c17 -Wall -Werror -ffunction-sections -fdata-sections)
target_link_options(zephyr_interface INTERFACE -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16
  -nostartfiles --specs=nano.specs -Wl,--gc-sections -T${BOARD_DIR}/board.ld)

function(zephyr_include_directories)
  foreach(folder ${ARGV})
    get_filename_component(folder ${folder} ABSOLUTE)
    target_include_directories(zephyr_interface INTERFACE ${folder})
  endforeach()
endfunction()

macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC)
  target_link_libraries(${name} PUBLIC zephyr_interface)
  set_property(GLOBAL APPEND PROPERTY ZEPHYR_LIBS ${name})
endmacro()

function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGV})
endfunction()

function(zephyr_library_compile_options)
  target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGV})
endfunction()

foreach(module ${ZEPHYR_EXTRA_MODULES})
  file(STRINGS ${module}/zephyr/module.yml lines)
  foreach(line ${lines})
    if(line MATCHES "^name: (.+)$")
      set(name ${CMAKE_MATCH_1})
    elseif(line MATCHES "^  cmake: (.+)$")
      add_subdirectory(${module}/${CMAKE_MATCH_1} modules/${name})
    endif()
  endforeach()
endforeach()

add_library(app STATIC)
target_link_libraries(app PUBLIC zephyr_interface)
add_executable(zephyr_final ${BOARD_DIR}/startup.c ${ZEPHYR}/kernel.c)
set_target_properties(zephyr_final PROPERTIES OUTPUT_NAME zephyr.elf)
get_property(libraries GLOBAL PROPERTY ZEPHYR_LIBS)
target_link_libraries(zephyr_final PRIVATE zephyr_interface -Wl,--start-group app ${libraries} -Wl,--end-group)
