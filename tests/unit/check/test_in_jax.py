"""`hostcall.check` with arrays of JAX's."""

from __future__ import annotations

import inspect
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall


def test_sound_callback_passes_in_jax_too() -> None:
    callback = hostcall.callback(np.sin, result=lambda x: x, stateful=False)
    report = hostcall.check(callback, jnp.ones(3))
    assert {"jax", "compiled", "partitioned"} <= {*report.passed}


def test_callback_that_differs_in_jax_is_found() -> None:
    def scaled(x: Any) -> Any:
        files = [frame.filename for frame in inspect.stack(context=0)]
        return x if any("/jax/_src/" in file for file in files) else x * 2

    callback = hostcall.callback(scaled, result=lambda x: x, stateful=False)
    report = hostcall.check(callback, jnp.ones(3), raise_errors=False)
    (finding,) = report.findings
    assert finding.check == "jax"
    assert "in a compiled JAX program result 0 is [1., 1., 1.]" in finding.what


@pytest.mark.parametrize(
    ("function", "result", "reason"),
    [
        (np.unique, lambda x: hostcall.BoundedSpec(x.shape, x.dtype), "sizes only the call tells"),
        (lambda x: np.array([b"a"]), tf.TensorSpec([1], tf.string), "JAX has no strings"),
    ],
)
def test_results_that_jax_has_no_arrays_for_are_not_tried_there(
    function: Any, result: Any, reason: str
) -> None:
    callback = hostcall.callback(function, result=result, stateful=False)
    [why] = [n.why for n in hostcall.check(callback, jnp.ones(3)).not_checked if n.check == "jax"]
    assert reason in why
