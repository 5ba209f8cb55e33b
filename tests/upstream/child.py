"""Runs the tests of one file of TensorFlow's or JAX's, and writes what comes of each.

    python child.py ORDER

ORDER is JSON: framework, file, mode and tests of a `Suite`, and
  source: the source tree.
  hostcall: whether hostcall is imported.
  chosen, done: the ids of the tests that are run, null for all; and of those that are not again.
  results: the output file.
  limit, budget: how many seconds a test may take, and after how many no other test begins.
  compiled: whether each function and each op that is run eagerly is compiled.

The output file gets a line of JSON when a test begins
and one when it ends, so that the caller knows what ran when the process crashed or hung.
"""

import ast
import ctypes
import faulthandler
import importlib
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import sys
import time
import traceback
import types
import unittest
from collections.abc import Callable
from typing import Any

# The mode of JAX's tests in which this module is imported, and not hostcall alone.
JAX_WITH_CALLS = "hostcall.jax"

# And the one in which `by_calls.py` makes JAX's callbacks.
JAX_BY_CALLS = "by hostcall.jax.call"


class SourceFinder:
    """Finds modules that the wheel lacks, helpers of the tests, in TensorFlow's source tree."""

    def __init__(self, source: str) -> None:
        self.source = source

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("tensorflow.python."):
            return None
        place = os.path.join(self.source, *name.split("."))
        if os.path.exists(f"{place}.py"):
            return importlib.util.spec_from_file_location(name, f"{place}.py")
        if os.path.isdir(place):  # the source tree has no __init__.py in most folders
            spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [place]
            return spec
        return None


def name_of(test: Any) -> str:
    """A test's id, the same in each process; parameters that are functions show addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", test.id())


class Results(unittest.TestResult):
    """Writes a line when a test begins, and one when it ends."""

    def __init__(self, file: Any, limit: float, budget: float) -> None:
        super().__init__()
        self.file, self.limit = file, limit
        self.calls: Callable[[], int] = lambda: 0
        self.outcome, self.detail, self.before = "", "", 0
        self.end = time.monotonic() + budget

    def write(self, **line: Any) -> None:
        print(json.dumps(line), file=self.file, flush=True)

    # The names of the methods are unittest's.

    def startTest(self, test: Any) -> None:  # noqa: N802
        super().startTest(test)
        self.outcome, self.detail, self.before = "passed", "", self.calls()
        self.write(begins=name_of(test))
        faulthandler.dump_traceback_later(self.limit, exit=True)

    def stopTest(self, test: Any) -> None:  # noqa: N802
        faulthandler.cancel_dump_traceback_later()
        super().stopTest(test)
        self.write_end(test, calls=self.calls() - self.before)
        if time.monotonic() > self.end:
            self.stop()

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802
        if err is not None:
            self.note(err)

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        self.note(err)
        if not hasattr(test, "_testMethodName"):  # the setup of a class or the module
            self.write_end(test)

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self.note(err)

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        self.outcome, self.detail = "skipped", reason

    def addExpectedFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        self.outcome = "failed as expected"

    def addUnexpectedSuccess(self, test: Any) -> None:  # noqa: N802
        self.outcome = "passed against expectation"

    def write_end(self, test: Any, **more: int) -> None:
        self.write(ends=name_of(test), outcome=self.outcome, detail=self.detail, **more)

    def note(self, err: Any) -> None:
        kind, error, trace = err
        self.outcome = f"failed with {kind.__name__}"
        self.detail = "".join(traceback.format_exception(kind, error, trace))[-6000:]


def load(order: dict[str, Any]) -> Any:
    module_name = "upstream_" + os.path.splitext(os.path.basename(order["file"]))[0]
    path = os.path.join(order["source"], order["file"])
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    getattr(module, "setUpModule", lambda: None)()
    loader = unittest.TestLoader()
    if order["framework"] == "jax":
        from jax._src import test_util

        loader = test_util.JaxTestLoader()
    return loader.loadTestsFromModule(module)


def prepare(order: dict[str, Any]) -> None:
    """Does what comes before a test file is imported."""
    from absl import flags

    if order["framework"] in ("tensorflow", "keras"):
        import tensorflow as tf

        sys.meta_path.append(SourceFinder(order["source"]))
        stand_in_for_xla_tests()
        if order["mode"] == "v1":
            tf.compat.v1.disable_v2_behavior()
        if order["file"].endswith("np_interop_test.py"):
            behave_like_numpy()
    if order["hostcall"]:
        from hostcall import _control

        assert _control.is_enabled(), "HOSTCALL_DISABLE is set"
        if order["mode"] == JAX_WITH_CALLS:
            importlib.import_module(JAX_WITH_CALLS)
        if order["mode"] == JAX_BY_CALLS:
            importlib.import_module("by_calls").install()  # beside this file
    if order["compiled"]:
        compiling().compile_everything()
    from absl.testing import absltest  # noqa: F401 - it defines flags

    flags.FLAGS([sys.argv[0], f"--test_tmpdir={os.environ['TEST_TMPDIR']}"], known_only=True)


def compiling() -> types.ModuleType:
    """Import what compiles all; it imports TensorFlow."""
    return importlib.import_module("tests.upstream.compiling")


def stand_in_for_xla_tests() -> None:
    """The base class of XLA's own tests, which neither the wheel nor tensorflow/python has.

    The files that are run take no more of it than the device.
    """
    from tensorflow.python.platform import test

    class XLATestCase(test.TestCase):
        device = "CPU"

    folder = types.ModuleType("tensorflow.compiler.tests")
    module = types.ModuleType("tensorflow.compiler.tests.xla_test")
    module.XLATestCase = XLATestCase  # type: ignore[attr-defined]
    folder.xla_test = module  # type: ignore[attr-defined]
    sys.modules.update({folder.__name__: folder, module.__name__: module})


def behave_like_numpy() -> None:
    """Set what the tests of NumPy's interface set when their file is run as a program."""
    from tensorflow.python.framework import ops
    from tensorflow.python.ops.numpy_ops import np_math_ops

    ops.set_dtype_conversion_mode("legacy")
    np_math_ops.enable_numpy_methods_on_tensor()


