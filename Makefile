# Every target works from a fresh clone: the virtual environment is made on first use and refreshed when
# pyproject.toml changes. Another interpreter: make PYTHON=python3.12 VENV=.venv-3.12 test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLI_STAMP := $(VENV)/.installed-cli
BENCH_VENV := .venv-bench
BENCH_BIN := $(BENCH_VENV)/bin
BENCH_STAMP := $(BENCH_VENV)/.installed
SCALE ?= 1
PARALLEL ?= 3
INPUTS ?= 10000

PACKAGES := --editable '.[dev]'
# What has parts in Rust has no wheel for 3.13t: there the last versions without them are taken, and tests of what has never
# been without (FastAPI, schemathesis, notebooks, type checkers) are left out.
PACKAGES_3.13t := --editable '.[devtools,process,otel,gpu]' rich pyyaml opentelemetry-sdk \
	cython editables hatchling httpx2 'hypothesis<6.150' 'jsonschema<4.18' ninja selenium setuptools pytest pytest-timeout pytest-xdist
WITHOUT_3.13t := --ignore tests/devtools/test_devtools_fuzz.py --ignore tests/test_notebooks.py \
	--deselect tests/test_newcomers.py::test_mypy_finds_nothing_wrong_with_a_typed_program \
	--deselect tests/test_newcomers.py::test_pyright_finds_nothing_wrong_with_a_typed_program \
	--deselect 'tests/test_docs.py::test_example_prints_what_the_page_shows[docs/how-to/fastapi.md-1-Embed it in FastAPI]'

# What runs a second time with the interpreted core.
BOTH := $(wildcard tests/kernel tests/runtime tests/engines tests/task tests/attacks/test_broken_off.py)
# The Python of VERSION in its tree, or of the environment here.
THAT := $(if $(VERSION),tools/with_python.sh $(VERSION) .venv-$(VERSION)/bin/python,$(BIN)/python)

.DEFAULT_GOAL := help
.PHONY: help run quick core test test-interpreted test-browser test-python test-ray fuzz-files soak lint wheel bench bench-quick bench-newer bench-own bench-ray bench-machine periodic docs clean


help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(if $(wildcard $(STAMP)),$(STAMP),$(CLI_STAMP)) ## run the first example and print its report
	$(BIN)/whywait run examples/film/film.toml

core: $(STAMP) ## compile what has changed of the core; without a C compiler it stays interpreted
	$(BIN)/python hatch_build.py

quick: lint core ## lint, then the tests of rules, kernel, executor and engines without child processes: a minute or two
	$(BIN)/python -m pytest tests/kernel tests/runtime/executor tests/engines/conformance -k 'not process'

# Many tests wait: three at once keep two processors busy. The tests of one file stay together and in order.
test: lint core ## lint, then run all tests but those of the DevTools page and of Ray, PARALLEL=3 files at once; then test-interpreted
	$(BIN)/python -m pytest -n $(PARALLEL) --dist loadfile
	@$(MAKE) --no-print-directory test-interpreted

test-interpreted: $(STAMP) ## run the tests of the kernel, the runtime, the engines and tasks with the interpreted core
	WHYWAIT_CORE=interpreted $(BIN)/python -m pytest -n $(PARALLEL) --dist loadfile $(BOTH)

test-python: ## run the tests under VERSION=3.14, 3.15, 3.13t or 3.14t (free-threaded), PARALLEL=3 files at once, in a Debian tree made for them; root only
	tools/with_python.sh $(VERSION) python3 -m venv .venv-$(VERSION)
	$(THAT) -m pip install -qq $(or $(PACKAGES_$(VERSION)),$(PACKAGES))
	$(THAT) -m pytest -n $(PARALLEL) --dist loadfile $(WITHOUT_$(VERSION))
	WHYWAIT_CORE=interpreted $(THAT) -m pytest -n $(PARALLEL) --dist loadfile $(WITHOUT_$(VERSION)) $(BOTH)

test-browser: core ## run the tests of the DevTools page in Chromium, which is installed if need be
	tools/install_browser.sh
	$(BIN)/python -m pytest -m browser tests/devtools/browser

