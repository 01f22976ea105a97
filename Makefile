# Two commands do all: `make demo` and `make test`. Each sets up .venv from pyproject.toml first.
PYTHON ?= python3
BIN := .venv/bin
RUNTIME := src/smidgen/runtime
KERNELS := $(wildcard $(RUNTIME)/kernels/*.c) $(wildcard src/smidgen/memory/packing/*.c) src/smidgen/targets/counter.c
PACKED := $(abspath $(wildcard $(RUNTIME)/cortex_m/*.[cS]))
CWARNINGS := -std=c99 -pedantic -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -I$(abspath $(RUNTIME))
CORTEX_M = $(shell $(BIN)/python -c 'from smidgen.targets import boards, toolchain as t; print(*t.core_flags("zig", boards.M7), *t.FLAGS)')
HOST := $(CWARNINGS) -fPIC -shared -o build/kernels-host.so

.PHONY: demo test fuzz hostile lint types cwarnings unit clean mutants

demo: .venv/.core
	$(BIN)/smidgen demo

test: lint types cwarnings unit

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

# All C and assembly with all warnings as errors: by the machine's compiler where there is one and by the ziglang wheel,
# and what is for Cortex-M by the wheel with the flags of that target.
cwarnings: .venv/.dev
	mkdir -p build
	$(BIN)/python -m ziglang cc $(HOST) $(KERNELS)
	if command -v cc > /dev/null; then cc $(HOST) $(KERNELS); fi
	cd build && $(abspath $(BIN))/python -m ziglang cc $(CORTEX_M) $(CWARNINGS) -I$(abspath $(RUNTIME))/kernels -c $(PACKED)

unit: .venv/.dev
	$(BIN)/pytest -n 2 --dist worksteal

# The properties again, on examples no run has seen.
fuzz: .venv/.dev
	$(BIN)/pytest -n 2 --dist worksteal --hypothesis-profile new $(shell grep -l hypothesis tests/test_*.py)

# Mutated training graphs: each is refused, or runs under sanitizers and computes numpy's bytes.
HOSTILE ?= 100000
hostile: .venv/.dev
	$(BIN)/python tests/hostile.py $(HOSTILE)

# Do the tests see wrong programs? Named ones, then a sample of small changes; goes on where the last run stopped.
MINUTES ?= 60
mutants: .venv/.dev
	nice -n 10 $(BIN)/python tools/mutants.py --minutes $(MINUTES)

.venv/bin/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/.core: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ .venv/.core

clean:
	rm -rf .venv out build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
