# `make` alone lists the commands. The first of them that needs it sets everything up in .venv.

# The path or the minor version of the Python of .venv; noxfile.py has other versions.
PYTHON ?=
# The minor version of TensorFlow in an environment that nox has made, which needs no set-up.
export TENSORFLOW ?=
READY ?=
BIN ?= .venv/bin
found = $(or $(shell python3 -m wheels.interpreters $(or $(PYTHON),3.13 3.12 3.11)),$(error hostcall needs \
  Python 3.11, 3.12 or 3.13 with its headers, and found none. Install one, or name it: make PYTHON=/path/to/python3.11))
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

INSTALLED := $(if $(READY),,.venv/.hostcall-installed)
BUILT := $(if $(READY),,.venv/.hostcall-built)
# The same for `make demo` alone: no packages of tests, and of hostcall what most programs load.
DEMO_INSTALLED := .venv/.hostcall-demo-installed
DEMO_BUILT := .venv/.hostcall-demo-built
NATIVE := $(shell find CMakeLists.txt cmake csrc tests/cpp third_party) plugin/hostcall/_tf/graph/attributes.py plugin/hostcall/_saved/tokens.py plugin/hostcall/_functions/options.py
CXX_FILES := $(shell find csrc tests/cpp -name '*.cc' -o -name '*.h')

# TensorFlow's notes about the machine, and a line on rounding that only the second one silences.
QUIET := TF_CPP_MIN_LOG_LEVEL=2 TF_ENABLE_ONEDNN_OPTS=0
# For figures: with oneDNN, as people have it. Without, TensorFlow takes the memory of each result from the C library each time.
MEASURED := TF_CPP_MIN_LOG_LEVEL=2
COMPARED = $(if $(RUNS),--runs $(RUNS)) $(if $(ROUNDS),--rounds $(ROUNDS))

# A sanitizer's library has to be the first of the process, and needs g++'s C++ library beside it.
preload = LD_PRELOAD="$$($(CXX) -print-file-name=$(1)) $$($(CXX) -print-file-name=libstdc++.so.6)"
ASAN := HOSTCALL_BUILD=build/asan $(call preload,libasan.so) PYTHONMALLOC=malloc \
  ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
  LSAN_OPTIONS=print_suppressions=0:suppressions=$(CURDIR)/tests/native/lsan.supp
# GCC 12's ThreadSanitizer fails where newer kernels put memory at random.
TSAN := HOSTCALL_BUILD=build/tsan $(call preload,libtsan.so) \
  TSAN_OPTIONS=die_after_fork=0:halt_on_error=1:allocator_may_return_null=1:suppressions=$(CURDIR)/tests/native/tsan.supp
PYTEST := $(BIN)/python -m pytest -q -p no:cacheprovider
# A process for each CPU shares the tests with the others, file by file; more than four need more
# memory than most machines have. tests/conftest.py sorts the files. Where a process dies, pytest-xdist
# may wait for ever for another one.
SHARED := --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder --max-worker-restart=0
TEST := TF_CPP_MIN_LOG_LEVEL=2 $(PYTEST) $(SHARED)
# What must hold whichever way script ops take; the other files are about one way, or ask for it, or
# are about programs without script ops.
ONE_WAY := $(addprefix tests/e2e/test_,assertions% compil% every% partition% refused% region% shared% unchanged%)
IN_UNITS := $(addprefix tests/unit/,ops/emit/test_callback.py ops/emit/test_gradients.py)
CONTRACT := $(filter-out $(ONE_WAY),$(wildcard tests/e2e/test_*.py)) tests/stress $(IN_UNITS)
# Those that run once more on a device that TensorFlow takes for an accelerator.
ON_DEVICE := $(filter-out tests/e2e/test_partition_sequence.py tests/e2e/test_partition_effects.py,\
  $(wildcard tests/e2e/test_order*.py tests/e2e/test_partition*.py)) \
  $(foreach name,arguments bounded_routes devices exceptions gradient_calls gradient_orders idioms \
  nesting results settings_of_threads shapes fire_and_forget variables_programs,tests/e2e/test_$(name).py)
# The fake GPU runs each op of a program for a GPU, and few of the ops beside it.
ON_FAKE_GPU := $(foreach name,arguments devices exceptions gradient_calls order order_nested \
  partition_memory results settings_of_threads,tests/e2e/test_$(name).py)
PART ?= sample
SEED ?= 0
FUZZ_SECONDS ?= 60
DIFFERENTIAL_EXAMPLES ?= 2000
CHECKED_EXAMPLES ?= 1000
KILLS ?= 200

# Where it is set, each process that a test starts would compile TensorFlow's sources again.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help venv demo test test-all test-gpu test-sample test-rest test-legs test-part test-partition test-device test-jax lint format bench bench-gpu sanitize audits findings docs wheels clean
AUDITS := devices differential dynamic kernels mutations scale stress
.PHONY: $(AUDITS)

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile | expand -t 16

