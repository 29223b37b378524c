# Every target sets up what it needs, once, in .venv.
.PHONY: demo test test-slow lint fix bench docs clean
PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --durations 15
# In two parts, which share what they compile: after some thousand compiled programs a
# process holds gigabytes of them.
MANY_PROGRAMS := tests/algos tests/contracts tests/dynamics
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

demo: .venv/.ready-demo
	$(BIN)/manyhands demo

test: .venv/.ready-dev
	@cache=$$(mktemp -d) && trap "rm -rf $$cache" EXIT && \
	  export JAX_COMPILATION_CACHE_DIR=$$cache && \
	  $(PYTEST) $(MANY_PROGRAMS) && $(PYTEST) $(MANY_PROGRAMS:%=--ignore %)

test-slow: .venv/.ready-dev
	$(PYTEST) -m slow

lint: .venv/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

fix: .venv/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.ready-dev
	@for script in benchmarks/load.py benchmarks/fit.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: .venv/.ready-dev
	$(BIN)/python docs/build/cli.py > docs/cli.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

clean:
	rm -rf .venv demo site

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "manyhands needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

# The development install holds all that the demo needs, and counts for both.
.venv/.ready-demo: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing into .venv (about a minute)"
	$(PIP) --editable '.[report,mujoco]'
	@touch $@

.venv/.ready-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing into .venv (about a minute)"
	$(PIP) --editable '.[dev]'
	@touch .venv/.ready-demo $@
