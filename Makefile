# Every target makes what it needs from a bare clone: the environment in .venv, and Java for the engines. `make help` lists them.
BIN := .venv/bin
NEWEST := .venv-newest/bin
WITH_JAVA = home=$$(.ci/java.sh) && export JAVA_HOME="$$home" &&
# Flink, if there is a release for this Python; checked when a recipe runs, so after the environment is made.
FLINK = $(shell $(BIN)/python -c 'import importlib.util as u; print("--engine flink" * bool(u.find_spec("pyflink")))')
IN_PROCESS := --engine local --engine simulated-spark --engine simulated-flink
ENGINES = $(IN_PROCESS) --engine spark $(FLINK)
# Two workers: one starts Spark, the other Flink, and both share the rest. One that ends is replaced, once in a run.
TWO_AT_ONCE := -n 2 --max-worker-restart=1
INPUTS := pyproject.toml .ci/environment.sh requirements/build.lock requirements/main.lock requirements/newest.lock
export PYTHON
# Engines start many Python workers: without bytecode files each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
# Tests run many plans once each, too briefly for the JVM's second compiler and its concurrent collector to pay off, and
# start a hundred JVMs, whose classes .ci/class_archive.py has kept. Spark's and Flink's starters read these.
# With the first compiler only, the JVM would keep 48 MB of compiled code, less than an hour of tests needs.
BRIEF := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m
# (Options end at blanks: a folder with one in its name does without.)
kept = $(if $(word 2,$(CURDIR)),,-Xlog:cds=off -Xlog:cds+dynamic=off -XX:SharedArchiveFile=$(CURDIR)/$(1))
test test-main test-rest test-full test-exhaustive: export SPARK_SUBMIT_OPTS = $(BRIEF) $(call kept,.venv/spark.jsa)
test test-main test-rest test-full test-exhaustive: export JVM_ARGS = $(BRIEF) $(call kept,.venv/flink.jsa)
test-newest: export SPARK_SUBMIT_OPTS = $(BRIEF) $(call kept,.venv-newest/spark.jsa)
.venv/spark.jsa .venv/flink.jsa .venv-newest/spark.jsa: export SPARK_SUBMIT_OPTS = $(BRIEF)
.venv/spark.jsa .venv/flink.jsa .venv-newest/spark.jsa: export JVM_ARGS = $(BRIEF)

.PHONY: help demo notebooks test test-fast test-main test-rest test-full test-exhaustive test-newest test-frames test-cluster test-cluster-full lint map docs bench bench-full lock wheel jar dist release-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile
	@echo "PYTHON=... names the Python (3.11 to 3.14) to make the environments with."

demo: .venv/ready ## Correlate a year of flights with bad weather, as a Spark stream, as a Spark batch and locally
	@$(WITH_JAVA) $(BIN)/whenabouts demo

test: lint test-main ## Lint, types, doctests, unit tests, all laws in process, hosting laws on Spark and Flink: a quarter of an hour

test-main: .venv/ready .venv/spark.jsa .venv/flink.jsa ## The same without lint
	@$(WITH_JAVA) $(BIN)/pytest $(ENGINES) -m "not full and not exhaustive and not cluster" $(TWO_AT_ONCE) --durations=30

test-fast: .venv/ready ## What needs no engine and no JVM: two to three minutes
	@$(BIN)/pytest $(IN_PROCESS) -m "not slow and not full and not exhaustive and not cluster" \
		--ignore=tests/spark --ignore=tests/flink --ignore=tests/faults --ignore=tests/cluster \
		--hypothesis-profile=fast $(TWO_AT_ONCE)

test-full: test test-rest ## All laws on all engines, longer kills, more random schedules: an hour

test-rest: .venv/ready .venv/spark.jsa .venv/flink.jsa ## What `make test-full` adds to `make test`; OPTIONS=--laws-take-turns: laws of the core on Spark or on Flink
	@$(WITH_JAVA) $(BIN)/pytest $(ENGINES) $(OPTIONS) -m "full and not exhaustive and not cluster" $(TWO_AT_ONCE) --durations=30

test-exhaustive: lint .venv/spark.jsa .venv/flink.jsa ## Every case of every law on every engine, and many more random ones: hours
	@$(WITH_JAVA) WHENABOUTS_FULL=1 $(BIN)/pytest $(ENGINES) -m "not cluster" -o faulthandler_timeout=7200 $(TWO_AT_ONCE) --durations=30

test-newest: .venv-newest/ready .venv-newest/spark.jsa ## The Spark adapter, and the laws of hosting, on the newest Spark, in .venv-newest
	@$(WITH_JAVA) $(NEWEST)/pytest --engine spark -m "not full and not exhaustive" $(TWO_AT_ONCE) --durations=10 \
		tests/spark conformance/whenabouts/conformance

test-frames: .venv-frames-oldest/ready .venv-frames-newest/ready ## Dataframes of the oldest and newest pandas, Polars, DuckDB and pyarrow
	@for age in oldest newest; do .venv-frames-$$age/bin/python -m pytest -q tests/core/test_frames.py || exit 1; done