soak: core ## run the long tests of faults for hours, or SCALE=0.01 of that, and write docs/reliability.md
	$(BIN)/python -m pytest tests/soak -s --timeout 7200 --scale $(SCALE)
	$(BIN)/python tools/make_docs.py

fuzz-files: core ## try INPUTS=10000 hostile event files, records, workloads and workflow files of each kind (half an hour)
	$(BIN)/python -m pytest tests/attacks/test_hostile_files.py --show-capture=no --inputs $(INPUTS)

test-ray: core ## run the tests of the Ray engine on clusters of its own; Ray is installed if need be
	@WHYWAIT_COMPILE=0 $(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[ray]'
	$(BIN)/python -m pytest -m ray tests/engines/conformance
	$(BIN)/python -m pytest -m ray tests/test_docs.py
	$(BIN)/python -m pytest -m ray tests/engines/cluster

lint: $(STAMP) ## check rules, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

wheel: $(if $(VERSION),,core) ## make a wheel for this Python in dist/, or for VERSION=3.14 after its test-python
	$(THAT) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist

bench: $(BENCH_STAMP) core ## measure against the peers (an hour; goes on where it was stopped), write docs/benchmarks.md
	$(BENCH_BIN)/python bench/run.py

bench-quick: $(BENCH_STAMP) core ## the same in two minutes, to bench/results/quick.md
	$(BENCH_BIN)/python bench/run.py --quick

bench-newer: ## measure no-ops, latency and Python bodies under VERSION=3.14 or another, in the tree of test-python, for a section of the page; root only
	tools/with_python.sh $(VERSION) python3 -m venv .venv-$(VERSION)
	$(THAT) -m pip install -qq --editable .
	$(THAT) bench/run.py --newer

bench-own: core ## measure the kernel and the runtime alone
	$(BIN)/python bench/objects.py
	$(BIN)/python bench/cost.py
	$(BIN)/python bench/kernel.py
	$(BIN)/python bench/runtime.py

bench-ray: core ## measure the Ray engine against bare Ray, and the kernel with many tasks in virtual time
	@WHYWAIT_COMPILE=0 $(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[ray]'
	$(BIN)/python bench/ray_engine.py
	$(BIN)/python bench/scale.py

bench-machine: core ## measure the machine against task-spooler, nq, GNU parallel and Slurm, which are installed if need be
	tools/install_queues.sh
	$(BIN)/python bench/queues/run.py

periodic: core ## measure periodics (against APScheduler), pause and abort
	@WHYWAIT_COMPILE=0 $(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python bench/periodic.py

docs: $(STAMP) ## write the generated pages of docs/ and build the site into site/; a warning is an error
	@WHYWAIT_COMPILE=0 $(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[docs]'
	$(BIN)/python tools/make_docs.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

clean: ## remove the environment, caches and builds
	rm -rf $(VENV) $(BENCH_VENV) build dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache __pycache__ src/whywait/core.*.txt
	find src -name '*.so' -delete
	find src tests tools bench examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# A comma in an argument of call.
, := ,

# Makes the environment and installs whywait from here with these extras; the target core compiles, if need be.
define install
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("whywait needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12 ...")'
	@echo "setting up $(VENV) for $(2)"
	@$(PYTHON) -m venv $(VENV)
	@WHYWAIT_COMPILE=0 $(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[$(1)]'
	@touch $@
endef

$(CLI_STAMP): pyproject.toml
	$(call install,cli$(,)process,the command line and its example)

$(STAMP): pyproject.toml
	$(call install,dev,development)

$(BENCH_STAMP): pyproject.toml bench/requirements.txt bench/requirements-ray.txt
	@echo "setting up $(BENCH_VENV) with the peers"
	@$(PYTHON) -m venv $(BENCH_VENV)
	@WHYWAIT_COMPILE=0 $(BENCH_BIN)/python -m pip install -qq --disable-pip-version-check --editable . --requirement bench/requirements.txt
	@$(BENCH_BIN)/python -m pip install -qq --disable-pip-version-check --requirement bench/requirements-ray.txt \
		|| echo "Ray cannot be installed here: the page will say so"
	@touch $@