# Each command does this by itself.
venv: $(BUILT)

# A fresh clone gets what this needs, and no more. Where there is more already, that is used.
demo: $(if $(wildcard $(BUILT)),$(BUILT),$(DEMO_BUILT))  ## Run examples/quickstart.py, in some minutes from a fresh clone
	@$(QUIET) $(BIN)/python examples/quickstart.py

test: test-$(PART)  ## Run a sample of the tests, in some minutes; SEED=1 draws another one; PART=rest takes the rest, PART=all all

test-sample: $(BUILT)
	@$(TEST) --part sample --seed $(SEED)

# Each run comes whatever those before it say. PART=rest draws a case of each test for the other
# routes and devices, and where TensorFlow is not installed: all have run on the usual ones.
DRAWN = --part $(if $(filter rest,$(PART)),sample --cases 1,all) --seed $(SEED)
LEGS := test-legs --no-print-directory --keep-going --jobs=1
test-all: $(BUILT)
	@$(MAKE) $(LEGS) PART=all

test-rest: $(BUILT)
	@$(MAKE) $(LEGS) PART=rest

test-legs: test-part test-partition test-device test-jax

test-part: $(BUILT)
	@$(TEST) --part $(PART) --seed $(SEED)

test-partition: $(BUILT)
	@echo "With graph partitioning forced:"
	@$(TEST) $(DRAWN) --route partition $(CONTRACT)

test-device: $(BUILT)
	@echo "On XLA_CPU:0, which TensorFlow takes for an accelerator:"
	@HOSTCALL_TEST_DEVICE=XLA_CPU:0 $(TEST) $(DRAWN) $(if $(filter 2.19,$(TENSORFLOW)),--route partition) $(ON_DEVICE)
ifeq (,$(filter 2.19 2.20,$(TENSORFLOW)))
	@echo "On a GPU:0 that is none, which TensorFlow takes for one:"
	@HOSTCALL_TEST_DEVICE=GPU:0 HOSTCALL_TEST_GPU=fake $(TEST) $(DRAWN) $(ON_FAKE_GPU)
else
	@echo "Left out: the GPU:0 that is none, whose streams are behind before TensorFlow 2.21."
endif

test-jax: $(INSTALLED)
	@echo "Without TensorFlow, with JAX:"
	@$(BIN)/nox --session "jax(newest)" -- $(SHARED) $(DRAWN)

test-gpu: $(BUILT)  ## Run the tests that want a GPU; fails with status 77 where there is none; bench-gpu measures calls from it
	@$(BIN)/python -m tests.gpu $(ON_DEVICE)

