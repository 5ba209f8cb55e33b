"""The test files of TensorFlow and JAX that are run, and the ways to run them."""

from __future__ import annotations

import dataclasses
import itertools
import re
from pathlib import Path

MODES = ("v1", "v2")

# Files in tensorflow/python that are about script ops, or about code that hostcall hooks into.
_WHOLE: dict[str, tuple[str, ...]] = {
    "kernel_tests/control_flow/py_func_test.py": MODES,
    "ops/script_ops_test.py": MODES,
    "ops/autograph_ops_test.py": MODES,
    "ops/numpy_ops/np_interop_test.py": ("v2",),
    "ops/control_flow_ops_test.py": MODES,
    "ops/batch_ops_test.py": MODES,
    "autograph/tests/call_to_numpy_function_test.py": ("v2",),
    "autograph/tests/call_to_print_function_test.py": ("v2",),
    "data/kernel_tests/from_generator_test.py": MODES,
    "data/kernel_tests/memory_cleanup_test.py": MODES,
    "framework/auto_control_deps_test.py": MODES,
    "framework/error_interpolation_test.py": MODES,
    "framework/function_def_to_graph_test.py": MODES,
    "framework/importer_test.py": MODES,
    "framework/op_callbacks_test.py": ("v2",),
    "framework/subscribe_test.py": MODES,
    "eager/backprop_test.py": ("v2",),
    "eager/core_test.py": ("v2",),
    "eager/lift_to_graph_test.py": ("v2",),
    "eager/polymorphic_function/polymorphic_function_test.py": ("v2",),
    "client/session_test.py": ("v1",),
    "saved_model/load_test.py": ("v2",),
    "saved_model/save_test.py": ("v2",),
}

# Large files, of which only the tests that call Python are run.
_IN_PART: dict[str, tuple[str, ...]] = {
    "kernel_tests/control_flow/control_flow_ops_py_test.py": MODES,
    "data/kernel_tests/batch_test.py": MODES,
    "data/kernel_tests/bucket_by_sequence_length_test.py": MODES,
    "data/kernel_tests/checkpoint_test.py": MODES,
    "data/kernel_tests/dataset_test.py": MODES,
    "data/kernel_tests/iterator_test.py": MODES,
    "data/kernel_tests/map_test.py": MODES,
    "data/kernel_tests/multi_device_iterator_test.py": MODES,
    "data/kernel_tests/padded_batch_test.py": MODES,
    "data/kernel_tests/prefetch_test.py": MODES,
    "data/kernel_tests/scan_test.py": MODES,
    "data/kernel_tests/shuffle_test.py": MODES,
    "data/kernel_tests/unique_test.py": MODES,
    "data/kernel_tests/window_test.py": MODES,
    "data/experimental/kernel_tests/map_and_batch_test.py": MODES,
    "data/experimental/kernel_tests/parallel_interleave_test.py": MODES,
}

# Files about compiled functions: whole ones, and those of which only tests that compile are run.
_COMPILED: dict[str, tuple[str, ...]] = {
    "compiler/xla/tests/jit_compile_test.py": MODES,
    "compiler/xla/tests/pjrt_compile_test.py": ("v2",),
    "compiler/xla/tests/xla_test.py": ("v1",),
    "eager/polymorphic_function/compiler_ir_test.py": ("v2",),
    "eager/polymorphic_function/polymorphic_function_xla_jit_test.py": ("v2",),
    "ops/parallel_for/xla_control_flow_ops_test.py": MODES,
}
_COMPILED_IN_PART: dict[str, tuple[str, ...]] = {
    "distribute/mirrored_variable_test.py": ("v2",),
    "framework/constant_op_test.py": ("v2",),
    "kernel_tests/array_ops/gather_op_test.py": MODES,
    "kernel_tests/collective_ops_test.py": ("v2",),
    "kernel_tests/control_flow/cond_v2_test.py": ("v2",),
    "kernel_tests/data_structures/lookup_ops_test.py": ("v2",),
    "kernel_tests/image_ops/extract_image_patches_grad_test.py": ("v2",),
    "kernel_tests/math_ops/approx_topk_test.py": ("v2",),
    "kernel_tests/variables/resource_variable_ops_test.py": MODES,
    "ops/math_ops_test.py": ("v2",),
    "ops/weak_tensor_constant_op_test.py": ("v2",),
}

# The tests of its file that a suite runs.
EVERY, CALLING_PYTHON, COMPILING = "every", "calling Python", "compiling"
_FILES = (
    (EVERY, _WHOLE),
    (CALLING_PYTHON, _IN_PART),
    (EVERY, _COMPILED),
    (COMPILING, _COMPILED_IN_PART),
)

# The modules that are imported before JAX's tests.
_JAX_MODES = ("hostcall.jax", "hostcall")

