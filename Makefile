# Two commands on a fresh machine with Python 3.11 or newer: `make demo` and `make test`. Each sets up its own .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test quick check lint lint-page format benchmark browser firefox axe screenshots fuzz soak wheel release docs crash clean

demo: .venv/core
	$(BIN)/visvm demo

# Each worker has one thread for linear algebra: two that take two each would get in each other's way. One more than there are
# cores, as the tests of browsers, services and Ray wait for others half of their time.
# Compiled files are kept, whatever the environment says: the tests start many processes.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

test: .venv/dev browser axe
	$(PYTEST)

quick: .venv/dev
	$(PYTEST) -m 'not (slow or browser or ray or kill)'

check: lint test

lint: .venv/dev lint-page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python -m tests.words

# TypeScript checks the types that the page's JavaScript states in its comments (tsconfig.json).
TYPESCRIPT := typescript@5.9.3
lint-page:
	@command -v npm > /dev/null || { echo "no npm here: the types of the page are not checked"; exit 0; }; \
	  test -e .venv/$(TYPESCRIPT)/done || { echo "installing $(TYPESCRIPT)" && \
	  npm install --silent --no-save --no-package-lock --prefix .venv/$(TYPESCRIPT) $(TYPESCRIPT) && \
	  touch .venv/$(TYPESCRIPT)/done; } && .venv/$(TYPESCRIPT)/node_modules/.bin/tsc --project .

# With it, one test of the page runs in Firefox as well; `make test` does not ask for it.
firefox:
	apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends firefox-esr > /dev/null

# axe-core looks for what keeps people out of the page (tests/end_to_end/test_page_axe.py).
AXE := axe-core@4.14.1
axe:
	@test -e .venv/$(AXE)/done || { command -v npm > /dev/null && echo "installing $(AXE)" && \
	  npm install --silent --no-save --no-package-lock --prefix .venv/$(AXE) $(AXE) && \
	  touch .venv/$(AXE)/done; } || echo "no npm here: accessibility is not checked"

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: .venv/dev
	$(BIN)/python benchmarks/encode.py
	$(BIN)/python benchmarks/head.py
	$(BIN)/python -m benchmarks.serve

# The page is tested in a real browser. Where there is none, and none can be installed, those tests are skipped.
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name > /dev/null && exit 0; done; \
	  { test "$$(id -u)" = 0 && echo "installing chromium" && apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium > /dev/null; } || \
	  echo "no chromium here: the tests of the page are skipped"

# Commands on files that were changed at random, under a limit of memory and of time (tests/fuzz).
MINUTES ?= 10
fuzz: .venv/dev
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

# Two services under mixed load, with restarts, a full disk and a clock set back; 70 minutes (benchmarks/SOAK.md). Linux only.
soak: .venv/dev
	$(BIN)/python -m benchmarks.soak

# The wheel, in dist/: built twice, and the same to the last byte.
wheel: .venv/core
	$(BIN)/python -m tests.wheel
# Wheel and sdist, in dist/: each is installed elsewhere, and the quick tests run there (tests/release.py).
release: .venv/dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt build
	$(BIN)/python -m tests.release

# The documentation, in site/: warnings are errors, and links between pages are checked; with --quiet there would be no warnings.
# It needs no network once the default encoder is there.
docs: .venv/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Every command that writes, cut off at each of its file operations and run again (tests/crash).
crash: .venv/dev
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m tests.crash

screenshots: .venv/dev browser
	$(BIN)/python -m tests.end_to_end.screenshots docs/screenshots

clean:
	rm -rf .venv site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# What a virtual environment holds is recorded by a file in it, so that a change of the requirements installs anew.
.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[plot]'
	touch $@

.venv/dev: .venv/core
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
