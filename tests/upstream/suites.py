"""The test files of TensorFlow and JAX that are run, and the ways to run them."""

import dataclasses
import itertools
import re
from pathlib import Path

MODES = ("v1", "v2")

# The tests of its file that a suite runs.
EVERY, CALLING_PYTHON, COMPILING = "every", "calling Python", "compiling"

# Which tests of which files in tensorflow/python, in which modes; `_test.py` is left out. Of large
# files, only those tests are run that call Python, or that compile.
_FILES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (EVERY, MODES, """
        kernel_tests/control_flow/py_func ops/script_ops ops/autograph_ops ops/control_flow_ops
        ops/batch_ops data/kernel_tests/from_generator data/kernel_tests/memory_cleanup
        framework/auto_control_deps framework/error_interpolation framework/function_def_to_graph
        framework/importer framework/subscribe compiler/xla/tests/jit_compile
        ops/parallel_for/xla_control_flow_ops"""),
    (EVERY, ("v2",), """
        ops/numpy_ops/np_interop autograph/tests/call_to_numpy_function
        autograph/tests/call_to_print_function framework/op_callbacks eager/backprop eager/core
        eager/lift_to_graph eager/polymorphic_function/polymorphic_function saved_model/load
        saved_model/save compiler/xla/tests/pjrt_compile eager/polymorphic_function/compiler_ir
        eager/polymorphic_function/polymorphic_function_xla_jit"""),
    (EVERY, ("v1",), "client/session compiler/xla/tests/xla"),
    (CALLING_PYTHON, MODES, """
        kernel_tests/control_flow/control_flow_ops_py data/kernel_tests/batch
        data/kernel_tests/bucket_by_sequence_length data/kernel_tests/checkpoint
        data/kernel_tests/dataset data/kernel_tests/iterator data/kernel_tests/map
        data/kernel_tests/multi_device_iterator data/kernel_tests/padded_batch
        data/kernel_tests/prefetch data/kernel_tests/scan data/kernel_tests/shuffle
        data/kernel_tests/unique data/kernel_tests/window
        data/experimental/kernel_tests/map_and_batch
        data/experimental/kernel_tests/parallel_interleave"""),
    (COMPILING, ("v2",), """
        distribute/mirrored_variable framework/constant_op kernel_tests/collective_ops
        kernel_tests/control_flow/cond_v2 kernel_tests/data_structures/lookup_ops
        kernel_tests/image_ops/extract_image_patches_grad kernel_tests/math_ops/approx_topk
        ops/math_ops ops/weak_tensor_constant_op"""),
    (COMPILING, MODES, """
        kernel_tests/array_ops/gather_op kernel_tests/variables/resource_variable_ops"""),
)  # fmt: skip

# The modules that are imported before JAX's tests.
_JAX_MODES = ("hostcall.jax", "hostcall")

_JAX = ("python_callback", "debugging_primitives", "ffi")

# The files that are run once more with JAX's callbacks made by hostcall.jax.call.
BY_CALLS = "by hostcall.jax.call"
_JAX_BY_CALLS = ("python_callback",)


@dataclasses.dataclass(frozen=True)
class Suite:
    """One test file, run in one way.

    Attributes:
      framework: "tensorflow" or "jax".
      file: its path in the source tree of the framework.
      mode: for TensorFlow "v1" or "v2": with the behaviour of that version; for JAX "hostcall" or
        "hostcall.jax": what is imported where the tests are run with hostcall; with
        "by hostcall.jax.call", that makes JAX's callbacks, too.
      tests: which of its tests are run: EVERY, CALLING_PYTHON or COMPILING.
    """

    framework: str
    file: str
    mode: str = ""
    tests: str = EVERY

    @property
    def title(self) -> str:
        return f"{self.file} {self.mode}".rstrip()


def suites(frameworks: list[str], only: str) -> list[Suite]:
    """The suites of some frameworks whose titles hold the text `only`."""
    tensorflow = (
        Suite("tensorflow", f"tensorflow/python/{file}_test.py", mode, tests)
        for tests, modes, files in _FILES
        for file in files.split()
        for mode in modes
    )
    jax = (Suite("jax", f"tests/{file}_test.py", mode) for file in _JAX for mode in _JAX_MODES)
    by_calls = (Suite("jax", f"tests/{file}_test.py", BY_CALLS) for file in _JAX_BY_CALLS)
    found = itertools.chain(tensorflow, jax, by_calls)
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
