# Every target makes and fills .venv when it is missing or older than pyproject.toml.
# Needed: Python 3.11 or later and Java 17 or later. Maven and Chromium widen the tests.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
FILLED := $(VENV)/filled
# The interop tests mostly wait: three processes more than cores.
PARALLEL := -n $(shell expr $$(nproc) + 3) --dist loadscope
# The first interpreter that is new enough; `make PYTHON=... test` names another.
PYTHON = $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)

.PHONY: help demo test test-quick test-long fuzz bench bench-recovery bench-catch-up check mutants-apply clean

help:
	@echo 'make demo       replicate real data, break it, analyse it: out/demo/report.html'
	@echo 'make test       all tests but the long ones: about 10 minutes on two cores'
	@echo 'make test-quick units and properties, without tests that start processes: at most 90 seconds'
	@echo 'make test-long  all tests'
	@echo 'make fuzz       hostile peers with new seeds for five minutes; FUZZ="--seconds 3600" for longer'
	@echo 'make check      ruff, mypy --strict, pyright, import-linter, mutants that no longer apply'
	@echo 'make bench      chaos runs, idle pair, actors, guest mode, store, remoting: CPU time beside bare Trio and RocketMQ'
	@echo 'make bench-recovery  2 GiB after kill -9 beside RocketMQ: some minutes, 8 GiB in TMPDIR'
	@echo 'make bench-catch-up  a new slave takes 2 GiB on loopback, beside RocketMQ: some minutes, 8 GiB in TMPDIR'
	@echo 'make clean      remove .venv, out and every cache of the tools'

$(FILLED): pyproject.toml
	@python='$(PYTHON)'
	if [ -z "$$python" ]; then
		echo "error: Python 3.11 or later is needed; python3 is $$(python3 --version 2>&1 || true). Set PYTHON=... if it is elsewhere." >&2
		exit 1
	fi
	echo "making $(VENV) with $$("$$python" --version); PySpark is large: this takes some minutes the first time"
	[ -x $(BIN)/python ] || "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[cli,server,spark,testing]' --group dev
	touch $(FILLED)

demo: $(FILLED)
	@$(BIN)/rmq-actors demo

# Tests start some hundred processes: without kept byte code each of them compiles the project for half a second.
test test-quick test-long: export PYTHONDONTWRITEBYTECODE =

# Else each process would compile what has no byte code yet, and each of pytest's the tests too.
test: $(FILLED)
	@$(BIN)/python -m compileall -q -j 0 -x '/test_[^/]*$$' rmq_actors sim_net tests
	$(BIN)/python -m tests.architecture.byte_code tests
	$(BIN)/python -m pytest -m 'not long' --budgets --second-runs --durations 15 $(PARALLEL)

test-quick: $(FILLED)
	@$(BIN)/python -m pytest -m 'not long and not processes' $(PARALLEL) tests/unit tests/property

test-long: $(FILLED)
	@HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest --second-runs

FUZZ := --seconds 300
fuzz: $(FILLED)
	@$(BIN)/python -m tests.fuzz $(FUZZ)

bench: $(FILLED)
	@for benchmark in chaos_runs idle_pair trace_events actor_costs guest_mode store_append store_startup store_memory remoting_requests sync_puts sync_put_chain; do
		$(BIN)/python -m "tests.bench.$$benchmark"
	done

bench-recovery: $(FILLED)
	@$(BIN)/python -m tests.bench.store_recovery

bench-catch-up: $(FILLED)
	@$(BIN)/python -m tests.bench.ha_catch_up

check: $(FILLED) mutants-apply
	@$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-logo
	$(BIN)/lint-imports --no-logo --config importlinter-sim-net.toml

# A mutant is a change that the tests must catch; one that no longer applies tests nothing.
mutants-apply: $(FILLED)
	@$(BIN)/python -m tests.mutants

clean:
	@rm -rf $(VENV) out build dist spark-warehouse metastore_db derby.log *.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
