# `make` alone lists the commands. The first of them that needs it sets everything up in .venv.

# Another minor version of Python or TensorFlow than the usual one has an environment and a build of
# its own: make test PYTHON=3.13 TENSORFLOW=2.20. PYTHON=/path/to/python3.11 sets up the usual one.
PYTHON ?=
export TENSORFLOW ?=
ifneq (,$(TENSORFLOW))
# Of the processes that tests start with a version that is not in the table.
export PYTHONWARNINGS := ignore:hostcall was tested with TensorFlow:RuntimeWarning
endif
OWN_PYTHON := $(if $(findstring /,$(PYTHON)),,$(addprefix -py,$(PYTHON)))
VENV := .venv$(OWN_PYTHON)$(addprefix -tf,$(TENSORFLOW))
# The path of PYTHON, or of the first of some versions that is found, on the PATH or in pyenv.
found = $(or $(shell python3 -m wheels.interpreters $(or $(PYTHON),$(1))),$(error hostcall needs Python 3.11, \
  3.12 or 3.13 with its headers, and found no $(or $(PYTHON),$(1)). Install one, or name it: \
  make PYTHON=/path/to/python3.11))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

INSTALLED := $(VENV)/.hostcall-installed
BUILT := $(VENV)/.hostcall-built
# The same for `make demo` alone: no packages of tests, and of hostcall what most programs load.
DEMO_INSTALLED := $(VENV)/.hostcall-demo-installed
DEMO_BUILT := $(VENV)/.hostcall-demo-built
PLOTS := $(VENV)/.hostcall-plots
SITE := $(VENV)/.hostcall-site
HEAVY := $(VENV)/.hostcall-executors
AUDIT := $(VENV)/.hostcall-wheels
# An environment with JAX and without TensorFlow; with one version of JAX: JAX=0.8. JAX 0.11 and later
# want Python 3.12.
JAX ?=
export JAX
JAX_VENV := .venv-jax$(addprefix -,$(JAX))$(OWN_PYTHON)
JAX_INSTALLED := $(JAX_VENV)/.hostcall-installed
JAX_BUILT := $(JAX_VENV)/.hostcall-built
JAX_PIP := $(JAX_VENV)/bin/python -m pip --quiet --disable-pip-version-check
NATIVE := $(shell find CMakeLists.txt cmake csrc tests/cpp third_party) plugin/hostcall/_tf/attributes.py plugin/hostcall/_saving/tokens.py plugin/hostcall/_functions/options.py
CXX_FILES := $(shell find csrc tests/cpp -name '*.cc' -o -name '*.h')

# Prints what pyproject.toml asks for, or the same with another TensorFlow; with the argument `demo`,
# only what builds hostcall and runs the demo. With the build requirements in .venv the extension
# modules are built without isolation, and TensorFlow is downloaded once instead of for every build.
define REQUIREMENTS
import os, sys, tomllib
from wheels.matrix import TENSORFLOW
with open("pyproject.toml", "rb") as file:
    table = tomllib.load(file)
extras = table["project"]["optional-dependencies"]
requires = table["build-system"]["requires"]
if other := os.environ["TENSORFLOW"]:
    requires = [line for line in requires if not line.startswith("tensorflow")]
    candidates = f"{TENSORFLOW}=={other}.*,>={other}.0rc0"  # release candidates, too
    nightly = TENSORFLOW.replace("tensorflow", "tf-nightly")
    requires.append(nightly if other == "nightly" else candidates)
    if other in ("2.19", "2.20"):
        requires.append("protobuf<7")  # whose text format lacks an option that 2.20 gives
print(*requires, *table["project"]["dependencies"], sep="\n")
demo = [line for line in extras["test"] if line.startswith(("keras", "scipy"))]
print(*(demo if "demo" in sys.argv else [*extras["test"], *extras["dev"]]), sep="\n")
print("cmake>=3.26,<5", "ninja>=1.11,<2", sep="\n")
endef
export REQUIREMENTS