lint: $(INSTALLED)  ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict plugin mlir/hostcall_mlir tests wheels tools
	PYTHONPATH=plugin:mlir $(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: $(INSTALLED)  ## Put all sources into the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CXX_FILES)

bench: $(BUILT) .venv/.hostcall-bench  ## Run the benchmarks, or one: ONLY=loop; with BASE=HEAD~1, tell what became slower since
	@$(MEASURED) $(BIN)/python -m benchmarks$(if $(BASE),.compare $(BASE)) $(ONLY) $(if $(BASE),$(COMPARED))

bench-gpu: $(BUILT) .venv/.hostcall-bench
	@$(MEASURED) $(BIN)/python -m benchmarks gpu

sanitize: $(BUILT) build/asan/built build/tsan/built  ## Test the runtime with sanitizers, then with random data for FUZZ_SECONDS (60)
	@echo "AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer"
	@$(ASAN) $(PYTEST) --noconftest tests/native
	@echo "The same in a process with TensorFlow, where leaks are not looked for"
	@$(ASAN) ASAN_OPTIONS=detect_leaks=0 $(PYTEST) -p tests.support.native.frames tests/unit/runtime/test_runtime.py
	@echo "ThreadSanitizer"
	@$(TSAN) setarch --addr-no-randomize $(PYTEST) --noconftest tests/native
	@echo "Random data"
	@$(ASAN) $(BIN)/python -m tests.support.native.fuzz $(FUZZ_SECONDS)
	@$(ASAN) $(BIN)/python -m tests.support.serving.fuzz $(FUZZ_SECONDS)

audits: $(or $(ONLY),$(AUDITS))  ## Run the long campaigns of CONTRIBUTING.md, or one: ONLY=differential

$(AUDITS): $(BUILT)
$(AUDITS): export TF_CPP_MIN_LOG_LEVEL := 2

devices:
	@HOSTCALL_TEST_DEVICE=XLA_CPU:0 $(TEST) $(filter-out tests/e2e/test_every%,$(wildcard tests/e2e/test_*.py)) $(IN_UNITS)
	@HOSTCALL_TEST_DEVICE=XLA_CPU:0 $(TEST) --route partition $(filter-out tests/stress,$(CONTRACT))

differential:
	@for way in "" --exported --unjitted --raising; do \
	  $(BIN)/python -m tests.differential $(DIFFERENTIAL_EXAMPLES) $$way || exit 1; done
	@$(BIN)/python -m tests.differential $(CHECKED_EXAMPLES) --checked

dynamic:
	@$(BIN)/python -m tests.dynamic $(if $(DYNAMIC_CASES),--sample $(DYNAMIC_CASES))
	@$(BIN)/python -m tests.dynamic --checked $(if $(DYNAMIC_CASES),--sample $(DYNAMIC_CASES))

kernels:
	@for part in compare sources; do $(BIN)/python -m tests.kernels $$part || exit 1; done

mutations:
	@$(BIN)/python -m tests.mutations

stress:
	@HOSTCALL_TEST_KILLS=$(KILLS) $(PYTEST) tests/stress/test_killed_workers.py

scale:
	@$(BIN)/python -m benchmarks.at_scale --minutes $(or $(MINUTES),10)

findings:  ## Run the scripts of findings, or one: ONLY=jax_comb_loses_digits; tell which behaviour has changed
	@changed=; for script in $(or $(ONLY:%=findings/%.sh),$(wildcard findings/*.sh)); do \
	  echo $$script; bash $$script || changed="$$changed $$script"; done; \
	if [ -n "$$changed" ]; then echo "Changed, or not run:$$changed"; exit 1; fi

docs: $(BUILT) .venv/.hostcall-docs  ## Build the documentation site in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Built build/site/index.html."

wheels: .venv/.hostcall-wheels  ## Build the wheels of all Pythons that are found, and the sdist, in dist
	@$(BIN)/python -m wheels $(if $(PYTHONS),--python $(PYTHONS)) $(if $(TENSORFLOWS),--tensorflow $(TENSORFLOWS)) \
	  $(if $(ADDRESS),--address $(ADDRESS))

clean:  ## Remove what was built, but keep the downloads in .venv
	rm -rf build dist $(BUILT) $(DEMO_BUILT) .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find plugin mlir tests tools docs -name __pycache__ -prune -exec rm -rf {} +

# Python compiles the modules that it imports; pip would compile all of TensorFlow's.
$(DEMO_INSTALLED): GROUPS := demo
.venv/.hostcall-installed: GROUPS := test dev
.venv/.hostcall-installed $(DEMO_INSTALLED): pyproject.toml
	@echo "Installing what hostcall needs into .venv; the first time takes some minutes."
	@python=$(found); clear=; \
	  test "$$($(BIN)/python -V 2>&1)" = "$$($$python -V)" || clear=--clear; \
	  $$python -m venv $$clear .venv
	@$(BIN)/python -m tools.requirements $(GROUPS) > .venv/requirements.txt
	@$(PIP) install --no-compile -r .venv/requirements.txt
	@touch $@

# An editable installation: Python files are used where they are, so only C++ is built again.
EDITABLE = $(PIP) install --no-build-isolation --no-deps --config-settings=build-dir='build/{wheel_tag}' --editable .

.venv/.hostcall-built: .venv/.hostcall-installed $(NATIVE)
	@echo "Building the extension modules."
	@$(EDITABLE)
	@touch $@

# Builds into the same folder, so that nothing is compiled again for $(BUILT).
$(DEMO_BUILT): $(DEMO_INSTALLED) $(NATIVE)
	@wheel=$$($(BIN)/python -m wheels.fitting); \
	if [ -n "$$wheel" ]; then \
	  echo "Installing $$wheel; without this file, the sources are built."; \
	  $(PIP) install --no-compile --no-deps --force-reinstall "$$wheel"; \
	else \
	  echo "Building the extension modules that the demo loads."; \
	  $(EDITABLE) --config-settings=build.targets='_runtime;_tensorflow' \
	    --config-settings=install.components='runtime;set'; \
	fi
	@touch $@

# What only the benchmarks, the site or the wheels need, so that tests wait for nothing that they do not use.
.venv/.hostcall-%: .venv/.hostcall-installed
	@$(BIN)/python -m tools.requirements $* > .venv/requirements-$*.txt
	@$(PIP) install -r .venv/requirements-$*.txt
	@touch $@

build/asan/built build/tsan/built: build/%/built: $(INSTALLED) $(NATIVE)
	@echo "Building the runtime for the preset $*."
	@$(BIN)/cmake --preset $* --log-level=WARNING -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DCMAKE_CXX_COMPILER=$(CXX) -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python
	@$(BIN)/cmake --build --preset $* -- --quiet
	@touch $@
