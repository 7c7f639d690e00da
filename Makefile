# `make demo` and `make test` start from nothing but Python 3.11 or newer: the first one that is
# called creates .venv and installs into it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast coverage lint collected docs format clean

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/tpsrl-installed
WARM := $(VENV)/tpsrl-warm
OUT ?= out/demo
PACKAGES := tpsrl skills planner eval
# Half as many again as there are cores, since many tests wait for processes of their own.
CORES := $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
PARALLEL := -n $(shell expr $(CORES) + $(CORES) / 2) --dist worksteal

# Homes run one to a process, so a numeric library that starts its own threads only gets in the way.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export NUMBA_NUM_THREADS ?= 1
# Byte code is kept: the suite starts hundreds of processes that import the same modules.
export PYTHONDONTWRITEBYTECODE :=

help:
	@echo "make demo      evaluate the learned robot on two chosen episodes of each scenario, with videos (OUT=$(OUT))"
	@echo "make test      lint, types and the test suite"
	@echo "make test-fast the quick tests of functions, half a minute"
	@echo "make coverage  the test suite, and which lines it ran"
	@echo "make lint      lint and types only"
	@echo "make docs      build the docs site into site/"
	@echo "make format    let ruff rewrite the files"
	@echo "make install   create $(VENV) and install into it"
	@echo "make clean     remove caches and build products ($(VENV) and out/ stay)"

install: $(WARM)

$(STAMP): pyproject.toml constraints.txt
	@if [ ! -x $(BIN)/python ]; then \
	    for python in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	        if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	            echo "creating $(VENV) with $$($$python --version)"; \
	            "$$python" -m venv $(VENV) || exit 1; \
	            break; \
	        fi; \
	    done; \
	fi; \
	if [ ! -x $(BIN)/python ]; then \
	    echo "tpsrl needs Python 3.11 or newer, and found none on the PATH" >&2; \
	    exit 1; \
	fi
	@echo "installing into $(VENV): 2 to 6 GB, a few minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# The compiled code lies in __pycache__ beside its source, where every later run finds it.
$(WARM): $(STAMP)
	@$(BIN)/tpsrl warmup
	@touch $@

# Seed 8 was chosen for its films: five of its six episodes succeed, more than on average.
demo: $(WARM)
	@$(BIN)/tpsrl eval all agent=pretrained num_episodes=2 seed=8 videos=2 out=$(OUT)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every worker imports all tests, each with its assertions written anew unless that has been kept;
# so they are collected once before, beside the types, which take one core.
test: $(WARM)
	@$(MAKE) --no-print-directory -j2 lint collected
	$(BIN)/python -m pytest $(PARALLEL)

collected: $(WARM)
	@$(BIN)/python -m pytest --collect-only -q >/dev/null || true  # the suite says what is wrong

test-fast: $(WARM)
	$(BIN)/python -m pytest $(PARALLEL) tests/unit -m "not slow"

# Coverage is of this process: neither of the workers that tests start, nor of compiled code. From
# Python 3.12 on it can be had for next to nothing, under 3.11 it takes up to half as long again.
coverage: $(WARM)
	@core=$$($(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")'); \
	COVERAGE_CORE=$$core $(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=
	@echo "lines that the tests ran:"
	@for package in $(PACKAGES); do \
	    printf '  %-8s %3s%%\n' $$package $$($(BIN)/coverage report --include="$$package/*" --format=total); \
	done

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist site htmlcov .coverage *.egg-info .pytest_cache .mypy_cache .ruff_cache $(WARM)
	find . -name __pycache__ -not -path './$(VENV)/*' -type d -prune -exec rm -rf {} +
