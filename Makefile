# The words of this project: everybody, and CI, uses the same ones.
#   make run ARGS="--port 8188"   install what a user needs, start the server
#   make test                     install the development tools too, run all tests
#   make check                    what must be green before a commit

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
TESTS ?= tests
# All tests run in so many processes (see tests/support/halves.py), since many only wait; a choice of them in one.
JOBS ?= $(if $(filter tests,$(TESTS)),2,0)

# One torch thread and a passive wait: several test processes share the cores.
TEST_ENV := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
# On a terminal pip shows how far the downloads are; in logs it keeps quiet.
QUIET := $(shell test -t 2 || echo --quiet)
PIP := $(BIN)/python -m pip install --no-input --disable-pip-version-check $(QUIET) --constraint constraints.txt

# An installation is stale when what it was made from is newer than its stamp.
SOURCES := pyproject.toml constraints.txt $(shell find native -type f 2>/dev/null)
STAMP_RUN := $(VENV)/.installed-run
STAMP_DEV := $(VENV)/.installed-dev

.PHONY: setup run test check fmt lint type arch web bench clean

setup: $(STAMP_DEV)

run: $(STAMP_RUN)
	$(BIN)/comfyserverless serve $(ARGS)

test: $(STAMP_DEV) web
	$(TEST_ENV) $(BIN)/python -m pytest -n $(JOBS) $(TESTS)

check: lint type arch
	$(MAKE) test

fmt: $(STAMP_DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell

type: $(STAMP_DEV)
	$(BIN)/mypy

arch: $(STAMP_DEV)
	$(BIN)/lint-imports

web:
	@if command -v node >/dev/null; then node --test --test-reporter=dot tests/web/*.test.mjs; \
	else echo "SKIPPED: the page's unit tests need node, which is not installed"; fi

bench: $(STAMP_DEV)
	$(BIN)/comfyserverless bench overhead $(ARGS)

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP_RUN): $(SOURCES) | $(BIN)/python
	@echo "Installing comfyserverless (the first time takes a few minutes: torch is large) ..."
	$(PIP) --editable .
	@touch $@

$(STAMP_DEV): $(SOURCES) | $(BIN)/python
	@echo "Installing comfyserverless and the development tools ..."
	$(PIP) --editable '.[dev]'
	@touch $(STAMP_RUN) $@
