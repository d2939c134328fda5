# kafkalite. `make help` says what there is. Nothing here needs root but the Debian packages that `make test` names.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 9092
PORT_07 ?= 9072
CONSOLE ?= 127.0.0.1:8090
DATA ?= $(CURDIR)/data
PYTEST_ARGS ?=
PACKAGE ?=
JOBS ?= 2
# Tests wait for half of their time, so two at once keep a core busy; each may start brokers and a JVM, so no more than 8.
TEST_JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? 2 * n : 8)))
# Files to workers; tests marked own_process first. A worker that dies ends the run, which names the test it died of.
SPREAD = -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# Tests start hundreds of programs, which would each compile what they import.
export PYTHONDONTWRITEBYTECODE :=
BENCH_OUT ?= build/bench/head_to_head
BENCH_ARGS ?=
PIPELINE_ARGS ?=
FAMILY ?= power
SEEDS ?= 1-5
STATES ?= 600
ACKS ?= 50000
KILLS ?= 200
ENGINE ?= native
PLACE ?= local
FAULTS ?= 200
BROKERS ?= kafkalite
CONTROLLERS ?= 1
MINUTES ?= 30
SOAK ?= build/soak
BUILT ?= debug
OLD ?= 793dff2
ARCHS ?=
PORTS ?=
VERSION ?=
PACKAGE_LIST ?=
SIGN_KEY ?=