def each(suite: Any) -> Any:
    for test in suite:
        yield from each(test) if isinstance(test, unittest.TestSuite) else [test]


# Patterns for the text of a test, or of a function that it calls; see `suites.py`.
PATTERNS = {
    "calling Python": r"script_ops|py_func|numpy_function|from_generator",
    "compiling": r"jit_compile|experimental_compile|run_with_xla|xla\.compile|enable_xla",
}


def functions_with(pattern: str, path: str) -> set[str]:
    """The names of a file's functions in whose text a pattern occurs, or another one of them."""
    with open(path) as file:
        text = file.read()
    functions: dict[str, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            said = ast.get_source_segment(text, node) or ""
            functions[node.name] = functions.get(node.name, "") + said
    found: set[str] = set()
    while new := {n for n, said in functions.items() if re.search(pattern, said)} - found:
        found |= new
        pattern = rf"\b({'|'.join(map(re.escape, new))})\("
    return found


def is_chosen(test: Any, order: dict[str, Any], names: set[str] | None) -> bool:
    """Return whether to run a test; a parameterized test's name begins with its function's."""
    if names is not None and not test._testMethodName.startswith(tuple(names)):
        return False
    if name_of(test) in order["done"]:
        return False
    return order["chosen"] is None or name_of(test) in order["chosen"]


def forked(order: dict[str, Any], folder: str, said: str) -> None:
    """Runs the tests in a process that was forked, as if it had been started for them."""
    descriptor = os.open(said, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no journal has two writers
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ["TEST_TMPDIR"] = folder
    os.chdir(folder)
    sys.argv = ["test"]
    main(order)
    sys.stdout.flush()
    os._exit(0)


def main(order: dict[str, Any]) -> None:
    faulthandler.enable()
    prepare(order)
    path = os.path.join(order["source"], order["file"])
    pattern = PATTERNS.get(order["tests"])
    names = functions_with(pattern, path) if pattern else None
    tests = [test for test in each(load(order)) if is_chosen(test, order, names)]
    with open(order["results"], "a") as file:
        results = Results(file, order["limit"], order["budget"])
        if order["compiled"]:
            results.calls = compiling().calls
        unittest.TestSuite(tests).run(results)
        results.write(finished=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
