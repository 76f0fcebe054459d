# Trainyard's commands. `make` alone lists them.

PYTHON ?= python3
CONF ?=
RUN ?=
SEED ?=
NAME ?=
ARGS ?=
VENV := .venv
PY := $(VENV)/bin/python
TRAINYARD := $(PY) -m trainyard
export PYTHONPATH := $(CURDIR)/include:$(CURDIR)/plugins:$(CURDIR)/tools:$(CURDIR)/tests/oracle
RUN_READY := $(VENV)/ready-to-run
DEV_READY := $(VENV)/ready-to-develop
COMPILED := $(VENV)/compiled
# Three test processes: one has all tests with a live Airflow, which mostly wait; the others have the rest (tests/conftest.py).
BESIDE := -n 3 --dist loadscope --no-loadscope-reorder
ENGINE_TESTS := tests/sagemaker_engine tests/contract tests/clients
PURE := -n 2 --dist loadfile --ignore=tests/stack --ignore=tests/deployment --ignore=tests/resilience --ignore=tests/contract
# A small environment, since `make wheels` needs nothing of the large ones.
BUILDER := dist/builder
SOURCES := include plugins dags images tools training_scripts tests benchmarks

.DEFAULT_GOAL := help
# Many short processes import the same code: let the first one keep its bytecode.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup run compare lint-run plan verify rules profile chaos up down engine pages wheels mwaa test test-quick test-engine test-product test-all test-resilience check format bench docs images lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(DEV_READY) ## install everything into .venv

run: $(RUN_READY) ## run the DAG once, from start to report  [CONF=file.json]
	@$(TRAINYARD) run $(if $(CONF),--conf $(CONF)) $(ARGS)

compare: $(RUN_READY) ## train a model under several strategies and numbers of ranks, and compare them  [CONF=file.json]
	@$(TRAINYARD) run --dag compare_strategies $(if $(CONF),--conf $(CONF)) $(ARGS)

lint-run: $(RUN_READY) ## list the settings of a run or a job that AWS would reject; starts nothing  [CONF=file.json]
	@$(TRAINYARD) lint $(CONF)

plan: $(RUN_READY) ## rank ways to train a model by memory, time and cost; trains nothing  [CONF=file.json]
	@$(TRAINYARD) plan $(CONF)

chaos: $(RUN_READY) ## run the DAG while faults are injected everywhere  [SEED=7] [CONF=file.json]
	@$(PY) -m chaos $(if $(SEED),--seed $(SEED)) $(if $(CONF),--conf $(CONF)) $(ARGS)

verify: $(RUN_READY) ## verify the continuity of a run from its log: steps, samples, cost  [RUN=<run id>]
	@$(PY) -m verify "runs/$(RUN)"

rules: $(RUN_READY) ## evaluate the rules on a finished run, from its statistics or its log  [RUN=<run id>] [ARGS='--rules rules.json']
	@$(TRAINYARD) rules "runs/$(RUN)" $(ARGS)

profile: $(RUN_READY) ## write the time profile of a run's training, from its statistics  [RUN=<run id>]
	@$(TRAINYARD) profile "runs/$(RUN)"

up: $(RUN_READY) ## start the engine and Airflow and leave them running
	@$(TRAINYARD) up

down: ## stop what 'make up' started
	@if [ -x $(PY) ]; then $(TRAINYARD) down; else echo "nothing was running"; fi

engine: $(RUN_READY) ## run the engine alone, for any SageMaker client
	@$(TRAINYARD) engine

pages: ## test and build the pages in Airflow's UI (needs Node.js)
	cd plugins/trainyard_airflow/pages/frontend && npm ci --no-audit --no-fund && npm test && npm run build

wheels: ## build the wheels of trainyard and sagemaker-engine into dist/
	@rm -f dist/*.whl
	@test -x $(BUILDER)/bin/pip || $(PYTHON) -m venv $(BUILDER)
	@$(BUILDER)/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist . ./include/sagemaker_engine && ls dist/*.whl

mwaa: wheels ## put plugins.zip and requirements.txt for Amazon MWAA into dist/mwaa/
	@mkdir -p dist/mwaa
	@cd dist && $(PYTHON) -m zipfile -c mwaa/plugins.zip trainyard-*.whl
	@cd dist && printf '/usr/local/airflow/plugins/%s\n' trainyard-*.whl > mwaa/requirements.txt && ls mwaa/*

test: $(COMPILED) ## run the tests  [ARGS='-k shard']
	$(PY) -m pytest -m "not slow" $(BESIDE) $(ARGS)

test-quick: $(DEV_READY) ## run the tests that start no engine, Airflow or training: the edit loop  [ARGS='-k shard']
	$(PY) -m pytest -m "not slow and not engine and not dag_run and not torch" $(PURE) $(ARGS)

test-engine: $(DEV_READY) ## run the engine's own tests  [ARGS='-k s3']
	$(PY) -m pytest -m "not slow" -n 2 --dist loadfile $(ENGINE_TESTS) $(ARGS)

test-product: $(COMPILED) ## run the tests without the engine's own  [ARGS='-k shard']
	$(PY) -m pytest -m "not slow" $(BESIDE) $(ENGINE_TESTS:%=--ignore=%) $(ARGS)

test-all: $(COMPILED) ## run all tests, including the slow ones, on every engine image
	$(PY) -m pytest -o faulthandler_timeout=5000 $(BESIDE) $(ARGS)

test-resilience: $(DEV_READY) ## kill every process at random moments, all seeds
	TRAINYARD_RESILIENCE_SEEDS=all $(PY) -m pytest tests/resilience tests/plugins/test_failing_services.py tests/stack/test_stops.py $(ARGS)

check: $(DEV_READY) ## check format, lint, types, import floors, dependencies, prose
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/deptry .
	$(VENV)/bin/deptry --config include/sagemaker_engine/pyproject.toml include/sagemaker_engine images
	$(PY) .ci/prose.py

format: $(DEV_READY) ## format the sources
	$(VENV)/bin/ruff format $(SOURCES)

docs: $(DEV_READY) ## build the documentation site into dist/docs; a dead link fails
	$(PY) -m reference.params_page > docs/params.md
	$(VENV)/bin/sphinx-build -q -W --keep-going -c docs/site . dist/docs

bench: $(DEV_READY) ## measure sharding, the engine, its searches and a run's overhead
	@for name in sharding engine tuning overhead; do echo "== $$name"; $(PY) benchmarks/$$name.py || exit 1; done

images: $(RUN_READY) ## build the engine images in advance: TensorFlow, XGBoost, ...  [NAME=tensorflow]
	@$(TRAINYARD) images $(NAME) $(ARGS)

lock: $(DEV_READY) ## compile the pinned requirements from pyproject.toml
	$(PY) -P include/trainyard/stack/lock.py

clean: down ## remove .venv, the stack's state and the reports
	rm -rf $(VENV) .trainyard .trainyard-chaos runs dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(RUN_READY): requirements.txt
	@$(PYTHON) include/trainyard/stack/bootstrap.py requirements.txt
	@touch $@

$(DEV_READY): requirements.txt requirements-dev.txt
	@$(PYTHON) include/trainyard/stack/bootstrap.py requirements.txt requirements-dev.txt
	@touch $(RUN_READY) $@

# Bytecode of everything that tests import. Without it, each of the test processes would compile the same modules.
# Errors of the collection are left to the tests, which report them.
$(COMPILED): $(DEV_READY)
	@$(PY) -m pytest --collect-only -q >/dev/null || true
	@touch $@