SOURCES := $(wildcard ext/c/* ext/kafkalite/*.pxd ext/kafkalite/_native/*/*.pyx ext/kafkalite/_native/*/*.pxd)
BUILD := $(BIN)/python setup.py -q build_ext --inplace -j $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help run build build-debug build-asan pipeline unit test test-all test-browser pictures test-spark test-debug test-asan prove directories packages soak bench bench-packages bench-parts bench-spark clients cluster lint format generated docs site warnings build-check wheels release clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 16

# Like `kafkalite start`, this opens Kafka 0.7's port too, and it also serves the console. PORT_07= and CONSOLE= (empty)
# turn these off.
comma := ,
run: $(VENV)/.built  ## start a broker on 127.0.0.1:9092, data in ./data (HOST=, PORT=, PORT_07=, DATA=, CONSOLE= change that)
	@$(if $(CONSOLE),echo "console: http://$(CONSOLE)",:)
	@exec $(BIN)/kafkalite start --data-dir $(DATA) \
		--listeners kafka://$(HOST):$(PORT)$(if $(PORT_07),$(comma)kafka07://$(HOST):$(PORT_07)) \
		$(if $(CONSOLE),--console $(CONSOLE))

build: $(VENV)/.built  ## build the native modules in place

# The tree is installed in place, so that `kafkalite` runs from it; extensions are rebuilt when a source changed.
$(VENV)/.built: $(VENV)/.installed $(SOURCES) setup.py
	@echo "building the native modules"
	@$(BUILD)
	@touch $@

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@$(BIN)/python tools/pip_install.py --build-requirements
	@$(BIN)/python tools/pip_install.py --editable
	@touch $@

$(VENV)/.tested: pyproject.toml | $(VENV)/.built
	@$(BIN)/python tools/pip_install.py --extra dev
	@touch $@

build/test-tools/.installed: pyproject.toml | $(VENV)/.built
	@$(BIN)/python tools/pip_install.py --target build/test-tools test_tools
	@touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.built
	@$(BIN)/python tools/pip_install.py --extra bench
	@touch $@

$(BIN)/python:
	@$(PYTHON) tools/make_venv.py $(VENV)

# PySpark is an archive of 450 MB, so `make test` does without.
$(VENV)/.spark: pyproject.toml | $(VENV)/.built
	@$(BIN)/python tools/pip_install.py --extra spark
	@touch $@

# Playwright carries Node, 165 MB, and chromium is as much, so `make test` does without.
$(VENV)/.browser: pyproject.toml | $(VENV)/.built
	@$(BIN)/python tools/pip_install.py --extra browser
	@touch $@

$(VENV)/.pipeline: pyproject.toml | $(VENV)/.built
	@$(BIN)/python tools/pip_install.py --extra pipeline
	@touch $@

pipeline: $(VENV)/.built $(VENV)/.pipeline  ## a data pipeline on Spark, end to end, and its report (needs Java 17)
	@$(BIN)/python -m kafkalite.examples.pipeline $(PIPELINE_ARGS)

unit: $(VENV)/.built $(VENV)/.tested  ## one package's unit tests, without root or a JDK (PACKAGE=log; all packages without it)
	$(BIN)/python -m pytest -m "not slow and not spark" tests/unit/$(PACKAGE) $(PYTEST_ARGS)

packages:  ## install the programs that foreign-client tests run (kcat, librdkafka, Java, Maven, Node, strace)
	@sh tools/test_packages.sh

test: $(VENV)/.built $(VENV)/.tested build/test-tools/.installed packages  ## a sample of every family of tests
	$(BIN)/python -m pytest $(SPREAD) --hypothesis-profile sample -m "not slow and not spark" $(PYTEST_ARGS)

test-browser: $(VENV)/.built $(VENV)/.tested $(VENV)/.browser  ## the console and the site in Debian's chromium
	@sh tools/test_packages.sh chromium
	$(BIN)/python -m pytest tests/integration/test_console*in_browser.py tests/integration/test_site_in_browser.py $(PYTEST_ARGS)

pictures: $(VENV)/.built $(VENV)/.tested $(VENV)/.browser  ## the console's pictures in docs, anew
	@sh tools/test_packages.sh chromium
	$(BIN)/python -m tests.kit.processes.console_pictures docs/console

test-all: $(VENV)/.built $(VENV)/.tested $(VENV)/.spark build/test-tools/.installed packages  ## the slow tests and Spark's too, at a release's counts
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-spark: $(VENV)/.built $(VENV)/.tested $(VENV)/.spark packages  ## the tests that need PySpark, which is large, but the slow ones
	$(BIN)/python -m pytest -m "spark and not slow" $(PYTEST_ARGS)

# Both stand beside the release build, which they leave alone.
DEBUG_BUILD = KAFKALITE_DEBUG=1 $(BIN)/python setup.py -q build_ext -j $(JOBS)
DEBUG_TESTS ?= tests/unit tests/parity tests/log_damage tests/integration tests/reliability
ASAN_TESTS ?= tests/unit tests/parity tests/log_damage
# The sanitiser wraps the throwing of C++ exceptions, which it has to find when it begins: pyarrow and others throw.
ASAN := $(shell gcc -print-file-name=libasan.so 2>/dev/null):$(shell gcc -print-file-name=libstdc++.so.6 2>/dev/null)

build-debug: $(VENV)/.tested  ## the debug build, in build/debug
	$(DEBUG_BUILD) --build-lib build/debug --build-temp build/temp-debug

build-asan: $(VENV)/.tested  ## the debug build with the address sanitiser, in build/asan
	KAFKALITE_SANITIZE=address $(DEBUG_BUILD) --build-lib build/asan --build-temp build/temp-asan

test-debug: build-debug  ## the tests on the debug build, whose invariants abort where they are broken
	KAFKALITE_NATIVE_PATH=$(CURDIR)/build/debug/kafkalite/_native \
	$(BIN)/python -m pytest $(SPREAD) $(DEBUG_TESTS) -m "not slow and not spark" $(PYTEST_ARGS)

# The sanitiser has to be the first library of every process of ours; tests/kit/harness/sanitiser.py keeps it from others'.
ASAN_PYTEST = KAFKALITE_NATIVE_PATH=$(CURDIR)/build/asan/kafkalite/_native LD_PRELOAD=$(ASAN) PYTHONMALLOC=malloc \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:handle_abort=0:handle_sigbus=0 \
	$(BIN)/python -m pytest $(SPREAD) -m "not slow and not spark"

test-asan: build-asan  ## the tests of what runs in our own processes, on the debug build with the address sanitiser
	$(ASAN_PYTEST) $(ASAN_TESTS) $(PYTEST_ARGS)

bench: $(VENV)/.built $(VENV)/.bench bench-packages  ## beside RabbitMQ, ActiveMQ, Apache Kafka, NATS, Redis (BENCH_ARGS=--quick)
	@$(BIN)/kafkalite bench --out $(BENCH_OUT) $(BENCH_ARGS)

bench-packages:  ## install the systems that `make bench` compares; starts no service
	@sh tools/bench_packages.sh

bench-parts: $(VENV)/.built $(VENV)/.tested packages  ## micro benchmarks, then kafkalite beside the null broker
	$(BIN)/python -m pytest benchmarks/micro --benchmark-enable --benchmark-only -o python_files='bench_*.py'
	$(BIN)/python -m benchmarks.path

bench-spark: $(VENV)/.built $(VENV)/.bench $(VENV)/.spark packages  ## beside Spark's own connector, in Spark (BENCH_ARGS="--rows 1000000")
	$(BIN)/python -m benchmarks.spark $(BENCH_ARGS)

# Goes on where an earlier run of the same commit was stopped.
prove: $(VENV)/.built $(VENV)/.tested  ## many seeds of one family of tests, counted by commit in docs/proof.md (FAMILY=power SEEDS=1-5 STATES=600, FAMILY=kills KILLS=200, FAMILY=loads ENGINE=native PLACE=local KILLS=200, FAMILY=cluster FAULTS=200 BROKERS=kafkalite CONTROLLERS=1 MINUTES=30, FAMILY=fuzz MINUTES=30 BUILT=debug, FAMILY=failures SEEDS=0-9999, FAMILY=upgrades)
	@case "$(FAMILY)" in \
	power) $(BIN)/python -m tests.power prove --seeds $(SEEDS) --states $(STATES) --acks $(ACKS) --jobs $(JOBS) ;; \
	fuzz) $(BIN)/python -m tests.fuzz --minutes $(MINUTES) --build $(BUILT) ;; \
	kills) $(BIN)/python -m tests.kills --kills $(KILLS) ;; \
	loads) $(BIN)/python -m tests.kills.loads --engine $(ENGINE) --place $(PLACE) --kills $(KILLS) ;; \
	cluster) $(BIN)/python -m tests.cluster --faults $(FAULTS) --brokers $(BROKERS) --controllers $(CONTROLLERS) --minutes $(MINUTES) ;; \
	failures) $(BIN)/python -m tests.simulation.failures $(SEEDS) --count ;; \
	upgrades) $(BIN)/python -m tests.directories.upgrade $(OLD) ;; \
	*) echo "FAMILY=$(FAMILY): there are power, kills, loads, cluster, fuzz, failures and upgrades" >&2; exit 2 ;; \
	esac

# Continues where it was stopped: what SOAK holds decides.
soak: $(VENV)/.built $(VENV)/.tested  ## an hour of varied load on one broker and its console, and how fast anything grew (MINUTES=60, SOAK=build/soak)
	@$(BIN)/python -m benchmarks.soak --folder $(SOAK) --minutes $(if $(filter command% environment%,$(origin MINUTES)),$(MINUTES),60)

cluster: $(VENV)/.built $(VENV)/.tested packages  ## a controller of Apache Kafka's and three brokers on 127.0.0.1, until Ctrl-C (PORTS=9092,9093,9094)
	@$(BIN)/python -m tests.kit.processes.kafka_cluster --ports "$(PORTS)"

clients: $(VENV)/.built $(VENV)/.tested packages  ## every client of the matrix, slow ones too, and docs/clients.md from what happened
	KAFKALITE_COMPAT_RECORD=tests/compat/matrix.json $(BIN)/python -m pytest -m capability tests/compat $(PYTEST_ARGS); \
	status=$$?; $(BIN)/python -m tests.compat.matrix; exit $$status

# cython-lint looks for pycodestyle on PATH.
lint: $(VENV)/.built $(VENV)/.tested  ## style, types, layers, spelling, workflows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint ext
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/zizmor --offline --quiet .github

format: $(VENV)/.tested  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generated: $(VENV)/.tested  ## write again what tools write: messages, error codes
	$(BIN)/python -m tools.generate_messages
	$(BIN)/python -m tools.generate_error_codes

docs: $(VENV)/.built  ## regenerate docs/configuration.md, docs/clients.md's table and the README's table of measurements
	$(BIN)/python -m tools.generate_config_docs
	$(BIN)/python -m tools.measured_table
	$(BIN)/python -m tests.compat.matrix

site: $(VENV)/.tested  ## the documentation as a website, in build/site/VERSION
	@$(BIN)/python -m tools.site.build

warnings: $(VENV)/.tested  ## compile with -Wconversion and -Wsign-compare and show what is ours
	$(BIN)/python -m tools.native_warnings

directories: $(VENV)/.tested  ## a data directory of an older commit opens here, and one of ours there (OLD=COMMIT)
	$(BIN)/python -m tests.directories $(OLD)

wheels: $(BIN)/python  ## wheels in dist/ for each CPython from 3.11 on that is found (ARCHS=x86_64,aarch64)
	@$(BIN)/python -m tools.wheels --jobs $(JOBS) $(if $(ARCHS),--arch $(ARCHS))

release: $(VENV)/.tested  ## every artefact of a release, in build/release/VERSION (VERSION=0.2.0; ARCHS=x86_64,aarch64, PACKAGE_LIST=FILE, SIGN_KEY=KEY)
	@$(BIN)/python -m tools.release.build "$(VERSION)" --jobs $(JOBS) $(if $(ARCHS),--arch $(ARCHS)) \
		$(if $(PACKAGE_LIST),--packages $(PACKAGE_LIST)) $(if $(SIGN_KEY),--sign-key "$(SIGN_KEY)")

build-check: $(VENV)/.tested  ## build sdist and wheel, install the wheel elsewhere, run a broker from it
	$(BIN)/python -m tools.build_check

clean:  ## remove what was built, not the data
	rm -rf build dist .venv *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find kafkalite -name '*.so' -delete