# The same for an environment with JAX and without TensorFlow; of what tests need, what those of JAX
# need.
define JAX_REQUIREMENTS
import os, re, tomllib
with open("pyproject.toml", "rb") as file:
    table = tomllib.load(file)
project = table["project"]
builds = [line for line in table["build-system"]["requires"] if not line.startswith("tensorflow")]
extras = project["optional-dependencies"]
tests = [line for line in extras["test"] if re.match("filecheck|hypothesis|lit|pytest", line)]
version = os.environ.get("JAX")
jax = [f"jax=={version}.*"] if version else extras["jax"]
print(*project["dependencies"], *jax, *tests, sep="\n")
print(*builds, "cmake>=3.26,<5", "ninja>=1.11,<2", sep="\n")
endef
export JAX_REQUIREMENTS

# TensorFlow's notes about the machine, and a line on rounding that only the second one silences.
QUIET := TF_CPP_MIN_LOG_LEVEL=2 TF_ENABLE_ONEDNN_OPTS=0
# For figures: with oneDNN, as people have it. Without, TensorFlow takes the memory of each result from the C library anew.
MEASURED := TF_CPP_MIN_LOG_LEVEL=2

# Builds of the runtime, of the XLA that its tests fake and of the workers' client, with sanitizers. A sanitizer's library
# has to be the first of the process, and needs g++'s C++ library beside it.
preload = LD_PRELOAD="$$($(CXX) -print-file-name=$(1)) $$($(CXX) -print-file-name=libstdc++.so.6)"
ASAN := HOSTCALL_BUILD=build/asan $(call preload,libasan.so) PYTHONMALLOC=malloc \
  ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
  LSAN_OPTIONS=print_suppressions=0:suppressions=$(CURDIR)/tests/native/lsan.supp
# GCC 12's ThreadSanitizer fails where newer kernels put memory at random.
TSAN := HOSTCALL_BUILD=build/tsan $(call preload,libtsan.so) \
  TSAN_OPTIONS=die_after_fork=0:halt_on_error=1:allocator_may_return_null=1:suppressions=$(CURDIR)/tests/native/tsan.supp
PYTEST := $(BIN)/python -m pytest -q -p no:cacheprovider
# A process for each CPU shares the tests with the others, file by file; more than four need more
# memory than most machines have. Where a process dies, pytest-xdist may wait for ever for another one.
SHARED := --numprocesses=auto --maxprocesses=4 --dist=loadfile --max-worker-restart=0
TEST := TF_CPP_MIN_LOG_LEVEL=2 $(PYTEST) $(SHARED)
# What must hold whichever way script ops take; the other files are about one way, or ask for it, or
# are about programs without script ops.
ONE_WAY := $(addprefix tests/e2e/test_,assertions% compil% every% partition% refused% region% shared% unchanged%)
IN_UNITS := $(addprefix tests/unit/,frontend/test_callback.py frontend/test_gradients.py)
CONTRACT := $(filter-out $(ONE_WAY),$(wildcard tests/e2e/test_*.py)) tests/stress $(IN_UNITS)
# Those that run once more on a device that TensorFlow takes for an accelerator.
ON_DEVICE := $(filter-out tests/e2e/test_partition_sequence.py tests/e2e/test_partition_effects.py,\
  $(wildcard tests/e2e/test_order*.py tests/e2e/test_partition*.py)) \
  $(foreach name,arguments bounded_routes devices exceptions gradient_calls gradient_orders idioms \
  nesting results settings_of_threads shapes fire_and_forget variables_programs,tests/e2e/test_$(name).py)
# The fake GPU runs each op of a program for a GPU, and few of the ops beside it.
ON_FAKE_GPU := $(foreach name,arguments devices exceptions gradient_calls order order_nested \
  partition_memory results settings_of_threads,tests/e2e/test_$(name).py)
SEED ?= 0
FUZZ_SECONDS ?= 60
DIFFERENTIAL_EXAMPLES ?= 2000
CHECKED_EXAMPLES ?= 1000
KILLS ?= 200