test-cluster: .venv/ready ## Kafka to Kafka on clusters of both engines whose workers, leaders and broker are killed (Maven, or Docker)
	@.ci/maven.sh && $(WITH_JAVA) $(BIN)/pytest -m "cluster and not full" $(TWO_AT_ONCE) tests/cluster

test-cluster-full: .venv/ready ## The same with 200,000 rows a side and a minute of silence: half an hour
	@.ci/maven.sh && $(WITH_JAVA) $(BIN)/pytest -m cluster $(TWO_AT_ONCE) tests/cluster

lint: .venv/ready ## Style, types, import contracts, and whether the map of imports is up to date
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@PYTHONPATH=.ci $(BIN)/lint-imports --no-logo
	@$(BIN)/python .ci/package_map.py --check

map: .venv/ready ## Draw docs/packages.svg, the packages and their imports
	@$(BIN)/python .ci/package_map.py

docs: .venv/ready .venv-docs/ready notebooks ## The documentation site, with its search, in build/site: open build/site/index.html
	@$(BIN)/python .ci/site_pages.py
	@.venv-docs/bin/zensical build --strict --clean
	@$(BIN)/python .ci/site_pages.py --finish

bench: .venv/ready .venv-peers/ready ## The quick benchmarks, each beside its peers, and docs/performance.md from the results: under ten minutes
	@$(WITH_JAVA) $(BIN)/python benchmarks/run.py

bench-full: .venv/ready .venv-newest/ready .venv-peers/ready ## All benchmarks, the engines too: hours
	@.ci/maven.sh && $(WITH_JAVA) $(BIN)/python benchmarks/run.py --full

notebooks: .venv/ready ## Run the notebooks of docs/notebooks, with outputs to build/notebooks: under a minute
	@$(BIN)/python .ci/notebooks.py

wheel: .venv/ready ## Build dist/*.whl
	@rm -rf build dist && $(BIN)/python -m build --wheel --no-isolation

dist: .venv/ready .venv-release/ready ## Build dist/*.tar.gz and, from it, dist/*.whl, and check them as a package index does
	@rm -rf build dist && $(BIN)/python -m build --no-isolation && .venv-release/bin/twine check --strict dist/*

release-check: dist ## The same, extras on each Python, doctests from a clean installation, and the bill of materials
	@PATH=$(CURDIR)/.venv-release/bin:$$PATH $(BIN)/python .ci/release_check.py

LOCKED := --extra conformance --extra demo --extra payloads --extra plot --extra spark --extra sql --group dev
COMPILE := uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-header --no-annotate --no-emit-index-url
lock: ## Resolve requirements/*.lock again (needs uv)
	@$(COMPILE) $(LOCKED) --extra flink pyproject.toml requirements/main.in --output-file requirements/main.lock
	@$(COMPILE) $(LOCKED) pyproject.toml requirements/newest.in --output-file requirements/newest.lock
	@for age in oldest newest; do $(COMPILE) --extra conformance pyproject.toml requirements/frames-$$age.in \
		--output-file requirements/frames-$$age.lock || exit 1; done
	@$(COMPILE) requirements/build.in --output-file requirements/build.lock
	@for tool in docs peers release; do $(COMPILE) requirements/$$tool.in --output-file requirements/$$tool.lock || exit 1; done

jar: .venv/ready ## Build the Spark package, a JAR for `spark-submit --packages`, as a Maven repository in dist/repository
	@$(BIN)/python .ci/spark_package.py

clean: ## Remove the environments, caches and build output
	rm -rf .venv .venv-newest .venv-docs .venv-peers .venv-release .venv-frames-* .cache build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find core cli planner spark_plugin flink_plugin conformance tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/ready: $(INPUTS)
	@.ci/environment.sh .venv main
	@touch $@

.venv-newest/ready: $(INPUTS)
	@.ci/environment.sh .venv-newest newest
	@touch $@

.venv/%.jsa: .ci/class_archive.py .venv/ready
	@echo "Keeping the classes of $* for the JVMs of tests ..."
	@$(WITH_JAVA) $(BIN)/python .ci/class_archive.py $* $@ >$@.log 2>&1 || { cat $@.log; echo "Tests do without."; touch $@; }

.venv-newest/%.jsa: .ci/class_archive.py .venv-newest/ready
	@echo "Keeping the classes of $* for the JVMs of tests ..."
	@$(WITH_JAVA) $(NEWEST)/python .ci/class_archive.py $* $@ >$@.log 2>&1 || { cat $@.log; echo "Tests do without."; touch $@; }

.venv-frames-%/ready: $(INPUTS) requirements/frames-%.lock
	@.ci/environment.sh .venv-frames-$* frames-$*
	@touch $@

.venv-docs/ready .venv-peers/ready .venv-release/ready: .venv-%/ready: .venv/ready requirements/%.lock
	@$(BIN)/python -m venv --clear .venv-$*
	@.venv-$*/bin/python -m pip --disable-pip-version-check install --quiet --no-compile --require-hashes --no-deps -r requirements/$*.lock
	@touch $@
