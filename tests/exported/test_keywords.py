"""Exported programs that pass arguments by keyword."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall_mlir
from tests.support.exported import functions

X = np.array([1.0, -2.0, 3.0], np.float32)
SPEC = tf.TensorSpec([3])

scaled = hostcall.callback(functions.scaled, result=lambda x: x)


def model(x: Any) -> Any:
    first = scaled(x) + scaled(x, factor=3.0, how="down") + scaled(x, shift=x)
    return first + scaled(x, shift=x, how="down") + scaled(x, how="down", factor=3.0)


def test_the_functions_are_called_with_the_same_keywords(tmp_path: Path) -> None:
    program = hostcall.export(model, SPEC)
    program.save(tmp_path)
    assert [(one.keywords, one.fixed, len(one.calls)) for one in program.manifest.callbacks] == [
        ((), {}, 1),
        ((), {"factor": "3.0", "how": "'down'"}, 2),
        (("shift",), {}, 1),
        (("shift",), {"how": "'down'"}, 1),
    ]
    np.testing.assert_array_equal(hostcall.load(tmp_path)(X), 12.0 * X)
    np.testing.assert_array_equal(hostcall_mlir.load(tmp_path).call(X), 12.0 * X)


def test_a_function_that_is_given_has_to_take_the_keywords(tmp_path: Path) -> None:
    hostcall.export(lambda x: scaled(x, shift=x, how="down"), SPEC).save(tmp_path)
    name = f"{functions.__name__}:scaled"
    given = {name: lambda x, shift, how: x - shift}
    np.testing.assert_array_equal(hostcall.load(tmp_path, callbacks=given)(X), 0.0 * X)
    for load in (hostcall.load, hostcall_mlir.load):
        with pytest.raises(ValueError, match="and shift=… and how=…, and the function") as caught:
            load(tmp_path, callbacks={name: lambda x: x})
        assert "with 1 argument and shift=… and how=…" in str(caught.value)


@pytest.mark.parametrize("value", [len, float("nan"), [object()]])
def test_values_that_a_program_cannot_hold(value: Any) -> None:
    with pytest.raises(ValueError, match="a program can only hold None, bools, numbers") as caught:
        hostcall.export(lambda x: scaled(x, how=value), SPEC)
    assert f"how={value!r} is passed by keyword" in str(caught.value)
