# `make` prepares .venv; `make help` lists the rest. Needs Python 3.11 or newer and make, nothing else.

PYTHON ?= python3
PORT ?= 3000
# Options for pytest, e.g.: make test ARGS="-k sensor -n 0"
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
DAGSTER_HOME_DEV := $(CURDIR)/data/dagster_home

export DAGSTER_DISABLE_TELEMETRY := yes
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := venv
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: venv test test-all demo dev bench clean distclean help again \
	lint lint-ruff lint-format lint-types lint-imports lint-definitions

venv: $(VENV)/.ready ## Make .venv with the project and what its tests need (the default)

test: $(VENV)/.ready ## Run the tests; options for pytest in ARGS
	$(PY) -m pytest $(ARGS)

test-all: $(VENV)/.ready ## Run the tests with the full sweeps of the sampled suites
	ETL_TEST_ALL=1 $(PY) -m pytest -m "" $(ARGS)

demo: $(VENV)/.ready ## Load the showcase, corrections and all, and tell what happened
	$(PY) -m etl_assets.orchestration.demo

dev: $(VENV)/.ready ## Open the Dagster UI on http://127.0.0.1:3000 (another port: PORT=...)
	@mkdir -p $(DAGSTER_HOME_DEV) data/landing
	@test -e $(DAGSTER_HOME_DEV)/dagster.yaml || cp dagster.yaml $(DAGSTER_HOME_DEV)/dagster.yaml
	DAGSTER_HOME="$(DAGSTER_HOME_DEV)" $(PY) -m etl_assets.locks "$(DAGSTER_HOME_DEV)" $(PY) -W 'ignore:Function `dev_command` is superseded' \
		-m dagster dev -h 127.0.0.1 -p $(PORT) -w workspace.yaml

bench: $(VENV)/.ready ## Measure publishing on this machine
	$(PY) benchmarks/run.py

lint: lint-ruff lint-format lint-types lint-imports lint-definitions ## Every check that runs no test

lint-ruff: $(VENV)/.ready-dev
	$(VENV)/bin/ruff check

lint-format: $(VENV)/.ready-dev
	$(VENV)/bin/ruff format --check

lint-types: $(VENV)/.ready-dev
	$(VENV)/bin/mypy

lint-imports: $(VENV)/.ready-dev
	$(VENV)/bin/lint-imports

# In an instance of its own, made with the sample dagster.yaml, which is validated too; nothing of `make dev` is touched.
# (Dagster calls this command superseded by `dg check defs`, which would be one more dependency.)
lint-definitions: $(VENV)/.ready-dev
	@home=$$(mktemp -d) && trap 'rm -rf "$$home"' EXIT && \
	cp dagster.yaml "$$home" && DAGSTER_HOME="$$home" \
	$(PY) -W 'ignore:Function `definitions_validate_command` is superseded' \
		-m dagster definitions validate -w workspace.yaml --log-level warning && \
	echo "Dagster definitions: valid"

clean: ## Remove caches and builds; data/ and .venv stay
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage*
	rm -rf .tmp_dagster_home_*
	find etl_assets etl_assets_tests benchmarks -type d -name __pycache__ -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## Remove .venv too
	rm -rf $(VENV)

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

# --- .venv ----------------------------------------------------------------------------------------------------------
# A stamp is written last, and is older than pyproject.toml when that changes. `.incomplete` lies in .venv while pip
# works: whoever finds it there, or finds a .venv whose pip does not run, was preceded by an interruption and begins again.

ifneq ($(and $(wildcard $(PY)),$(if $(wildcard $(VENV)/.incomplete),,complete)),complete)
$(VENV)/.ready: again
endif
again:

$(VENV)/.ready: pyproject.toml
	@$(call install,test$(comma)s3$(comma)kafka)

$(VENV)/.ready-dev: pyproject.toml $(VENV)/.ready
	@$(call install,test$(comma)s3$(comma)kafka$(comma)dev)

comma := ,

define install
set -e; \
command -v "$(PYTHON)" >/dev/null || { \
  echo "make: no '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3" >&2; exit 1; }; \
"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "make: '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1), 3.11 or newer is needed. Name another: make PYTHON=python3.11" >&2; exit 1; }; \
if [ -e "$(VENV)/.incomplete" ] || ! "$(PY)" -m pip --version >/dev/null 2>&1; then \
  "$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
    echo "make: '$(PYTHON)' cannot make virtual environments: its modules venv and ensurepip are not installed." >&2; \
    echo "      On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
  echo "Making $(VENV) with $$("$(PYTHON)" --version)"; \
  mkdir -p "$(VENV)"; touch "$(VENV)/.incomplete"; \
  "$(PYTHON)" -m venv --clear "$(VENV)"; \
fi; \
touch "$(VENV)/.incomplete"; \
echo "Installing etl_assets[$(1)] into $(VENV)"; \
"$(PY)" -m pip install --quiet --editable '.[$(1)]' || { rm -f "$(VENV)/.incomplete"; exit 1; }; \
rm -f "$(VENV)/.incomplete"; \
touch "$@"
endef
