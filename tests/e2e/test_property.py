"""Whatever a function returns: jitted it comes to the same as in plain graph mode."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import hostcall  # noqa: F401 - makes the jitted functions work
from tests.support.helpers import assert_same, outcome, stateless_py_func

# Four-bit dtypes are missing: TensorFlow cannot pass them into a compiled program.
NATIVE = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
]
SMALL = [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn]
DTYPES = [np.dtype(dtype) for dtype in [*NATIVE, *SMALL]]

LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "c": lambda a: a,
    "fortran": lambda a: np.array(a, order="F"),
    "transposed": lambda a: np.array(a.T, order="C").T,
    "strided": lambda a: np.repeat(a, 2, axis=-1)[..., ::2] if a.ndim else a,
    "reversed": lambda a: np.flip(np.flip(a).copy()),
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")) if a.dtype.kind in "iufc" else a,
    "broadcast": lambda a: np.broadcast_to(a[:1, ...] if a.ndim else a, a.shape),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}

# What the function makes of the right results, a list of arrays: what often is right as well ...
GOOD_KINDS: dict[str, Callable[[list[np.ndarray]], Any]] = {
    "list": lambda arrays: arrays,
    "tuple": tuple,
    "lone": lambda arrays: arrays[0],
    "Python values": lambda arrays: [array.tolist() for array in arrays],
    "lone Python value": lambda arrays: arrays[0].tolist(),
    "scalars": lambda arrays: [array[()] for array in arrays],
    "tensors": lambda arrays: [tf.constant(array) for array in arrays],
}
# ... and what mostly is not.
BAD_KINDS: dict[str, Callable[[list[np.ndarray]], Any]] = {
    "one too many": lambda arrays: [*arrays, arrays[0]],
    "one too few": lambda arrays: arrays[1:],
    "wrong dtype": lambda arrays: [*arrays[:-1], another_dtype(arrays[-1])],
    "wrong shape": lambda arrays: [*arrays[:-1], arrays[-1][None]],
    "wrong size": lambda arrays: [*arrays[:-1], np.concatenate([arrays[-1].ravel()] * 2)],
    "None": lambda arrays: None,
    "None inside": lambda arrays: [*arrays[:-1], None],
    "objects": lambda arrays: [*arrays[:-1], np.array([object()])],
    "strings": lambda arrays: [*arrays[:-1], np.array(["a"])],
    "nested": lambda arrays: [arrays],
    "ValueError": lambda arrays: int("blah"),
    "KeyError": lambda arrays: dict[str, int]()["blah"],
}
KINDS = GOOD_KINDS | BAD_KINDS


def another_dtype(array: np.ndarray) -> np.ndarray:
    """The same bits under another name, where there is one of the same width."""
    width = array.dtype.itemsize
    others = [d for d in DTYPES if d.itemsize == width and d != array.dtype]
    return np.ascontiguousarray(array).view(others[0] if others else np.uint8)


@dataclasses.dataclass
class Case:
    op: Any
    arrays: list[np.ndarray]
    layouts: list[str]
    kind: str
    as_list: bool

    def returned(self) -> Any:
        laid_out = zip(self.layouts, self.arrays, strict=True)
        return KINDS[self.kind]([LAYOUTS[layout](array) for layout, array in laid_out])

    def returned_to_plain(self) -> Any:
        """The same without empty lists: the contract has them take the declared dtype."""
        returned = self.returned()
        if not isinstance(returned, list):
            return returned
        if returned == [] and len(self.arrays) == 1:
            returned = [[]]
        dtypes = [*(array.dtype for array in self.arrays), None]
        pairs = zip(returned, dtypes, strict=False)
        return [
            np.zeros(0, dtype) if isinstance(value, list) and not value else value
            for value, dtype in pairs
        ]

    def program(self, function: Any, *tensors: tf.Tensor) -> Any:
        dtypes = [array.dtype for array in self.arrays]
        tout = dtypes if self.as_list else dtypes[0]
        # The inputs come back too, so that what went in is compared as well.
        results = tf.nest.flatten(self.op(lambda *_: function(), tensors, tout))
        copies = self.op(lambda *arrays: arrays, tensors, dtypes)
        shapes = [array.shape for array in self.arrays]
        return tuple(list(map(tf.ensure_shape, both, shapes)) for both in (results, copies))

    def run(self, jit_compile: bool) -> Any:
        returned = self.returned if jit_compile else self.returned_to_plain
        function = tf.function(
            functools.partial(self.program, returned), jit_compile=jit_compile, autograph=False
        )
        return outcome(function, *map(tf.constant, self.arrays))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shapes = st.lists(st.integers(0, 4), max_size=5).map(tuple)
    arrays = []
    for dtype in draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=3)):
        shape = draw(shapes)
        size = int(np.prod(shape)) * dtype.itemsize
        raw = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 256, size, np.uint8)
        bits = raw % 2 if dtype == np.bool_ else raw
        arrays.append(bits.view(dtype).reshape(shape))
    ops = [tf.numpy_function, tf.py_function]
    if all(array.size for array in arrays):
        # XLA need not call a stateless function to know results without elements.
        ops.append(stateless_py_func)
    good = st.sampled_from(sorted(GOOD_KINDS))
    return Case(
        op=draw(st.sampled_from(ops)),
        arrays=arrays,
        layouts=[draw(st.sampled_from(sorted(LAYOUTS))) for _ in arrays],
        kind=draw(st.one_of(good, good, st.sampled_from(sorted(BAD_KINDS)))),
        as_list=len(arrays) > 1 or draw(st.booleans()),
    )


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[*HealthCheck])
@given(cases())
def test_jitted_equals_plain(case: Case) -> None:
    compiled = case.run(jit_compile=True)
    expected = case.run(jit_compile=False)
    event("fails" if isinstance(expected, type) else "succeeds")
    assert_same(compiled, expected)
    if case.kind in ("list", "tuple", "tensors"):
        laid_out = zip(case.layouts, case.arrays, strict=True)
        results = [np.array(LAYOUTS[how](a), a.dtype) for how, a in laid_out]
        assert_same(compiled, (results, case.arrays))
