# Two commands on a fresh machine with Python 3.11 or newer: `make demo` and `make test`. Each sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check lint format benchmark clean

demo: .venv/core
	$(BIN)/visvm demo

test: .venv/dev
	$(BIN)/python -m pytest

check: lint test

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: .venv/dev
	$(BIN)/python benchmarks/encode.py
	$(BIN)/python benchmarks/head.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# What a virtual environment holds is recorded by a file in it, so that a change of the requirements installs anew.
.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/dev: .venv/core
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
