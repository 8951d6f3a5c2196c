# Two commands for newcomers: `make demo` and `make test`. Both get what is missing first.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CARGO_TARGET_DIR ?= $(HOME)/.cache/tidewire/target
CACHE   := $(HOME)/.cache/tidewire
PYTHON  := $(CACHE)/venv/bin/python
DEBUG   := $(CARGO_TARGET_DIR)/debug/tidewire
RELEASE := $(CARGO_TARGET_DIR)/release/tidewire

.PHONY: debezium-readers registry-compare registry-serdes kafka-faults help demo test unit bench bench-quick bench-kafka bench-delta azure readers cases kill sim fuzz fuzz-short debezium-compare debezium-takeover debezium-topics audit docs lint build release tools python kafka test-pg14 test-pg16 test-pg17 test-pg18 cases-pg14 cases-pg16 cases-pg17 cases-pg18 clean

help: ## this list
	@grep -hE '^[a-z0-9 -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

tools: ## gets what is missing: a C compiler, PostgreSQL, Rust
	@testbed/install.sh

python: ## gets the readers that check the copies (DuckDB, polars, deltalake) into ~/.cache/tidewire/venv
	@testbed/python.sh

build: tools ## debug build, with the example that the bank of faults delivers with
	cargo build --quiet -p tidewire-cli --bins --example redeliver

release: tools ## release build
	cargo build --release -p tidewire-cli

demo: release ## a million rows under load, copied to Delta tables and proved equal
	$(RELEASE) demo $(DEMO)

test: tools python kafka ## all tests
	testbed/test.sh

kafka: tools ## gets Apache Kafka, which tests run as a private broker, into ~/.cache/tidewire (needs Java and Maven)
	@testbed/kafka.sh > /dev/null

unit: tools python kafka ## the tests of cargo alone, those of one crate with CRATE=tidewire-flow
	TIDEWIRE_PYTHON=$(PYTHON) cargo test $(if $(CRATE),-p $(CRATE),--workspace)

readers: tools python ## Delta tables read by ClickHouse and Spark, too (needs Java and Maven)
	testbed/python.sh all
	TIDEWIRE_READERS="duckdb polars deltalake chdb" cargo test -p tidewire-delta --test lake -- random types server schemas keyless views mapping buckets shared rewrite
	SPARK_JARS=$(CACHE)/spark-jars TIDEWIRE_READERS=spark cargo test -p tidewire-delta --test lake -- --test-threads 1 types server retyped views feed mapping buckets rows_of_after

azure: tools python ## a lake in a server of Azure's protocol (azurite, from npm)
	testbed/python.sh azure
	cargo test -p tidewire-delta --test lake -- --ignored azure

kafka-faults: tools kafka ## three brokers that are killed and restarted under load, and one whose disk is full
	TIDEWIRE_PYTHON=$(PYTHON) cargo test -p tidewire-cli --test kafka_brokers --test kafka_disk -- --ignored
kafka-faults: python

cases: build python ## the bank of faults, end to end (ARGS='--only 062')
	$(PYTHON) testbed/cases.py --binary $(DEBUG) $(ARGS)

kill: release python ## kills the pipeline at random under load, then demands equality (ARGS='--seed 7')
	$(PYTHON) testbed/kill.py --binary $(RELEASE) $(ARGS)

debezium-compare: build python ## every message of a real Debezium 3.6 beside ours, in six modes (needs a JDK; ARGS=--keep keeps the messages)
	cargo build --quiet -p tidewire-envelope --example debezium_rows
	$(PYTHON) testbed/debezium/compare.py --binary $(DEBUG) --decoder $(CARGO_TARGET_DIR)/debug/examples/debezium_rows $(ARGS)

debezium-takeover: build python ## a real Debezium 3.6 is taken over in its slot and handed back (needs a JDK)
	$(PYTHON) testbed/debezium/takeover.py --binary $(DEBUG)

debezium-topics: build python kafka ## topics that a real Debezium 3.6 wrote are applied: JSON, Avro, Protobuf, and rows alone (needs a JDK; ARGS='--only avro,protobuf')
	$(PYTHON) testbed/debezium/topics.py --binary $(DEBUG) $(ARGS)