# Where it is set, each process that a test starts would compile TensorFlow's sources anew.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help venv demo test test-all test-rest test-legs test-part test-partition test-device test-oldest test-jax test-gpu devices lint bench bench-compare bench-gpu sanitize fuzz stress differential dynamic kernels upstream mutations executors wheels test-wheel test-newest test-aarch64 docs notebooks format clean

help:  ## List these commands
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1	/p' Makefile | expand -t 16

venv: $(BUILT)  ## Set up .venv with everything that is needed, and build

# A fresh clone gets what this needs, and no more. Where there is more already, that is used.
demo: $(if $(wildcard $(BUILT)),$(BUILT),$(DEMO_BUILT))  ## Run examples/quickstart.py, in some minutes from a fresh clone
	@$(QUIET) $(BIN)/python examples/quickstart.py

test: $(BUILT)  ## Run a sample of the tests, in some minutes; SEED=1 draws another sample
	@$(TEST) --part sample --seed $(SEED)

# Each run comes whatever those before it say. `make test-rest` draws a case of each test for the other
# routes and devices, and where TensorFlow is not installed: all have run on the usual ones.
DRAWN = --part $(if $(filter rest,$(PART)),sample --cases 1,all) --seed $(SEED)
LEGS := test-legs --no-print-directory --keep-going --jobs=1
test-all: $(BUILT)  ## Run all tests; those of the contract also with partitioning forced, and in part on other devices
	@$(MAKE) $(LEGS) PART=all

test-rest: $(BUILT)  ## Run what `make test` leaves out, and a sample of `make test-all`'s other routes and devices
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

test-oldest:  ## Run all tests on the oldest Python, with the newest JAX for it
	@$(MAKE) --no-print-directory test-all PYTHON=3.11

test-jax: $(JAX_BUILT)  ## Run JAX's tests where TensorFlow is not installed, with a version of JAX: JAX=0.8
	@echo "Without TensorFlow, with JAX $(JAX):"
	@$(JAX_VENV)/bin/python -m pytest -q -p no:cacheprovider $(SHARED) $(DRAWN) tests/jax tests/exported/test_runner.py tests/unit/mlir

test-gpu: $(BUILT)  ## Run the tests that want a GPU; says what it finds, and fails with status 77 where there is none
	@$(BIN)/python -m tests.gpu $(ON_DEVICE)

devices: $(BUILT)  ## Run the tests of the contract on XLA_CPU:0, by both routes
	@HOSTCALL_TEST_DEVICE=XLA_CPU:0 $(TEST) $(filter-out tests/e2e/test_every%,$(wildcard tests/e2e/test_*.py)) $(IN_UNITS)
	@HOSTCALL_TEST_DEVICE=XLA_CPU:0 $(TEST) --route partition $(filter-out tests/stress,$(CONTRACT))

