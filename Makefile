# Two commands do all: `make demo` and `make test`. Each sets up .venv from pyproject.toml first.
# `make test` is what every change needs, in minutes; `make test-all` is everything; `make retest` what failed last.
PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
RUNTIME := src/smidgen/runtime
KERNELS := $(wildcard $(RUNTIME)/kernels/*.c) $(wildcard $(RUNTIME)/store/*.c) $(wildcard $(RUNTIME)/link/*.c) $(wildcard src/smidgen/memory/packing/*.c) src/smidgen/targets/counter.c
PACKED := $(abspath $(wildcard $(RUNTIME)/cortex_m/*.[cS]))
SCALAR := $(abspath $(wildcard $(RUNTIME)/scalar/*.[cS]))
HELIUM := $(abspath $(wildcard $(RUNTIME)/helium/*.[cS]))
PORTABLE := $(abspath $(wildcard $(RUNTIME)/kernels/*.c) $(wildcard $(RUNTIME)/store/*.c) $(wildcard $(RUNTIME)/link/*.c))
CWARNINGS := -std=c99 -pedantic -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wconversion -Wsign-conversion -I$(abspath $(RUNTIME))
CORE = $(shell $(BIN)/python -c 'from smidgen.targets import boards, toolchain as t; print(*t.core_flags("$(1)", boards.$(2)), *t.FLAGS)')
WASM = $(shell $(BIN)/python -c 'from smidgen.targets import wasm; print(*wasm.FLAGS)')
# Whether a compiler is installed and finds its C library.
HAS = expr "$$($(1) -print-file-name=$(2) 2> /dev/null)" : / > /dev/null
SHARED := -I$(abspath $(RUNTIME))/kernels -I$(abspath $(RUNTIME))/cortex_m
HOST := $(CWARNINGS) -fPIC -shared -o build/kernels-host.so

PYTEST := $(BIN)/pytest -n 2 --dist worksteal

PROGRAM := build/program
WRITTEN := -I$(PROGRAM)/model -I$(PROGRAM)/smidgen $(PROGRAM)/model/*.c $(PROGRAM)/smidgen/*.c $(PROGRAM)/board/*.c
TIDIED := $(wildcard $(RUNTIME)/kernels/*.c) $(wildcard $(RUNTIME)/store/*.c) $(wildcard $(RUNTIME)/link/*.c) src/smidgen/targets/counter.c $(PROGRAM)/model/model.c

.PHONY: package-tools demo test test-all test-slow retest fuzz fuzz-ci checks properties hostile soak mutants lint types cwarnings ctidy unit docs clean program wheel wheel-demo

demo: .venv/.core
	$(BIN)/smidgen demo

test: checks
	$(MAKE) unit

# Everything, with every example and case.
test-all: checks build/tools/.done
	$(PYTEST) -m "not alone"
	$(BIN)/pytest -m alone
	$(MAKE) fuzz-ci

# What `make test` leaves out, group after group, as far as the minutes go.
SLOW_MINUTES ?= 60
test-slow: .venv/.dev build/tools/.done
	$(BIN)/python tools/slow_tier.py --minutes $(SLOW_MINUTES)

# What failed last. pytest's status is 5 where nothing did.
retest: .venv/.dev
	$(PYTEST) --last-failed --last-failed-no-failures none || [ $$? = 5 ]

# The linters are one process each: two at a time.
checks: .venv/.dev
	$(MAKE) --jobs 2 --output-sync=target lint types cwarnings

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

# All C and assembly with all warnings as errors: by the machine's compiler where there is one and by the ziglang wheel,
# and what runs on boards by the wheel, and by gcc for their cores where it is installed, with the flags of that target.
cwarnings: program
	$(BIN)/python -m ziglang cc $(CWARNINGS) -fPIC -shared -o build/program-host.so $(WRITTEN)
	if command -v cc > /dev/null; then cc $(CWARNINGS) -fPIC -shared -o build/program-host.so $(WRITTEN); fi
	$(BIN)/python -m ziglang cc $(HOST) $(KERNELS)
	if command -v cc > /dev/null; then cc $(HOST) $(KERNELS); fi
	cd build && $(abspath $(BIN))/python -m ziglang cc $(call CORE,zig,M7) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(PACKED)
	cd build && $(abspath $(BIN))/python -m ziglang cc $(call CORE,zig,M0PLUS) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(SCALAR)
	cd build && $(abspath $(BIN))/python -m ziglang cc $(call CORE,zig,M3) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(SCALAR)
	cd build && $(abspath $(BIN))/python -m ziglang cc $(call CORE,zig,M55) $(CWARNINGS) $(SHARED) -c $(HELIUM)
	cd build && $(abspath $(BIN))/python -m ziglang cc $(call CORE,zig,RV32IMC) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(SCALAR)
	cd build && $(abspath $(BIN))/python -m ziglang cc $(WASM) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(PORTABLE)
	cd build && $(abspath $(BIN))/python -m ziglang cc $(WASM) -msimd128 $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(PORTABLE)
	if $(call HAS,arm-none-eabi-gcc,nano.specs); then cd build && \
	  arm-none-eabi-gcc $(call CORE,gcc,M7) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(PACKED) $(PORTABLE) && \
	  arm-none-eabi-gcc $(call CORE,gcc,M0PLUS) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(SCALAR) && \
	  arm-none-eabi-gcc $(call CORE,gcc,M3) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(SCALAR) && \
	  arm-none-eabi-gcc $(call CORE,gcc,M55) $(CWARNINGS) $(SHARED) -c $(HELIUM); \
	else echo 'SKIPPED: arm-none-eabi-gcc or its C library is not installed'; fi
	if $(call HAS,riscv64-unknown-elf-gcc,picolibc.specs); then cd build && \
	  riscv64-unknown-elf-gcc $(call CORE,gcc,RV32IMC) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(SCALAR) $(PORTABLE); \
	else echo 'SKIPPED: riscv64-unknown-elf-gcc or its C library is not installed'; fi

# A program that learns, as a user would have it written.
program: .venv/.dev
	mkdir -p build
	rm -rf $(PROGRAM)
	$(BIN)/smidgen compile mcunet-5fps --scheme 49kb --classes 10 --output $(PROGRAM) > /dev/null

# What two analysers find in the C; .clang-tidy says what is left out and why. The search for packings recurses, on the
# host and as deep as there are items: it is checked without that rule.
ctidy: program
	-$(BIN)/python -m pip install --quiet 'clang-tidy>=20,<24'
	if [ -x $(BIN)/clang-tidy ]; then \
	  printf '%s\0' $(TIDIED) | xargs -0 -n 8 -P 2 sh -c '$(BIN)/clang-tidy --quiet "$$@" -- -std=c99 -I$(RUNTIME)' sh && \
	  $(BIN)/clang-tidy --quiet --checks=-misc-no-recursion src/smidgen/memory/packing/search.c -- -std=c99; \
	else echo 'SKIPPED: clang-tidy cannot be installed from this package index'; fi
	if command -v cppcheck > /dev/null; then \
	  cppcheck --std=c99 --enable=warning,performance,portability --error-exitcode=1 --quiet -I$(RUNTIME) \
	    -I$(RUNTIME)/kernels $(RUNTIME)/cortex_m src/smidgen/memory/packing $(TIDIED); \
	else echo 'SKIPPED: cppcheck is not installed'; fi

unit: .venv/.dev build/tools/.done
	$(PYTEST) --quick -m "not slow and not alone" --durations 20

# Tools of other ecosystems, apart from our own environment; tests that ask them skip where they cannot be installed.
build/tools/.done:
	mkdir -p build
	-$(PYTHON) -m venv build/tools && build/tools/bin/python -m pip install --quiet \
	  'platformio>=6.1,<7' 'scons>=4.8,<5' 'idf-component-manager>=3,<4' 'kconfiglib>=14,<15' && touch $@

package-tools: build/tools/.done

# The documents as a site, in build/site; a link that leads nowhere is an error.
docs: .venv/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# A wheel of the sources as they are, and the demo from it in an empty environment of each Python that is named.
wheel: $(BIN)/python
	rm -rf build/lib build/bdist.* dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	ls dist

PYTHONS ?= $(PYTHON)
wheel-demo: wheel
	for python in $(PYTHONS); do \
	  rm -rf build/empty && $$python -m venv build/empty && \
	  build/empty/$(notdir $(BIN))/python -m pip install --quiet dist/*.whl && \
	  (cd build/empty && $(notdir $(BIN))/smidgen demo) || exit 1; \
	done

# Every parser of files, by coverage: new cases for some minutes, or the same ones every time.
FUZZ_MINUTES ?= 10
fuzz: .venv/.dev
	$(BIN)/python tools/fuzz.py --minutes $(FUZZ_MINUTES)

FUZZ_SHARE ?= 0.1
fuzz-ci: .venv/.dev
	$(BIN)/python tools/fuzz.py --deterministic --share $(FUZZ_SHARE)

# The properties again, on examples no run has seen.
properties: .venv/.dev
	$(PYTEST) --hypothesis-profile new $(shell grep -rl hypothesis tests --include='test_*.py')

# Do the tests see wrong programs? Named ones, then a sample of small changes; goes on where the last run stopped.
MINUTES ?= 60
mutants: .venv/.dev
	nice -n 10 $(BIN)/python tools/mutants.py --minutes $(MINUTES)

# Mutated training graphs: each is refused, or runs under sanitizers and computes numpy's bytes.
HOSTILE ?= 100000
hostile: .venv/.dev
	$(BIN)/python -m tests.support.hostile_graphs $(HOSTILE)

# Long runs and rough ones: a board against the host, extreme images and rates, flipped bits, power that fails.
SOAK ?=
soak: .venv/.dev
	$(BIN)/python tools/soak.py $(SOAK)

$(BIN)/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/.core: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs]'
	touch $@ .venv/.core

clean:
	rm -rf .venv out build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
