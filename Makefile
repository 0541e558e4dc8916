# Needs Java 17 or 21 and Python 3.11 or newer. Everything else goes into .venv, and nothing outside of it is changed.

PYTHON ?= python3
ARGS ?=
# A part of a name: ONLY=postgres runs the tests, mutants or benchmarks that are called so.
ONLY ?=
# Tests run in two processes, each with a Spark and a PostgreSQL of its own (about 3 GB); JOBS=0 for one after the other.
JOBS ?= 2
# Of the tests in slow files a commit has its share (tests/fixtures/fix_spread.py); all with SHARE=all, ONLY or ARGS.
SHARE ?= $(or $(if $(ARGS)$(ONLY),all),$(shell git rev-parse --short=7 HEAD 2>/dev/null),all)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PLUGIN := $(wildcard examples/deltarelay-sqlite)
# Their order is that of tests/fixtures/fix_order.py
TESTS := tests

# Where it is set, every process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
RUN = $(BIN)/python -m pytest --numprocesses $(JOBS)
NAMED = $(if $(ONLY),-k '$(ONLY)') $(ARGS)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo unit test check wheel compat soak durations mutants bench fmt references docs clean java python

help: ## this list
	@echo "make ..."
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "PYTHON=python3.12 chooses the interpreter, ARGS='-k window' goes to pytest."

demo: java $(VENV)/.installed-demo ## a Delta table, a PostgreSQL and the replication between them, on this machine
	@$(BIN)/deltarelay demo

unit: $(VENV)/.installed-dev ## every pure decision, in seconds: no JVM, no service
	@$(RUN) -m "not soak" $(wildcard tests/unit tests/simulation) $(NAMED)

test: java $(VENV)/.spark-classes.jsa ## all tests but the soak, and of the slow ones this commit's share (SHARE=all: all of them)
	@DELTARELAY_SHARE=$(SHARE) $(RUN) -m "not soak" $(TESTS) $(NAMED)

check: $(VENV)/.installed-dev ## format, lint, types, layers, links of the docs, and whether the generated files are current
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m infra.config.json_schema --check
	$(BIN)/python -m infra.cli.reference --check
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m benchmarks.report --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

wheel: java $(VENV)/.installed-dev ## build the wheel, and try it in a new environment: without extras, then the whole demo
	@$(BIN)/python -m tools.wheel

compat: java $(VENV)/.installed-dev ## the tests on every pair of Spark and Delta; ONLY=3.5 one pair, PART=S3 one part, QUICK=1 the smoke
	@ONLY='$(ONLY)' $(BIN)/python -m tools.compat

soak: java $(VENV)/.spark-classes.jsa ## what is random or long, with new seeds: MINUTES=20 as much as fits, else all of it
	@$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) --jobs $(JOBS) -- $(TESTS) $(NAMED)

durations: java $(VENV)/.spark-classes.jsa ## run all tests of a commit and record how long each file takes
	@DELTARELAY_RECORD_DURATIONS=1 $(RUN) -m "not soak" $(TESTS) $(NAMED)

mutants: java $(VENV)/.spark-classes.jsa ## whether the tests catch each fault of a list, one line of the product each
	@$(BIN)/python -m tests.mutants $(if $(ONLY),'*$(ONLY)*') $(ARGS)

bench: java $(VENV)/.installed-dev ## speeds as ratios, in one table; ONLY=history asks one question, QUICK=1 tries all in small
	@$(BIN)/python -m benchmarks

fmt: $(VENV)/.installed-dev ## format, and mend what can be mended by machine
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

references: $(VENV)/.installed-dev ## generate the reference pages again
	$(BIN)/python -m infra.config.json_schema
	$(BIN)/python -m infra.cli.reference
	$(BIN)/python -m tools.reference

docs: $(VENV)/.installed-dev ## build the documentation site into build/docs; fails on a broken link
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove what builds and runs have left (.venv stays)
	rm -rf build dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis .pytest_cache spark-warehouse
	rm -rf metastore_db derby.log deltarelay-demo
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

java:
	@sh tools/java.sh

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed: $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -n 1)."; \
	  echo "  With another one:  make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }

$(BIN)/python: | python
	@echo "making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Python cannot make a virtual environment (Debian, Ubuntu: sudo apt install python3-venv)."; exit 1; }

# A stamp says that an install went through; it is out of date when the list of dependencies has changed.
$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	@echo "installing deltarelay and what the demo needs into $(VENV) (PySpark is large: some minutes the first time) ..."
	@$(PIP) --editable '.[demo]'
	@touch $@
	@echo "installed."

$(VENV)/.installed-dev: pyproject.toml $(wildcard $(PLUGIN)/pyproject.toml) | $(BIN)/python
	@echo "installing deltarelay and its development tools into $(VENV) (PySpark is large: some minutes the first time) ..."
	@$(PIP) --editable '.[dev]' $(addprefix --editable ./,$(PLUGIN))
	@touch $@ $(VENV)/.installed-demo
	@echo "installed."

$(VENV)/.spark-classes.jsa: $(VENV)/.installed-dev tests/class_archive.py
	@echo "making an archive of Spark's classes, from which the tests' JVMs start ..."
	@$(BIN)/python -m tests.class_archive