debezium-readers: build python kafka ## topics in Debezium's JSON are read by Flink's own format and by Debezium's JDBC sink (needs a JDK and Maven; ARGS='--only jdbc')
	$(PYTHON) testbed/debezium/readers/readers.py --binary $(DEBUG) $(ARGS)

registry-compare: build python ## the same requests to `tidewire registry` and to Apicurio's Confluent API (needs Maven; ARGS=--print shows what differs)
	$(PYTHON) testbed/registry/compare.py --binary $(DEBUG) $(ARGS)

registry-serdes: build python kafka ## Confluent's serializers for Java with our registry and our topics in Avro (needs a JDK)
	$(PYTHON) testbed/registry/serdes.py --binary $(DEBUG)

sim: tools ## 10,000 seeds of the simulation (SEEDS=200 FIRST=1)
	TIDEWIRE_SEEDS=$(or $(SEEDS),10000) TIDEWIRE_FIRST_SEED=$(or $(FIRST),1) cargo test --release --quiet -p tidewire-simulation \
	  under_any_faults -- --nocapture

fuzz-short: tools ## bytes from outside: the kept corpus and a fixed number of mutations, in seconds (a part of `make test`; TIMES=100)
	TIDEWIRE_FUZZ_TIMES=$(or $(TIMES),1) cargo test --quiet -p tidewire-fuzz

fuzz: tools ## each fuzz target for MINUTES=5 with libFuzzer (needs cargo-fuzz and a nightly compiler; TARGET=pgoutput for one)
	for target in $(or $(TARGET),$(notdir $(wildcard fuzz/corpus/*))); do mkdir -p fuzz/found/$$target; \
	  cargo +nightly fuzz run --features libfuzzer $$target fuzz/found/$$target fuzz/corpus/$$target -- \
	    -max_total_time=$$(( 60 * $(or $(MINUTES),5) )) -rss_limit_mb=2048 -timeout=10 -max_len=20000; \
	done

audit: ## licences, sources and known faults of the dependencies (needs cargo-deny)
	cargo deny check

bench: release ## today's figures beside those of PostgreSQL's own tools (ARGS='--only stream,shapes --repeats 5')
	$(PYTHON) testbed/bench.py --binary $(RELEASE) $(ARGS)
bench: python

bench-quick: tools python ## instructions a change, part by part, beside the figures that are kept (ARGS=--write keeps new ones)
	testbed/install.sh valgrind
	cargo build --release --quiet -p tidewire-cli --example quick
	$(PYTHON) testbed/bench_quick.py --binary $(CARGO_TARGET_DIR)/release/examples/quick $(ARGS)

bench-kafka: release python kafka ## PostgreSQL to Kafka in Debezium's JSON, beside Debezium's embedded engine (ARGS='--changes 200000 --only latency')
	$(PYTHON) testbed/bench_kafka.py --binary $(RELEASE) $(ARGS)

bench-delta: tools python ## the Delta sink's figures beside deltalake's MERGE (ARGS='--sizes 1000000,5000000')
	cargo build --release --quiet -p tidewire-delta --example bench_delta
	$(PYTHON) testbed/bench_delta.py --binary $(CARGO_TARGET_DIR)/release/examples/bench_delta $(ARGS)

test-pg14 test-pg16 test-pg17 test-pg18: test-pg%: tools python kafka ## the tests against PostgreSQL 14, 16, 17 or 18
	TIDEWIRE_PG_BIN=$$(testbed/postgres.sh $*) testbed/test.sh

cases-pg14 cases-pg16 cases-pg17 cases-pg18: cases-pg%: build python ## the bank of faults against PostgreSQL 14, 16, 17 or 18
	TIDEWIRE_PG_BIN=$$(testbed/postgres.sh $*) $(PYTHON) testbed/cases.py --binary $(DEBUG) $(ARGS)

docs: build ## writes docs/configuration.md from the code
	$(DEBUG) config-reference > docs/configuration.md

lint: tools ## format, clippy without warnings, house rules
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	cargo test --quiet -p tidewire-cli --test floors
	@if command -v cargo-deny > /dev/null; then cargo deny check licenses bans sources; \
	else echo "cargo-deny isn't here: licences and sources of the dependencies are not checked"; fi

clean: ## removes what was built and fetched
	rm -rf $(CARGO_TARGET_DIR) $(CACHE)
