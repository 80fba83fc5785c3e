# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
LOCKED := spark postgres mysql ogr delta iceberg kafka java connect plot pipelines
BENCHES := stream_table plans plan_floors shapes grids memory latency equality ranges incremental cache lookups ordered shares routing observing stream_stream stream_latency out_of_order promise sliding fences fence_state trip_state settings

.PHONY: env demo test test-slow test-fast test-kernels test-kills test-cluster lab test-faults test-matrix check bench bench-quick peers docs servers lock clean

env: .venv/.made

.venv/.made: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "rivermouth needs Python 3.11 or newer on the PATH"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: env
	$(BIN)/rivermouth demo

# a process more than cores, since tests that kill queries mostly wait; then the short tests on several
# hosts, which are there once, and the batch tests again, through Spark Connect
test: env check
	$(PYTEST) -q -n 3 --dist loadfile --no-loadscope-reorder -m "not slow" --ignore=tests/cluster --durations=25 --durations-min=2
	$(PYTEST) -q tests/cluster
	RIVERMOUTH_TEST_REMOTE="local[2]" $(PYTEST) -q tests/spark/test_join_table.py tests/spark/test_register.py -k "batch or test_register"

# what `test` leaves out: more kinds of queries killed, the demo, notebooks, long histories
test-slow: env
	$(PYTEST) -q -n 3 --dist loadfile -m slow --ignore=tests/cluster --durations=25 --durations-min=2

# the loop while writing code: no servers, fewer examples, a few Spark tests of each operator
test-fast: env
	RIVERMOUTH_HYPOTHESIS=fast $(PYTEST) -q -m "quick or not (spark or server or slow)"

test-kernels: env
	$(PYTEST) -q tests/kernels tests/spec src/rivermouth/kernels src/rivermouth/spec src/rivermouth/errors.py

# queries killed with -9 twenty times each, where `test` kills them once
test-kills: env
	RIVERMOUTH_KILLS=20 $(PYTEST) -q tests -k killed

# every operator on several hosts, made of namespaces on this machine; needs Linux and root
test-cluster: env
	$(PYTEST) --durations=10 -m "cluster or not cluster" tests/cluster

# a shell on the driver's host of such a cluster; needs Linux and root
lab: env
	$(BIN)/python -m tests.cluster

# queries on several hosts while executors, hosts, links, disks, servers and drivers fail, seeded:
# make test-faults FAULTS=100 SEED=7
test-faults: env
	$(BIN)/python -m tests.faults --faults $(or $(FAULTS),20) --seed $(or $(SEED),1)

# the Spark tests on every version of Spark, a file at a time; the table goes to docs/versions.md
test-matrix: env
	$(BIN)/python -m tests.matrix --keep

check: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: env
	for name in $(BENCHES); do $(BIN)/python -m benchmarks $$name || exit 1; done
	$(BIN)/python -m benchmarks latency --table keys
	$(BIN)/python -m benchmarks range_latency
	for name in recall traffic; do $(BIN)/python -m benchmarks workloads $$name || exit 1; done
	for name in routing_hosts workload_hosts large_tables; do $(BIN)/python -m benchmarks $$name || exit 1; done
	for part in accuracy latency scale; do $(BIN)/python -m benchmarks paper_b $$part || exit 1; done
	$(BIN)/python -m benchmarks report

# the same work by us and by others, each in an environment of its own; the table is in docs/peers.md
PEERS := stream_table equality ranges incremental sliding near_shapes spatialbench nexmark
peers: env
	for name in $(PEERS); do $(BIN)/python -m benchmarks $$name || exit 1; done
	$(BIN)/python -m benchmarks stream_stream beside
	$(BIN)/python -m benchmarks report

bench-quick: env
	for name in $(BENCHES); do $(BIN)/python -m benchmarks $$name --quick || exit 1; done
	$(BIN)/python -m benchmarks latency --table keys --quick
	for name in recall traffic; do $(BIN)/python -m benchmarks workloads $$name --quick || exit 1; done
	for part in accuracy latency scale; do $(BIN)/python -m benchmarks paper_b $$part --quick || exit 1; done

docs: env
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --site-dir site

servers:
	@./.ci/servers

# all extras but `client`, whose package is `spark`'s once more
lock:
	uv pip compile --quiet --universal --generate-hashes --python-version 3.11 $(LOCKED:%=--extra %) --group dev \
		--no-emit-index-url --no-header pyproject.toml -o requirements.lock

clean:
	rm -rf .venv .venvs site demo-output .cache
