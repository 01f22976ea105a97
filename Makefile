# Two commands do all: `make demo` and `make test`. Each sets up .venv from pyproject.toml first.
PYTHON ?= python3
BIN := .venv/bin
KERNELS := $(wildcard src/smidgen/runtime/kernels/*.c) $(wildcard src/smidgen/memory/packing/*.c)
CWARNINGS := -std=c99 -pedantic -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Isrc/smidgen/runtime -fPIC -shared -o build/warnings.so

.PHONY: demo test fuzz lint types cwarnings unit clean

demo: .venv/.core
	$(BIN)/smidgen demo

test: lint types cwarnings unit

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dev
	$(BIN)/mypy

# Every kernel with all warnings as errors, by the machine's compiler where there is one and by the ziglang wheel.
cwarnings: .venv/.dev
	mkdir -p build
	$(BIN)/python -m ziglang cc $(CWARNINGS) $(KERNELS)
	if command -v cc > /dev/null; then cc $(CWARNINGS) $(KERNELS); fi

unit: .venv/.dev
	$(BIN)/pytest -n 2 --dist worksteal

# The properties again, on examples no run has seen.
fuzz: .venv/.dev
	$(BIN)/pytest -n 2 --dist worksteal --hypothesis-profile new $(shell grep -l hypothesis tests/test_*.py)

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
