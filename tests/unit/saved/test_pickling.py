"""hostcall._saved.pickled_functions: functions as bytes, and what must not become bytes."""

import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._saved import decoding, pickled_functions, tokens
from hostcall._saved.tokens import FunctionRecord, SavedFunctionError
from tests.support.errors import assert_says

SPEC = tf.TensorSpec([2], tf.float32)
X = np.array([1.0, 2.0], np.float32)


class Module(tf.Module):
    """Objects with variables and locks, or without."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.sizes = [1, 2]
        for name, value in attributes.items():
            setattr(self, name, value)

    def scale(self, v: Any) -> Any:
        return v * np.float32(self.sizes[1])


def again(function: Callable[..., Any], shape_function: Any = None) -> Any:
    return pickled_functions.loads(pickled_functions.dumps(function, shape_function), "f")


def refusal(function: Callable[..., Any]) -> list[str]:
    with pytest.raises(pickled_functions.UnpicklableError) as caught:
        pickled_functions.dumps(function, None)
    return str(caught.value).splitlines()


def test_closures_methods_and_partials_compute_the_same() -> None:
    factor, constant = np.float32(3), tf.constant(2.0)
    traced: Any = tf.function(lambda v: v + 1)
    functions: list[Any] = [lambda v: v * factor, lambda v: v * constant.numpy()]
    functions += [lambda v: traced(v).numpy(), Module().scale]
    for function in (*functions, functools.partial(np.multiply, factor)):
        copy, shape_function = again(function, lambda v: tf.TensorSpec([3], v.dtype))
        np.testing.assert_array_equal(copy(X), function(X))
        assert shape_function(SPEC) == tf.TensorSpec([3], tf.float32)


def test_all_that_cannot_be_pickled_is_listed() -> None:
    variable, lock = tf.Variable(1.0), threading.Lock()

    def function(v: Any) -> Any:
        with lock:
            return v * variable.numpy()

    variables, locks = sorted(refusal(function), reverse=True)
    assert variables.startswith("variable, a ResourceVariable")
    assert "it would be a copy" in variables
    assert locks == "lock, a lock (_thread): cannot pickle '_thread.lock' object"
    found = refusal(Module(w=tf.Variable(1.0), lock=lock).scale)
    assert [line.partition(",")[0] for line in found] == ["self.w", "self.lock"]
    assert refusal(functools.partial(lambda v, w: v * w, w=variable))[0].startswith("w, a Resource")


def test_keras_layers_and_tables_are_not_copied() -> None:
    import keras

    layer = keras.layers.Dense(1)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)
    assert refusal(lambda v: layer(v))[0].startswith("layer, a Dense (keras")
    assert "it would be a copy" in refusal(lambda v: table.lookup(v))[0]


def _calling(function: Callable[..., Any]) -> Any:
    return tf.function(lambda x: tf.numpy_function(function, [x], SPEC), [SPEC], autograph=False)


def saved(path: Path, *functions: Callable[..., Any]) -> None:
    module = tf.Module()
    for number, function in enumerate(functions):
        setattr(module, f"program_{number}", _calling(function))
    with hostcall.save_options(pickle=True):
        tf.saved_model.save(module, str(path))


def test_one_error_lists_the_functions_that_cannot_be_carried(tmp_path: Path) -> None:
    variable, lock = tf.Variable(1.0), threading.Lock()
    with pytest.raises(ValueError, match="these cannot be pickled") as caught:
        saved(tmp_path, lambda v: v * variable, lambda v: (v, lock)[0], lambda v: v)
    text = str(caught.value)
    assert text.count("  - tf.numpy_function of ") == 2
    assert_says(text, "test_pickling.py", "variable, a ResourceVariable", "lock, a lock")


def test_an_absent_cloudpickle_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ImportError, match=r"pip install 'hostcall\[pickle\]'"):
        saved(tmp_path, lambda v: v)


def test_nothing_is_pickled_that_has_a_name_or_without_being_asked(tmp_path: Path) -> None:
    saved(tmp_path / "1", hostcall.register(lambda v: v, "tests::has_a_name"), np.square)
    assert not (tmp_path / "1" / "assets.extra").exists()
    module = tf.Module()
    module.program = _calling(lambda v: v)
    with pytest.warns(UserWarning, match=r"hostcall\.save_options\(pickle=True\)"):
        tf.saved_model.save(module, str(tmp_path / "2"))
    assert not (tmp_path / "2" / "assets.extra").exists()


def token(function: Callable[..., Any], **changes: Any) -> str:
    """Return the token of a pickled function that may be loaded, with changes to the pickle."""
    pickled = pickled_functions.pickled(function, None, "f (model.py:1)")
    pickled = msgspec.structs.replace(pickled, leave=pickled_functions.leave_for(pickled.sha256))
    record = tokens.Record(
        id="pyfunc_0_00000000",
        kind="numpy",
        inputs=1,
        outputs="float32",
        function=FunctionRecord(pickled=msgspec.structs.replace(pickled, **changes)),
        static=[{"spec": ["float32", [2]]}],
        plain=[{"spec": ["float32", [2]]}],
    )
    return tokens.encode(record)


def test_leave_is_for_one_pickle() -> None:
    factor = np.float32(7)
    spec = decoding.resolve(token(lambda v: v * factor))
    np.testing.assert_array_equal(spec(X), X * factor)
    other = pickled_functions.leave_for(pickled_functions.pickled(lambda v: v, None, "g").sha256)
    for leave in ("", "no secret", other):
        with pytest.raises(SavedFunctionError, match="not allowed"):
            decoding.resolve(token(lambda v: v * factor, leave=leave))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"python": "3.1"}, r"a pickle of Python 3\.1, which"),
        ({"sha256": "0" * 64}, "only a SavedModel carries it"),
        ({"sha256": "../../secret"}, "damaged or altered"),
    ],
)
def test_pickle_that_cannot_be_read_here_is_an_error(changes: Any, match: str) -> None:
    with pytest.raises(SavedFunctionError, match=match):
        decoding.resolve(token(lambda v: v, **changes))


def test_a_function_can_be_provided_in_its_place() -> None:
    hostcall.provide("f (model.py:1)", abs)
    assert decoding.resolve(token(lambda v: v, leave="")).function is abs


class Unreadable:
    """An object that cannot be unpickled."""

    def __reduce__(self) -> Any:
        return os.stat, ("/no/such/file",)


def test_pickle_that_fails_or_holds_something_else_is_an_error() -> None:
    import cloudpickle

    unreadable = Unreadable()
    with pytest.raises(SavedFunctionError, match="cannot be read here: FileNotFoundError"):
        again(lambda v: unreadable)
    for what, match in [((3, None), "holds no function"), (5, "cannot be read here: TypeError")]:
        with pytest.raises(SavedFunctionError, match=match):
            pickled_functions.loads(cloudpickle.dumps(what), "f")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "assets.extra" / "hostcall"
    folder.mkdir(parents=True)
    os.mkfifo(folder / f"{'0' * 64}.pickle")
    problem = pickled_functions.read_pickle("0" * 64, str(tmp_path))
    assert problem is not None
    assert "is not a file" in problem.reason
