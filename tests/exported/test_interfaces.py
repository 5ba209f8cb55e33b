"""hostcall.load and hostcall_mlir.load: called the same way, with the same errors."""

import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall_mlir
from tests.support.exported import functions

X = np.array([1.0, -2.0, 3.0], np.float32)

each_load = pytest.mark.parametrize("load", [hostcall.load, hostcall_mlir.load])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    triple = hostcall.callback(functions.triple, result=lambda x: x)
    hostcall.export(triple, tf.TensorSpec([3])).save(tmp_path)
    return tmp_path


def test_both_take_the_same_parameters() -> None:
    ours, theirs = (
        [one.replace(annotation=one.empty) for one in inspect.signature(load).parameters.values()]
        for load in (hostcall.load, hostcall_mlir.load)
    )
    assert theirs[: len(ours)] == ours
    assert all(one.kind is one.KEYWORD_ONLY for one in theirs[1:])


@each_load
def test_what_is_loaded_is_called_the_same_way(load: Any, folder: Path) -> None:
    loaded = load(folder)
    np.testing.assert_array_equal(loaded(X), 3 * X)
    np.testing.assert_array_equal(loaded.call(X), 3 * X)


@each_load
def test_other_arguments_are_the_same_error(load: Any, folder: Path) -> None:
    loaded = load(folder)
    for expected in (TypeError, ValueError):
        with pytest.raises(expected, match=r"should be \(x\), and there is a tuple of 2"):
            loaded(X, X)


@each_load
def test_errors_can_be_caught_by_a_name_of_either_package(load: Any, tmp_path: Path) -> None:
    for error in (hostcall.ProgramError, hostcall_mlir.ProgramError, ValueError):
        with pytest.raises(error, match="manifest"):
            load(tmp_path / "nothing")


def test_what_cannot_be_exported_is_an_error_with_a_name() -> None:
    function = hostcall.callback(lambda x: x, result=lambda x: x)
    with pytest.raises(hostcall.NotExportableError, match="a lambda"):
        hostcall.export(function, tf.TensorSpec([3]))
    with pytest.raises(hostcall.NotExportableError, match="the shape"):
        hostcall.export(tf.sin, tf.TensorSpec([None]))
    assert issubclass(hostcall.NotExportableError, ValueError)
    assert type(pickle.loads(pickle.dumps(hostcall.ProgramError("x")))) is hostcall.ProgramError
