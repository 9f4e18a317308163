# Copyright 2026 The T5X SpecDec Authors.
# SPDX-License-Identifier: Apache-2.0
#
# make test    set up .venv; ruff, pyright and every test
# make check   the same without the tests marked slow
# make demo    set up .venv and run the demonstration
#
# Needs Python 3.11 or later with pip and venv (on Debian 12: apt-get install
# make python3-pip python3-venv). Settings, as in `make check WORKERS=4`:
#
# PYTHON          the interpreter that .venv is made from
# VENV            where the environment goes
# WORKERS         test processes at a time (0: all in pytest's own process)
# PYTEST_ARGS     more arguments for pytest, such as `-k acceptance`
# DEMO_ARGS       arguments for the demonstration, such as `--temperature 1`
# T5X_CHECKOUTS   checkouts of t5x, airio and jestimator, separated by colons:
#                 the tests that need T5X run too

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
PYTEST_ARGS ?=
DEMO_ARGS ?=
export T5X_CHECKOUTS

BIN := $(VENV)/bin
comma := ,
TEST_EXTRAS := test$(if $(T5X_CHECKOUTS),$(comma)t5x)
SOURCES := setup.py t5x_specdec/version.py
# Whole files' worth of tests go to one worker first, since the tests of a file
# share compilations; a worker that runs dry takes over some of another's.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: test check lint demo test-lowest clean

test: lint
	$(PYTEST) $(PYTEST_ARGS)

# With the elder of XLA's two ways to make code for a CPU, which is the faster.
check: export XLA_FLAGS += --xla_cpu_use_fusion_emitters=false
check: lint
	$(PYTEST) -m 'not slow' $(PYTEST_ARGS)

lint: $(VENV)/.installed-$(TEST_EXTRAS)
	$(BIN)/ruff check
	$(BIN)/pyright --pythonpath $(BIN)/python

demo: $(VENV)/.installed
	$(BIN)/t5x-specdec demo $(DEMO_ARGS)

# The tests with every dependency at its lower bound in setup.py.
test-lowest: LOWEST := $(VENV)-lowest
test-lowest: $(VENV)/.installed-test
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/pip install --quiet -e '.[test]' \
	  $$($(BIN)/python -c "import importlib.metadata as m; print(*( \
	  r.replace('>=', '==') for r in m.requires('t5x_specdec') \
	  if 'extra' not in r))")
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	@echo 'Installing into $(VENV): about 1 GB to download, once.'
	$(BIN)/pip install --quiet -e .
	@touch $@

$(VENV)/.installed-%: $(SOURCES) | $(BIN)/python
	@echo 'Installing into $(VENV): about 1 GB to download, once, and a few minutes.'
	$(BIN)/pip install --quiet -e '.[$*]'
	@touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) $(VENV)-lowest build dist *.egg-info
