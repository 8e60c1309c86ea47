# Every target sets up what it needs in .venv and then does its job.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_BENCH := $(VENV)/.ready-bench
CODE := src tests bench examples docs README.md  # a user's program beside them is the user's

INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable
# pip compiles on one core; a few packages carry files that no Python compiles, which is nothing to stop for.
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib src tests || true

.PHONY: demo services test test-slow bench check style types layers docs clean
unexport PYTHONDONTWRITEBYTECODE  # else every process that a test starts compiles anew what has changed

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[dev]'
	$(COMPILE)
	touch $(READY)

demo: $(READY)  ## a study from start to end, with its chart
	$(BIN)/hoptree demo

check: $(READY)  ## style, types, layers, documentation: on two cores, each with its output in one piece
	$(MAKE) --jobs=2 --output-sync=target types docs style layers

style: $(READY)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

docs: $(READY)  ## the documentation, into docs/_build; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build

services:  ## what tests use of the operating system (PostgreSQL, Fashion-MNIST): says what is missing, and installs it
	$(PYTHON) -m tests.services

test: check  ## all that must hold before a change lands; four at a time, as tests of processes often wait
	$(BIN)/python -m pytest -n 4 -m "not slow" --durations=25

test-slow: $(READY)  ## minutes: 20,000 histories, the large simulated study, the wheel in an empty environment
	$(BIN)/python -m pytest -n 2 -m slow
	$(BIN)/python -m pytest -n 2 -m "not slow" --hypothesis-profile=explore tests/core tests/search tests/store

$(READY_BENCH): $(READY)  # the peers that Hoptree is measured beside
	$(INSTALL) '.[bench]'
	$(COMPILE)
	touch $(READY_BENCH)

bench: $(READY_BENCH)  ## speed, sharing, clusters, quality of decisions, money, faults; figures go to bench/RESULTS.md
	$(BIN)/python -m bench.decisions
	$(BIN)/python -m bench.elastic
	$(BIN)/python -m bench.throughput
	$(BIN)/python -m bench.trials
	$(BIN)/python -m bench.speed
	$(BIN)/python -m bench.sharing
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.rehearsal
	$(BIN)/python -m bench.shards
	$(BIN)/python -m bench.gangs
	$(BIN)/python -m bench.gangs_halving
	$(BIN)/python -m bench.cluster
	$(BIN)/python -m bench.opening
	$(BIN)/python -m bench.faults

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist docs/_build
