# Every target works from a fresh clone: the virtual environment is made on first use and refreshed when
# pyproject.toml changes. Another interpreter: make PYTHON=python3.12 test (after make clean).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run test test-browser test-ray lint bench bench-ray periodic docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(STAMP) ## run the first example and print its report
	$(BIN)/whywait run examples/film/film.toml

test: lint ## lint, then run all tests but those of the DevTools page
	$(BIN)/python -m pytest

test-browser: $(STAMP) ## run the tests of the DevTools page in Chromium, which is installed if need be
	tools/install_browser.sh
	$(BIN)/python -m pytest -m browser tests/browser

test-ray: $(STAMP) ## run the tests of the Ray engine on clusters of its own; Ray is installed if need be
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[ray]'
	$(BIN)/python -m pytest -m ray tests/conformance
	$(BIN)/python -m pytest -m ray tests/cluster

lint: $(STAMP) ## check rules, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(STAMP) ## measure the kernel and the runtime
	$(BIN)/python bench/kernel.py
	$(BIN)/python bench/runtime.py

bench-ray: $(STAMP) ## measure the Ray engine against bare Ray, and the kernel with many tasks in virtual time
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[ray]'
	$(BIN)/python bench/ray_engine.py
	$(BIN)/python bench/scale.py

periodic: $(STAMP) ## measure periodics (against APScheduler), pause and abort
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python bench/periodic.py

docs: $(STAMP) ## write the generated pages of docs/
	$(BIN)/python tools/make_docs.py

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests tools bench examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("whywait needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12 ...")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@