lint: $(INSTALLED)  ## Check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict plugin mlir/hostcall_mlir tests wheels
	PYTHONPATH=plugin:mlir $(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

bench: $(BUILT) $(PLOTS)  ## Run the benchmarks, or one: ONLY=loop
	@$(MEASURED) $(BIN)/python -m benchmarks $(ONLY)

bench-compare: $(BUILT) $(PLOTS)  ## Tell what is slower than at the commit BASE; one question: ONLY=loop
	@$(MEASURED) $(BIN)/python -m benchmarks.compare $(or $(BASE),$(error Which commit? make bench-compare BASE=HEAD~1)) \
	  $(ONLY) $(if $(RUNS),--runs $(RUNS)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-gpu: $(BUILT) $(PLOTS)  ## Measure calls from a GPU; the same where there is none
	@$(MEASURED) $(BIN)/python -m benchmarks gpu

sanitize: $(BUILT) build/asan/built build/tsan/built  ## Test the runtime with sanitizers
	@echo "AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer"
	@$(ASAN) $(PYTEST) --noconftest tests/native
	@echo "The same in a process with TensorFlow, where leaks are not looked for"
	@$(ASAN) ASAN_OPTIONS=detect_leaks=0 $(PYTEST) -p tests.support.native.frames tests/unit/runtime/test_runtime.py
	@echo "ThreadSanitizer"
	@$(TSAN) setarch --addr-no-randomize $(PYTEST) --noconftest tests/native

fuzz: build/asan/built  ## Call the runtime, and the workers' client, with random data for FUZZ_SECONDS (60)
	@$(ASAN) $(BIN)/python -m tests.support.native.fuzz $(FUZZ_SECONDS)
	@$(ASAN) $(BIN)/python -m tests.support.serving.fuzz $(FUZZ_SECONDS)

stress: $(BUILT)  ## Kill KILLS (200) workers of executors at random while calls go on
	@HOSTCALL_TEST_KILLS=$(KILLS) TF_CPP_MIN_LOG_LEVEL=2 $(PYTEST) tests/stress/test_killed_workers.py

differential: $(BUILT)  ## Run DIFFERENTIAL_EXAMPLES (2000) random programs by all routes, exported, unjitted, with checked sizes, and with values that raise
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.differential $(DIFFERENTIAL_EXAMPLES)
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.differential $(DIFFERENTIAL_EXAMPLES) --exported
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.differential $(DIFFERENTIAL_EXAMPLES) --unjitted
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.differential $(CHECKED_EXAMPLES) --checked
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.differential $(DIFFERENTIAL_EXAMPLES) --raising

dynamic: $(BUILT)  ## Run DYNAMIC_CASES (all) uses of sizes that only the run knows, and as many with dynamic_sizes="checked"
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.dynamic $(if $(DYNAMIC_CASES),--sample $(DYNAMIC_CASES))
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.dynamic --checked $(if $(DYNAMIC_CASES),--sample $(DYNAMIC_CASES))

kernels: $(BUILT)  ## Compare all kernels of XLA with TensorFlow's, and list those that make bounded sizes
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.kernels compare
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.kernels sources

upstream: $(BUILT)  ## Run TensorFlow's own tests with hostcall and without: TENSORFLOW_SOURCE=DIR; with COMPILED=1, all of it compiled
	@$(BIN)/python -m tests.upstream $(if $(ONLY),--only "$(ONLY)") $(if $(COMPILED),--compiled) \
	  $(if $(JOBS),--jobs $(JOBS)) $(if $(SECONDS_A_FILE),--seconds $(SECONDS_A_FILE)) \
	  $(if $(KERAS_SOURCE),--keras "$(KERAS_SOURCE)") \
	  $(if $(TENSORFLOW_SOURCE),--tensorflow "$(TENSORFLOW_SOURCE)") \
	  $(if $(JAX_SOURCE),--jax "$(JAX_SOURCE)")

mutations: $(BUILT)  ## Undo one fix after another, and see its tests fail
	@TF_CPP_MIN_LOG_LEVEL=2 $(BIN)/python -m tests.mutations

executors: $(BUILT) $(HEAVY)  ## Test functions on Ray and MPI, which it installs
	@TF_CPP_MIN_LOG_LEVEL=2 $(PYTEST) tests/executors_heavy

wheels: $(AUDIT)  ## Build the wheels of all Pythons that are found, and the sdist, in dist
	@$(BIN)/python -m wheels $(if $(PYTHONS),--python $(PYTHONS)) $(if $(TENSORFLOWS),--tensorflow $(TENSORFLOWS))

test-wheel: $(INSTALLED)  ## Install the wheels of dist in fresh environments without a compiler, and run the example and some tests
	@$(BIN)/python -m wheels.trying $(if $(PYTHONS),--python $(PYTHONS))

test-aarch64: $(INSTALLED)  ## Run the runtime's tests as on aarch64, under qemu; says what it lacks
	@tests/native/aarch64.sh $(CURDIR)/$(BIN) $(CURDIR)/build/aarch64

# The wheel of dist for the newest Python that is found; where there is none, it is built.
test-newest: $(AUDIT)  ## Install a wheel beside the newest TensorFlow, Keras, JAX and Numba, and run the examples and some tests
	@$(BIN)/python -m wheels.trying --newest $(if $(PYTHONS),--python $(PYTHONS))

docs: $(SITE)  ## Build the documentation site in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Built build/site/index.html."

notebooks: $(BUILT)  ## Run the notebooks, and write what their cells print into them
	@$(BIN)/python -m tests.support.notebooks

format: $(INSTALLED)  ## Put all sources into the project's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(CXX_FILES)

clean:  ## Remove what was built, but keep the downloads in .venv
	rm -rf build dist $(BUILT) $(DEMO_BUILT) $(JAX_BUILT) .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find plugin mlir tests docs -name __pycache__ -prune -exec rm -rf {} +

# Python compiles the modules that it imports; pip would compile all of TensorFlow's.
$(DEMO_INSTALLED): NEEDED_BY := demo
$(INSTALLED) $(DEMO_INSTALLED): pyproject.toml
	@echo "Installing what hostcall needs into $(VENV); the first time takes some minutes."
	@python=$(call found,3.13 3.12 3.11); clear=; \
	  test "$$($(BIN)/python -V 2>&1)" = "$$($$python -V)" || clear=--clear; \
	  $$python -m venv $$clear $(VENV)
	@$(BIN)/python -c "$$REQUIREMENTS" $(NEEDED_BY) > $(VENV)/requirements.txt
	@$(PIP) install --no-compile -r $(VENV)/requirements.txt
	@touch $@

# An editable install: Python files are used where they are, so only C++ is built again.
EDITABLE = $(PIP) install --no-build-isolation --no-deps \
  --config-settings=build-dir='build$(addprefix /tf,$(TENSORFLOW))/{wheel_tag}' --editable .

$(BUILT): $(INSTALLED) $(NATIVE)
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

$(JAX_INSTALLED): pyproject.toml
	@echo "Installing JAX $(JAX) into $(JAX_VENV), without TensorFlow."
	@$(call found,3.13 3.12 3.11) -m venv --clear $(JAX_VENV)
	@$(JAX_VENV)/bin/python -c "$$JAX_REQUIREMENTS" > $(JAX_VENV)/requirements.txt
	@$(JAX_PIP) install -r $(JAX_VENV)/requirements.txt
	@touch $@

# The runtime alone is built once for each Python.
$(JAX_BUILT): $(JAX_INSTALLED) $(NATIVE)
	@$(JAX_PIP) install --no-build-isolation --no-deps --config-settings=build-dir='build/jax/{wheel_tag}' \
	  --config-settings=cmake.define.HOSTCALL_RUNTIME_ALONE=ON --editable .
	@touch $@

# What only the benchmarks, the site or some executors need, so that tests wait for nothing that they do not use.
$(PLOTS): EXTRA := bench
$(SITE): EXTRA := docs
$(HEAVY): EXTRA := executors
$(AUDIT): EXTRA := wheels
$(PLOTS) $(SITE) $(HEAVY) $(AUDIT): $(INSTALLED)
	@$(PIP) install $$($(BIN)/python -c 'import tomllib; print(*tomllib.load( \
	  open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(EXTRA)"])')
	@touch $@

build/asan/built: SANITIZE := address,undefined
build/tsan/built: SANITIZE := thread
build/asan/built build/tsan/built: $(INSTALLED) $(NATIVE)
	@echo "Building the runtime with -fsanitize=$(SANITIZE)."
	@$(BIN)/cmake -S . -B $(@D) -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	  -DCMAKE_CXX_COMPILER=$(CXX) -DCMAKE_BUILD_TYPE=Debug -DHOSTCALL_SANITIZE=$(SANITIZE) \
	  -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python --log-level=WARNING
	@$(BIN)/cmake --build $(@D) --target _runtime _frames _worker_client -- --quiet
	@touch $@
