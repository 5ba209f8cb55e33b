"""Runs a case of `every_op.py` as TensorFlow's graph and compiled, and compares."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.e2e.every_op import Case, X, tensors

Form = Callable[[Callable[..., Any]], Callable[..., Any]]

# XLA rounds what is around an op in another way.
_RTOL = 1e-4


def compare(case: Case, form: Form, folder: Path, calls: int = 2) -> None:
    """Checks that results and effects of a case are those of graph mode.

    Args:
      case: a case.
      form: what makes another program of the case's.
      folder: is empty.
      calls: how often the function is called.
    """
    expected, expected_effects = case.prepared(folder / "graph")
    actual, actual_effects = case.prepared(folder / "compiled")
    graph = tf.function(returning_tensors(form(expected)), autograph=False)
    compiled = tf.function(returning_tensors(form(actual)), autograph=False, jit_compile=True)
    for x in (X, X[::-1])[:calls]:
        assert_close(compiled(x), graph(x))
        assert repr(actual_effects()) == repr(expected_effects())


def returning_tensors(program: Callable[..., Any]) -> Callable[..., Any]:
    """The program, without what a function cannot return."""
    return lambda x: tensors(program(x))


def assert_close(actual: list[tf.Tensor], expected: list[tf.Tensor]) -> None:
    """Both hold the same tensors, but for the rounding of floats."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == other.dtype
        left, right = one.numpy(), other.numpy()
        if one.dtype.is_floating or one.dtype.is_complex:
            np.testing.assert_allclose(left, right, rtol=_RTOL, atol=_RTOL)
        else:
            np.testing.assert_array_equal(left, right)
