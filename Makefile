# Needs Python 3.11 or newer, make, and a network to install packages. Nothing else:
# no server, no container. Everything made here lives in .venv, and in .bench for `make bench`.

VENV   := .venv
BIN    := $(VENV)/bin
EXTRAS := postgres,server,sqlalchemy,django

# The first of these that is at least 3.11. Override: make PYTHON=/path/to/python3.12 test
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for p in $(PYTHONS); do \
	"$$p" -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

# The stamps. Each is made last, so one that is there means a finished install.
RUNTIME := $(VENV)/.oncely-runtime
DEV     := $(VENV)/.oncely-dev

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONNOUSERSITE := 1
# Some images set it: then every process of a test run compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --quiet --no-input

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check quick test suite flaky torture bench lint format services clean python

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(RUNTIME) ## see it work
	@$(BIN)/oncely demo

# Handlers, servers and processes wait for each other: four tests keep two cores busy.
PYTEST := $(BIN)/pytest -n 4 --dist worksteal

# The shortest of each kind: the boundaries on both engines, a kill, the command line, HTTP, a page,
# a proof.
QUICK := tests/unit $(addprefix tests/engine/test_, enqueue.py idempotency_keys.py unique_keys.py \
		delivery.py effects.py worker.py schema.py) \
	tests/crash/test_killed_publishers.py tests/crash/test_lost_requests.py \
	tests/surface/test_enqueue.py tests/surface/test_program.py tests/surface/test_show.py \
	tests/surface/http/calls/test_publish.py tests/surface/dashboard/test_overview.py \
	tests/prove/test_testing.py

# Most of the lint is one process, mypy: the tests begin beside it.
check: $(DEV) ## lint, types, and the shortest tests of each kind: after every change
	@$(MAKE) --no-print-directory --jobs 2 lint quick

quick: $(DEV)
	$(BIN)/pytest -n 2 --dist worksteal $(QUICK) $(ARGS)

REWRITTEN := $(VENV)/.oncely-rewritten

# The first run of mypy takes one core for half a minute: the tests begin beside it.
test: services ## everything: before a change lands
	@$(MAKE) --no-print-directory --jobs 2 lint suite

suite: $(REWRITTEN)
	$(PYTEST) $(ARGS)

# pytest rewrites the assertions of a test file when it first imports it. In a new clone each of its
# four processes would do that for every file: here one of them does it for all.
$(REWRITTEN): $(DEV)
	@$(BIN)/pytest --collect-only -q >/dev/null
	@touch $@

N ?= 9
flaky: services ## every test N=9 times, under one hardship after another
	$(BIN)/python -m tests.flaky $(N) $(ARGS)

# What takes too long for every run: kills and stops in larger numbers, all schedules of a proof
# where one is the subject, all planted bugs, and all handlers whose verdict is known.
TIMES ?= 5
TORTURES := tests/crash/test_killed_workers.py tests/crash/test_killed_publishers.py \
	tests/crash/test_server_stops_under_workers.py tests/crash/test_effect_crashes.py \
	tests/crash/test_effect_examples.py tests/crash/test_planted.py \
	tests/crash/test_planted_effects.py tests/crash/test_ledger.py tests/surface/test_torture.py \
	tests/surface/http/test_crashes.py tests/surface/http/test_fuzz.py \
	tests/surface/http/test_wire_fuzz.py $(addprefix tests/prove/test_, honest.py harmless.py \
		file_writes.py clocks.py mail.py targets.py)
torture: $(DEV) ## the crash tests TIMES=5 over, every planted bug, every handler of the zoo
	@failed=; number=0; \
	for file in $(TORTURES); do \
		number=$$((number + 1)); \
		echo "[$$number of $(words $(TORTURES))] $$file, since $$(date +%H:%M:%S)"; \
		ONCELY_TORTURE=$(TIMES) $(BIN)/pytest -s -q --timeout 3600 $$file || failed="$$failed $$file"; \
	done; \
	$(BIN)/python -m tests.planted || failed="$$failed tests.planted"; \
	$(BIN)/python -m tests.prove.zoo || failed="$$failed tests.prove.zoo"; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# Every peer with an environment of its own, under .bench; Node's need npm, some need redis-server.
bench: $(DEV) ## the peers beside us, into bench/RESULTS.md (ARGS=--quick to try it out)
	$(BIN)/python -m bench.peers $(ARGS)

services: $(DEV) ## Redis, MariaDB, PgBouncer, Chromium: installed where that is allowed
	@$(BIN)/python -m tests.services

lint: $(DEV) ## ruff, import-linter, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

format: $(DEV) ## rewrite the code in the one style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove everything that was made
	rm -rf $(VENV) .bench .flaky build dist .hypothesis
	rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# No stamp: the first time, or an install that was cut short. Both begin from nothing.
$(RUNTIME): pyproject.toml | python
	@test -e $@ || "$(PYTHON)" -m venv --clear $(VENV)
	@rm -f $@
	@echo "installing oncely into $(VENV)"
	@$(PIP) install --upgrade pip
	@$(PIP) install --editable '.[$(EXTRAS)]'
	@touch $@

# While this runs neither stamp is there: if it is cut short, all of it is made again.
$(DEV): $(RUNTIME)
	@rm -f $(RUNTIME) $@
	@echo "installing the development tools into $(VENV)"
	@$(PIP) install --editable '.[$(EXTRAS)]' --group dev
	@touch $(RUNTIME)
	@touch $@

python:
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo 'Oncely needs Python 3.11 or newer.'; \
		echo "Tried: $(or $(PYTHON),$(PYTHONS))"; \
		echo "python3 here is: $$(python3 --version 2>&1 || true)"; \
		echo 'Install one, or name it: make PYTHON=/path/to/python3.11 ...'; \
		exit 1; } >&2