_JAX = (
    "tests/python_callback_test.py",
    "tests/debugging_primitives_test.py",
    "tests/ffi_test.py",
)


@dataclasses.dataclass(frozen=True)
class Suite:
    """One test file, run in one way.

    Attributes:
      framework: "tensorflow" or "jax".
      file: its path in the source tree of the framework.
      mode: for TensorFlow "v1" or "v2": with the behaviour of that version; for JAX "hostcall" or
        "hostcall.jax": what is imported where the tests are run with hostcall.
      tests: which of its tests are run: EVERY, CALLING_PYTHON or COMPILING.
    """

    framework: str
    file: str
    mode: str = ""
    tests: str = EVERY

    @property
    def title(self) -> str:
        """The name of the suite in the report."""
        return f"{self.file} {self.mode}".rstrip()


def suites(frameworks: list[str], only: str) -> list[Suite]:
    """The suites of some frameworks whose titles hold the text `only`."""
    tensorflow = (
        Suite("tensorflow", f"tensorflow/python/{file}", mode, tests)
        for tests, files in _FILES
        for file, modes in files.items()
        for mode in modes
    )
    jax = (Suite("jax", file, mode) for file in _JAX for mode in _JAX_MODES)
    found = itertools.chain(tensorflow, jax)
    return [suite for suite in found if suite.framework in frameworks and only in suite.title]


# Files whose tests are all run twice, with nothing and with all compiled; see `compiled.py`.
_AREAS: dict[str, tuple[str, ...]] = {
    "arrays": ("kernel_tests/array_ops/*", "ops/array_*", "ops/weak_tensor_array_ops*"),
    "strings": ("kernel_tests/strings_ops/*",),
    "sparse": ("kernel_tests/sparse_ops/*", "ops/sparse_*"),
    "ragged": ("ops/ragged/*",),
    "lists, tables and queues": ("kernel_tests/data_structures/*",),
    "linear algebra": ("kernel_tests/linalg/*",),
    "control flow": ("kernel_tests/control_flow/*", "ops/parallel_for/*"),
    "neural networks": ("kernel_tests/nn_ops/*", "ops/nn_*", "ops/rnn*"),
    "signals": ("kernel_tests/signal/*",),
    "mathematics": ("kernel_tests/math_ops/*", "ops/math_*", "ops/clip_ops*", "ops/special_math*",
                    "ops/bitwise*", "ops/sort*", "ops/bincount*", "ops/sobol*", "ops/numpy_ops/*"),
    "random numbers": ("kernel_tests/random/*", "ops/init_ops*"),
    "files and examples": ("kernel_tests/io_ops/*",),
    "images": ("kernel_tests/image_ops/*", "ops/image_*"),
    "variables": ("kernel_tests/variables/*",),
    "tf.data": ("data/kernel_tests/*", "data/experimental/kernel_tests/*"),
    "saved models": ("saved_model/*", "module/*"),
    "functions and gradients": ("eager/backprop*", "eager/forwardprop*", "eager/ops*",
                                "eager/polymorphic_function/*", "autograph/operators/*",
                                "autograph/tests/*", "ops/gradients*", "ops/functional*"),
}  # fmt: skip
_KERAS_AREAS: dict[str, tuple[str, ...]] = {
    "Keras: training": ("trainers/**/*", "callbacks/*", "optimizers/*", "losses/*", "metrics/*"),
    "Keras: layers": ("layers/**/*", "models/*"),
    "Keras: saving": ("saving/*", "export/*"),
}

# Files that need devices or services, or that say nothing about functions.
_LEFT_OUT = re.compile(
    r"gpu|nccl|collective|cudnn|_d9m|huge_slice|large_concat|benchmark|snapshot|service|multi_device"
    r"|memory_cleanup|multinomial_op_big"
)


def areas(sources: dict[str, str], only: str) -> dict[Suite, str]:
    """The suites whose functions are all compiled, and the area that each belongs to.

    The areas take turns, so that a run that is ended early has seen something of each.
    """
    found = [
        [(suite, area) for suite in _matching(framework, sources[framework], folder, patterns)]
        for framework, folder, table in (
            ("tensorflow", "tensorflow/python", _AREAS),
            ("keras", "keras/src", _KERAS_AREAS),
        )
        if framework in sources
        for area, patterns in table.items()
    ]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*found))
    return {suite: area for suite, area in filter(None, turns) if only in suite.title}


def _matching(framework: str, source: str, folder: str, patterns: tuple[str, ...]) -> list[Suite]:
    paths = [
        str(path.relative_to(source))
        for pattern in patterns
        for path in sorted(Path(source, folder).glob(f"{pattern}_test.py"))
    ]
    return [Suite(framework, path, "v2") for path in paths if not _LEFT_OUT.search(path)]
