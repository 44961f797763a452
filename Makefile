# Everything builds on .venv, which is made once and remade when the dependencies change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := fleet tui gateway actors projections events
CHECKED := $(wildcard $(PACKAGES) tests benchmarks examples)

export PYTHON

.DEFAULT_GOAL := help
.PHONY: help install demo test lint bench sim chaos docs constraints clean

help: ## show this
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-12s %s\n", $$1, $$2 }'

$(VENV)/complete: pyproject.toml constraints.txt constraints-bench.txt .ci/venv
	@.ci/venv $(VENV) test

install: $(VENV)/complete ## make .venv with .venv/bin/fleet in it
	@echo "ready: $(BIN)/fleet"

demo: $(VENV)/complete ## find out which of four services failed first, from their logs
	@examples/outage/demo.sh $(BIN)

test: $(VENV)/complete ## run all tests, offline
	@$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/complete ## check style, types and layers
	@$(BIN)/ruff check $(CHECKED)
	@$(BIN)/ruff format --check $(CHECKED)
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/complete ## measure Fleet against what exists
	@test -e $(VENV)/bench -a ! $(VENV)/complete -nt $(VENV)/bench || \
		{ .ci/venv $(VENV) test,bench && touch $(VENV)/bench; }
	@$(BIN)/python -m benchmarks $(ARGS)

sim: $(VENV)/complete ## simulate schedules of crashes, takeovers and outages: SEEDS=2000, or SEED=7 for one with its trace
	@$(BIN)/python -m tests.simulation $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos: $(VENV)/complete ## kill every part of a stack, alone and in pairs, and count what is lost
	@$(BIN)/python -m benchmarks.crashes $(ARGS)

docs: $(VENV)/complete ## write the parts of docs/ that come from the code
	@$(BIN)/python -m fleet.config docs/settings.md
	@$(BIN)/python -m fleet.cli.docs docs/cli.md
	@$(BIN)/python -m gateway.openapi --markdown > docs/api.md

constraints: ## pin the newest versions that pyproject.toml allows
	@rm -rf .pins && mkdir .pins
	@for extras in test test,bench; do \
		$(PYTHON) -m venv .pins/$$extras && .pins/$$extras/bin/pip install -q uv ".[$$extras]" || exit 1; done
	@.ci/constraints .pins/test .pins/test,bench
	@rm -rf .pins

clean: ## remove .venv, what tools cached, and the demo's files
	@test ! -x $(BIN)/fleet -o ! -d .demo/home || FLEET_HOME=.demo/home $(BIN)/fleet down
	@rm -rf $(VENV) .demo .pins build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +
