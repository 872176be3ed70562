# Everything a developer does. Each target does the set-up it needs first; a second time that is free.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SOURCES := laminar_core jobs resources sensors orchestration verification examples tests benchmarks scripts typings

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-kafka demo-ops test test-large test-all test-jvm test-oldest hosts soak check docs audit bench bench-page campaign kill-campaign lock ui servers peers s3-server clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## build .venv from the lock files (PYTHON=python3.12 names another Python)

# A virtual environment cannot be moved: one that was made elsewhere is made again.
ifneq ($(file <$(READY)),$(CURDIR))
.PHONY: $(READY)
endif
$(READY): requirements.lock requirements-jvm.lock pyproject.toml scripts/setup
	@scripts/setup "$(PYTHON)"

demo: $(READY)  ## payments per merchant, killed three times, compared with a Spark batch query
	@$(BIN)/python -m examples.exactly_once

demo-ops: $(READY)  ## payments under dagster dev: slow, killed, damaged; sensors and schedules see to it (KEEP=1: Dagster stays open)
	@$(BIN)/python -m examples.operations $(if $(KEEP),--keep)

demo-kafka: $(READY)  ## payments from a real Kafka broker; broker, workers and driver are killed (needs make servers)
	@$(BIN)/python -m examples.kafka_to_kafka

test: $(READY)  ## the test suite, but for the large tests, in up to five processes (TESTS="-n0 tests/cli -x": a part, in one)
	@$(BIN)/python -m pytest $(SPREAD) $(TESTS)

test-large: $(READY)  ## the large tests: the documents' commands word for word, demos, brokers, kills in Spark, wheels
	@$(BIN)/python -m pytest $(SPREAD) --large $(TESTS) || test $$? -eq 5 -a -n "$(TESTS)"

test-all: $(READY)  ## the large tests, and every case of the tests that `make test` samples
	@$(BIN)/python -m pytest $(SPREAD) --all-cases $(TESTS)

test-jvm: $(READY)  ## tests of Spark with the Java from PyPI instead of the machine's (TESTS=tests: all that start it)
	@SPREAD="$(SPREAD)" scripts/test-jvm $(TESTS)

test-oldest: $(READY)  ## tests of what depends on Spark, Arrow, numpy and Dagster, with the oldest packages that are allowed
	@SPREAD="$(SPREAD)" scripts/test-oldest $(TESTS)

# tests/conftest.py says how many processes there are. One that has nothing left to do takes over half of
# what another one still has.
SPREAD := --numprocesses auto --dist worksteal

servers: $(READY)  ## get the servers that tests run against: Kafka and a schema registry (need Maven), versitygw (needs Go), Azurite (needs npm), PostgreSQL
	@scripts/servers; status=$$?; $(BIN)/python -m verification.servers.archive_making; exit $$status

peers: $(READY)  ## get what benchmarks compare with: Spark, Flink, Polars, DuckDB, DataFusion, Bytewax (needs Maven)
	@scripts/peers

s3-server: build/tools/versitygw  ## build a second S3 server that the tests use if it is there (needs Go)

VERSITYGW := github.com/versity/versitygw/cmd/versitygw@v1.8.0
build/tools/versitygw:
	@GOGC=off GOBIN="$(CURDIR)/build/tools" go install $(VERSITYGW)  # Takes 1.5 GB; with collections it takes 1.4 times as long.

hosts: $(READY)  ## a stream over several hosts on this machine: links cut, hosts frozen, power lost (needs root; ALL=1: all of it)
	@LAMINAR_HOSTS=$${LAMINAR_HOSTS:-required} $(BIN)/python -m pytest --numprocesses 0 -p no:cacheprovider \
		tests/hosts tests/verification/hosts $(if $(ALL),--all-cases) $(TESTS)

soak: $(READY)  ## random faults of hosts and links (needs root; MINUTES=60 SEED=1), as JSON
	@$(BIN)/python -m verification.hosts.soak --minutes $(MINUTES) --seed $(SEED)

CHECKS := style types types-macos types-of-tests imports house docs licences advisories
.PHONY: $(addprefix check-,$(CHECKS))
$(addprefix check-,$(CHECKS)): $(READY)

check: $(READY)  ## formatting, lint, types, import contracts, house rules, documentation, licences, advisories
	@$(MAKE) --no-print-directory --keep-going --jobs 2 --output-sync $(addprefix check-,$(CHECKS))

check-style:
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)

check-types:
	@$(BIN)/pyright

check-types-macos:
	@$(BIN)/pyright --pythonplatform Darwin --pythonversion 3.11

check-types-of-tests:
	@$(BIN)/pyright --project tests

check-imports:
	@$(BIN)/lint-imports

check-house:
	@$(BIN)/python -m pytest -q tests/test_tidy.py tests/test_imports.py tests/test_printing.py

check-docs:
	@$(BUILD_DOCS)

check-licences:
	@$(BIN)/pip-licenses >/dev/null

check-advisories:
	@$(BIN)/python scripts/audit.py

docs: $(READY)  ## the documentation site: build/docs/index.html
	@$(BUILD_DOCS)

BUILD_DOCS = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

audit: $(READY)  ## known vulnerabilities of what is locked, looked up now
	@$(BIN)/python scripts/audit.py --now

bench: $(READY)  ## all benchmarks, into benchmarks/results (NAMES="formats rows": a part)
	@$(BIN)/laminar bench $(NAMES) --save benchmarks/results

bench-page: $(READY)  ## write the figures of docs/benchmarks.md from benchmarks/results
	@$(BIN)/python -m benchmarks.page

CAMPAIGNS := test-all campaign-seeds campaign-worlds campaign-corruptions campaign-forgeries campaign-messages campaign-brokers campaign-kafka-kills kill-campaign
.PHONY: $(filter-out test-all,$(CAMPAIGNS))
SEEDS ?= 20000
WORLDS ?= all
CORRUPTIONS ?= 10000
FORGERIES ?= 1000
MESSAGES ?= 5000
CASES ?= 200
KILLS ?= 100
MINUTES ?= 60
SEED ?= 1

campaign: $(READY)  ## all long campaigns, each to its end (SEED=1; their sizes are in docs/testing.md)
	@$(MAKE) --no-print-directory --keep-going $(CAMPAIGNS)

campaign-seeds: $(READY)
	@$(BIN)/laminar simulate --seeds $(SEEDS) --from $(SEED)

campaign-worlds: $(READY)
	@$(BIN)/python -m verification worlds $(WORLDS)

campaign-corruptions: $(READY)
	@$(BIN)/python -m verification corruptions $(CORRUPTIONS) --from $(SEED)

campaign-forgeries: $(READY)
	@$(BIN)/python -m verification forgeries $(FORGERIES) --from $(SEED)

campaign-messages: $(READY)
	@$(BIN)/python -m verification messages $(MESSAGES) --from $(SEED)

campaign-brokers: $(READY)
	@$(BIN)/python -m verification brokers --cases $(CASES) --seed $(SEED)

campaign-kafka-kills: $(READY)
	@$(BIN)/python -m verification kills --cases $(KILLS) --seed $(SEED)

kill-campaign: $(READY)  ## real processes of a stream, killed and stopped in every phase (MINUTES=60 SEED=1)
	@$(BIN)/python -m tests.spark.kill_campaign --minutes $(MINUTES) --seed $(SEED)

ui: $(READY)  ## Dagster's UI and daemon on http://localhost:3000
	@$(BIN)/dagster dev

lock: $(READY)  ## resolve the dependencies of pyproject.toml anew
	@$(BIN)/uv pip compile pyproject.toml --extra dev $(LOCK_OPTIONS) --output-file requirements.lock
	@$(BIN)/python -c "$(PRINT_JVM_EXTRA)" | $(BIN)/uv pip compile - $(LOCK_OPTIONS) --output-file requirements-jvm.lock
	@$(BIN)/uv pip compile pyproject.toml $(OLDEST) $(LOCK_OPTIONS) --output-file requirements-oldest.lock

# The lower bounds themselves, and below them what was newest when they were locked.
OLDEST := --resolution lowest-direct --extra azure --extra dagster --extra jvm --extra kafka --extra kafka-avro --extra kafka-transaction --extra kubernetes --extra metrics --extra rocksdb --extra s3 --extra test
LOCK_OPTIONS := --quiet --upgrade --generate-hashes --no-emit-index-url --no-header --python-version 3.11
PRINT_JVM_EXTRA := import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['jvm'], sep='\n')

clean:  ## remove what was built, not the virtual environment
	rm -rf build .pytest_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
