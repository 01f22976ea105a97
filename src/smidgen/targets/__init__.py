"""What a compiled graph runs on: this machine, emulated boards, and the compilers that build for them.

`device` says what a target and a device are, `finding` knows them by name. Nothing is imported here: `compiler`, the
host's C compiler, also builds the memory planner's search.
"""
