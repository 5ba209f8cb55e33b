"""Programs that hostcall.load and hostcall_mlir.load return: arguments, errors and lifetime."""

import gc
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall_mlir
from hostcall_runtime import prepared
from tests.support.errors import raising
from tests.support.exported import exported, functions
from tests.support.exported.exported import F3, I, X
from tests.support.helpers import jitted, plain


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    hostcall.export(exported.looping, F3, I).save(folder)
    return folder


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((X,), "the arguments of looping should be (x, n), and there is a tuple of 1 where"),
        ((X, 3, 4), "there is a tuple of 3"),
        ((tf.cast(X, tf.float64), 3), "argument 'x' is float64(3,), and the program was exported"),
        ((X[:2], 3), "argument 'x' is float32(2,), and the program was exported for float32(3,)"),
        ((X, "three"), "argument 'n' is string(), and the program was exported for int32()"),
        ((object(), 3), "of which no float32 tensor can be made"),
        ((X.astype(np.float64), 3), "argument 'x' is float64(3,), and the program was exported"),
        ((X, np.int64(3)), "argument 'n' is int64(), and the program was exported for int32()"),
        ((X, np.float32(1.5)), "argument 'n' is float32(), and the program was exported for"),
        ((X, 1 << 40), "argument 'n' is 1099511627776, of which no int32 tensor can"),
    ],
)
def test_other_arguments(folder: Path, arguments: tuple[object, ...], says: str) -> None:
    loaded = hostcall.load(folder)
    with pytest.raises(ValueError, match=re.escape(says)):
        loaded(*arguments)


def test_what_tensorflow_converts_is_taken(folder: Path) -> None:
    loaded = hostcall.load(folder)
    np.testing.assert_array_equal(loaded([1.0, 2.0, 0.5], 2)[0], loaded(X, tf.constant(2))[0])


def test_an_exception_comes_back(folder: Path) -> None:
    fail = raising(KeyError("no such wave"))
    loaded = hostcall.load(folder, callbacks={"tests.support.exported.user_code:sine": fail})
    for mode in (plain, jitted):
        with pytest.raises(tf.errors.OpError, match="no such wave") as caught:
            mode(loaded)(X, 1)
        assert isinstance(hostcall.last_error(caught.value), KeyError)
        of_exported = (
            r"In callback tests.support.exported.user_code:sine of an exported program, called at "
        )
        assert re.search(of_exported + r"\S*exported.py:\d+\.", str(caught.value))
        assert "hostcall_mlir" not in str(caught.value)


def test_it_lives_as_long_as_a_function_that_calls_it(folder: Path) -> None:
    gc.collect()
    before = prepared().size()
    loaded = hostcall.load(folder)
    expected = loaded(X, 2)[0]
    programs = [mode(lambda x, loaded=loaded: loaded(x, 2)[0]) for mode in (plain, jitted)]
    traced = [program.get_concrete_function(F3) for program in programs]
    del loaded, programs
    gc.collect()
    for function in traced:
        np.testing.assert_array_equal(function(tf.constant(X)), expected)
    del function, traced
    gc.collect()
    assert prepared().size() == before


def test_it_has_no_gradient(folder: Path) -> None:
    loaded = hostcall.load(folder)
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        with pytest.raises(LookupError, match="Export a function that computes the gradient"):
            loaded(x, 1)
        y = x * loaded(tf.stop_gradient(x), 1)[0]
    np.testing.assert_array_equal(tape.gradient(y, x), loaded(x, 1)[0])


def test_a_saved_model_cannot_hold_it(folder: Path, tmp_path: Path) -> None:
    class Model(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loaded = hostcall.load(folder)

        @tf.function(input_signature=[F3])
        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            return self.loaded(x, 1)[0]

    with pytest.raises(ValueError, match=r"an exported program, by hostcall\.load"):
        tf.saved_model.save(Model(), str(tmp_path))


def test_a_result_of_another_shape_names_the_call(folder: Path) -> None:
    given = {"tests.support.exported.user_code:sine": lambda x: x[:1]}
    loaded = hostcall.load(folder, callbacks=given)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        jitted(loaded)(X, 1)
    message = str(caught.value)
    assert "callback tests.support.exported.user_code:sine of an exported program" in message
    assert "called at exported.py:" in message


each_load = pytest.mark.parametrize("load", [hostcall.load, hostcall_mlir.load])


def test_both_take_the_same_parameters() -> None:
    ours, theirs = (
        [one.replace(annotation=one.empty) for one in inspect.signature(load).parameters.values()]
        for load in (hostcall.load, hostcall_mlir.load)
    )
    assert theirs[: len(ours)] == ours
    assert all(one.kind is one.KEYWORD_ONLY for one in theirs[1:])


@each_load
def test_what_is_loaded_is_called_the_same_way(load: Any, tmp_path: Path) -> None:
    triple = hostcall.callback(functions.triple, result=lambda x: x)
    hostcall.export(triple, tf.TensorSpec([3])).save(tmp_path)
    loaded = load(tmp_path)
    np.testing.assert_array_equal(loaded(X), 3 * X)
    np.testing.assert_array_equal(loaded.call(X), 3 * X)
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
