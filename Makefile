# make demo   set up, then run the main job on an embedded Redis and a simulated cluster
# make test   set up, then pass the tests
# make lint   format, lint, types and layers
# make bench  measure what docs/performance.md lists
# make faults kill and freeze processes under load (longer)

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
NO_INDEX := echo "The install failed. It needs the Python package index (https://pypi.org, or PIP_INDEX_URL): is it reachable?"; exit 1
PYTEST_ARGS ?= -n 2 -q

.PHONY: demo test lint bench faults acceptance-real clean

check-python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { echo "Python 3.11 is missing: install it, or name another with PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: osb needs Python 3.11 or newer"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: install its venv package (Debian: python3.11-venv)"; exit 1; }

# The mark says that the environment is whole. One whose making was interrupted has a python and no pip, for good:
# it is made anew. One with a finished install is whole too.
$(VENV)/.made: | check-python
	@test -e $(VENV)/.run || test -e $(VENV)/.dev || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.run: requirements.lock pyproject.toml | check-python $(VENV)/.made
	@echo "installing what osb runs with ..."
	@$(PIP) install --require-hashes -r requirements.lock || { $(NO_INDEX); }
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml | check-python $(VENV)/.made
	@echo "installing what the tests need ..."
	@$(PIP) install --require-hashes -r requirements-dev.lock || { $(NO_INDEX); }
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.run

demo: $(VENV)/.run
	@$(BIN)/osbctl demo

test: $(VENV)/.dev
	$(BIN)/pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/osbctl bench

faults: $(VENV)/.dev
	$(BIN)/pytest tests/faults -m "faults or not faults" $(PYTEST_ARGS) -n 0

acceptance-real: $(VENV)/.dev
	$(BIN)/pytest tests/acceptance tests/chart --cluster real $(PYTEST_ARGS) -n 0

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
