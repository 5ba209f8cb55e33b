"""hostcall._tf.plain_calls: C++ does what TensorFlow's Python does, or leaves the call to it."""

import contextlib
import gc
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation, context, execute
from tensorflow.python.framework import func_graph, op_callbacks

import hostcall
from hostcall._tf import concrete_functions, plain_calls
from hostcall_runtime import _library
from tests.support.fate import Fate
from tests.support.helpers import failure, gradient_of, jitted
from tests.support.stress.template import Template
from tests.support.threads import in_threads, running

X = np.array([1.0, 2.0, 3.0], np.float32)
SPEC = tf.TensorSpec([3], tf.float32)


def add_one(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(lambda v: v + np.float32(1), [x], tf.TensorSpec(x.shape, x.dtype))


def in_python(bound: Any) -> Any:
    """A bound function like another one, whose calls run TensorFlow's Python."""
    concrete = bound.concrete_function
    other, run = hostcall.bind(concrete), concrete_functions.unrecorded_call(concrete)
    assert run is not None
    other._quick = lambda _: NotImplemented
    other._run = lambda tensors: run([*tensors, *concrete_functions.captured_by(concrete)])
    return other


class Ways:
    """The number of bound calls that Python has looked at."""

    def __init__(self) -> None:
        self.python = 0

    def take(self, call: Callable[..., Any], *args: Any) -> tuple[Any, bool]:
        """Return what a call returns, and whether C++ did all of it."""
        self.python = 0
        result = call(*args)
        return result, self.python == 0


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    ways, stock = Ways(), concrete_functions.calls_are_plain

    def counted() -> bool:
        ways.python += 1
        return stock()

    monkeypatch.setattr(concrete_functions, "calls_are_plain", counted)
    return ways


@pytest.fixture(name="bound")
def _bound() -> Any:
    """One that has run on this thread, and so has its options."""
    bound = hostcall.bind(jitted(add_one), SPEC)
    bound(X)
    return bound


def test_the_usual_calls_run_in_cpp(bound: Any, ways: Ways) -> None:
    for x in (X, tf.constant(X)):
        result, quick = ways.take(bound, x)
        np.testing.assert_array_equal(result, X + 1)
        assert quick


def test_structures_captures_and_sizes_that_vary_do_too(ways: Ways) -> None:
    weight = tf.Variable(2.0)

    def step(batch: dict[str, Any], pair: Any, rest: Any) -> Any:
        return {"sum": batch["b"] * weight + batch["a"], "all": [pair[0], (rest[0], rest[1])]}

    args = ({"b": X, "a": tf.constant(X * 10)}, (X * 2,), [X * 3, X[:2]])
    vector = tf.TensorSpec([None], tf.float32)
    specs = ({"b": SPEC, "a": SPEC}, (SPEC,), [vector, tf.TensorSpec(None, tf.float32)])
    bound = hostcall.bind(jitted(step), *specs)
    bound(*args)
    for batch in (args[0], dict(reversed(args[0].items()))):
        found, quick = ways.take(bound, batch, *args[1:])
        assert quick
        expected = in_python(bound)(*args)
        tf.nest.assert_same_structure(found, expected)
        tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("value", ["single", "list", "dict", "none"])
def test_results_have_their_structure(value: str, ways: Ways) -> None:
    def returned(x: tf.Tensor) -> Any:
        return {"single": x, "list": [x], "dict": {"x": (x, x)}, "none": None}[value]

    bound = hostcall.bind(tf.function(returned), SPEC)
    bound(X)
    found, quick = ways.take(bound, X)
    assert quick
    tf.nest.assert_same_structure(found, in_python(bound)(X))


Arguments = tuple[Any, ...]


@pytest.mark.parametrize(
    "args",
    [
        (X.tolist(),),
        (tf.Variable(X),),
        (X.astype(">f4"),),
        (np.ma.array(X, mask=[True, False, False]),),
        (X.astype(np.float64),),
        (tf.constant(X, tf.float64),),
        (X[:2],),
        (tf.constant(X[:2]),),
        (X[None],),
        (),
        (X, X),
        ({"x": X},),
    ],
    ids=str,
)
def test_other_arguments_are_left_to_python(bound: Any, ways: Ways, args: Arguments) -> None:
    def outcome(function: Any) -> Any:
        try:
            result = function(*args)
        except (TypeError, ValueError) as error:
            return type(error), str(error)
        return result.numpy().tolist()

    found, _ = ways.take(outcome, bound)
    assert found == outcome(in_python(bound))
    _, quick = ways.take(lambda: bound._quick(args))
    assert quick
    assert bound._quick(args) is NotImplemented


@pytest.mark.parametrize(
    "batch",
    [
        {"a": X}, {"a": X, "b": [X, X], "c": X}, {"a": X, "b": (X, X)}, {"a": X, "b": [X]},
        {"a": X, "c": [X, X]}, OrderedDict(a=X, b=[X, X]), [X, [X, X]],
    ],
    ids=str,
)  # fmt: skip
def test_other_structures_are_left_to_python(batch: Any) -> None:
    bound = hostcall.bind(tf.function(lambda batch: batch["a"] + batch["b"][1]), like := _batch())
    bound(like)
    assert bound._quick((like,)) is not NotImplemented
    assert bound._quick((batch,)) is NotImplemented


def _batch() -> dict[str, Any]:
    return {"a": X, "b": [X, X]}


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.parametrize("batch", [OrderedDict(b=X, a=2 * X), [Pair(X, X)], ({}, Pair(X, X))])
def test_structures_that_cpp_does_not_know_are_left_to_python(batch: Any, ways: Ways) -> None:
    bound = hostcall.bind(tf.function(lambda batch: tf.nest.flatten(batch)[-1] + 1.0), batch)
    for _ in range(2):
        result, quick = ways.take(bound, batch)
        np.testing.assert_array_equal(result, tf.nest.flatten(batch)[-1] + 1)
        assert not quick


# What is around a call.


@contextlib.contextmanager
def recording_ops() -> Iterator[None]:
    op_callbacks.add_op_callback(lambda *_, **__: None)
    try:
        yield
    finally:
        op_callbacks.clear_op_callbacks()


@contextlib.contextmanager
def other_execute() -> Iterator[None]:
    stock, execute.execute = execute.execute, lambda *args, **given: stock(*args, **given)
    try:
        yield
    finally:
        execute.execute = stock


@contextlib.contextmanager
def watching(x: tf.Tensor) -> Iterator[None]:
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)):
        yield


@contextlib.contextmanager
def asynchronous() -> Iterator[None]:
    with context.execution_mode(context.ASYNC):
        yield
    context.async_wait()


@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    with func_graph.FuncGraph("outer").as_default(), tf.init_scope():
        yield


AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "tape": tf.GradientTape,
    "accumulator": lambda: watching(tf.constant(X)),
    "init_scope": init_scope,
    "asynchronous": asynchronous,
    "cancellation": lambda: cancellation.CancellationManagerContext(
        cancellation.CancellationManager()
    ),
    "op callback": recording_ops,
    "other execute": other_execute,
}


@pytest.mark.parametrize("name", AROUND)
def test_calls_that_do_more_are_left_to_python(bound: Any, ways: Ways, name: str) -> None:
    x = tf.constant(X)
    for _ in range(2):
        with AROUND[name]():
            result, quick = ways.take(bound, x)
        assert not quick
        np.testing.assert_array_equal(result, X + 1)
        result, quick = ways.take(bound, x)
        assert quick


def test_graph_mode_is_left_to_python(bound: Any) -> None:
    quick = bound._quick
    x = tf.constant(X)
    with context.graph_mode():
        assert quick((x,)) is NotImplemented
    assert quick((x,)) is not NotImplemented


def test_calls_that_keep_something_for_a_gradient_are_left_to_python() -> None:
    """The function was traced under a tape, so its py_function keeps what a gradient would need."""

    def cube(x: tf.Tensor) -> Any:
        return tf.py_function(lambda v: v**3, [x], SPEC)

    x = tf.constant(X)
    recorded = jitted(cube)
    np.testing.assert_allclose(gradient_of(recorded, x), 3 * X**2, rtol=1e-6)
    bound = hostcall.bind(recorded, SPEC)
    for _ in range(2):
        np.testing.assert_allclose(bound(x), X**3, rtol=1e-6)
    assert bound._quick((x,)) is NotImplemented
    unrecorded = hostcall.bind(jitted(cube), SPEC)
    unrecorded(x)
    assert unrecorded._quick((x,)) is not NotImplemented


def test_op_callbacks_see_the_same_ops(bound: Any) -> None:
    seen: list[Any] = []
    bound(X)
    op_callbacks.add_op_callback(lambda name, *_, **__: seen.append(name))
    try:
        for function in (bound, in_python(bound)):
            function(tf.constant(X))
    finally:
        op_callbacks.clear_op_callbacks()
    assert seen == [bound.concrete_function.inference_fn.name.decode()] * 2


def test_another_context_is_left_to_python(bound: Any) -> None:
    run = _library.load("hostcall._tensorflow").PlainCall
    inference = bound.concrete_function.inference_fn
    spec = (tf.float32.as_datatype_enum, None, [3])
    for of, expected in ((context.context(), False), (object(), True)):
        call = run(of, inference.name.decode(), (0,), [spec], 1, True).run
        assert (call((tf.constant(X),), []) is NotImplemented) == expected


def test_captures_that_are_no_tensors_are_left_to_python(bound: Any) -> None:
    run = _library.load("hostcall._tensorflow").PlainCall
    inference = bound.concrete_function.inference_fn
    spec = (tf.float32.as_datatype_enum, None, [3])
    call = run(context.context(), inference.name.decode(), (0,), [spec], 1, True).run
    for captured in ([lambda: tf.constant(X)], [None], (), None):
        assert call((tf.constant(X),), captured) is NotImplemented


# The settings of a call.


def test_a_device_is_that_of_the_call(bound: Any, ways: Ways) -> None:
    with tf.device("CPU:0"):
        result, quick = ways.take(bound, tf.constant(X))
        assert quick
        np.testing.assert_array_equal(result, X + 1)
        assert bound._quick((X,)) is NotImplemented  # TensorFlow puts the tensor there
        np.testing.assert_array_equal(bound(X), X + 1)
    errors = []
    for function in (bound, in_python(bound)):
        x = tf.constant(X)
        with context.device("/job:nowhere/task:0/device:CPU:0"):
            errors.append(failure(function, x))
    assert type(errors[0]) is type(errors[1])
    assert errors[0].message == errors[1].message


def test_options_are_those_of_the_call(bound: Any, ways: Ways) -> None:
    x = tf.constant(X)
    with context.function_executor_type("SINGLE_THREADED_EXECUTOR"):
        result, quick = ways.take(bound, x)
    assert quick
    np.testing.assert_array_equal(result, X + 1)
    errors = []
    for fresh in (False, True):
        function = hostcall.bind(tf.function(lambda x: x * 2.0), SPEC)
        with context.function_executor_type("NONE_SUCH"):
            errors.append(failure(in_python(function) if fresh else function, x))
    assert type(errors[0]) is type(errors[1])
    assert "NONE_SUCH" in errors[0].message
    tf.config.optimizer.set_experimental_options({"constant_folding": False})
    try:
        assert bound._quick((x,)) is NotImplemented  # they are made anew
        np.testing.assert_array_equal(bound(x), X + 1)
        assert bound._quick((x,)) is not NotImplemented
    finally:
        tf.config.optimizer.set_experimental_options({"constant_folding": True})


def test_a_thread_has_settings_of_its_own(bound: Any) -> None:
    x = tf.constant(X)

    def work(number: int) -> None:
        first = bound._quick((x,))
        np.testing.assert_array_equal(bound(x), X + 1)
        then = bound._quick((x,))
        assert first is NotImplemented
        assert then is not NotImplemented
        with context.graph_mode() if number % 2 else contextlib.nullcontext():
            assert (bound._quick((x,)) is NotImplemented) == bool(number % 2)

    in_threads(4, work)


def test_other_threads_run_during_a_call(ways: Ways) -> None:
    size = 2000
    bound = hostcall.bind(tf.function(lambda x: tf.matmul(x, x)), tf.TensorSpec([size, size]))
    x, stop, ticks = tf.ones([size, size]), threading.Event(), [0.0]

    def tick() -> None:
        while not stop.wait(1e-3):
            ticks.append(time.perf_counter())

    def is_seen() -> bool:
        """Whether the other thread has run within a call."""
        begun = time.perf_counter()
        result, quick = ways.take(bound, x)
        ended = time.perf_counter()
        del result
        time.sleep(2e-3)
        assert quick
        return any(begun < tick < ended for tick in [*ticks])

    bound(x)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # so that threads change only where one lets go of the lock
    try:
        with running([tick], stop):
            assert any(is_seen() for _ in range(50))
    finally:
        sys.setswitchinterval(interval)


def test_the_profiler_shows_the_same_event(bound: Any, tmp_path: Path, ways: Ways) -> None:
    x = tf.constant(X)
    with tf.profiler.experimental.Profile(str(tmp_path)):
        _, quick = ways.take(bound, x)
    assert quick
    shown = b"".join(file.read_bytes() for file in tmp_path.rglob("*.xplane.pb"))
    assert b"TFE_Py_ExecuteCancelable" in shown


# Errors.


@pytest.mark.parametrize("kind", [KeyError, tf.errors.AbortedError])
def test_errors_are_those_of_pythons_call(kind: Any) -> None:
    raised: list[Exception] = []

    def maybe(x: np.ndarray) -> np.ndarray:
        if raised:
            raised.append(KeyError("no") if kind is KeyError else kind(None, None, "no"))
            raise raised[-1]
        return x

    bound = hostcall.bind(jitted(lambda x: tf.numpy_function(maybe, [x], SPEC) + 1.0), SPEC)
    bound(X)
    raised.append(KeyError())
    x = tf.constant(X)
    caught = [failure(function, x) for function in (bound, in_python(bound))]
    assert type(caught[0]) is type(caught[1])
    messages = [_without_numbers(error.message) for error in caught]
    assert messages[0] == messages[1]
    assert caught[0].message.endswith(f"[Op:{bound.concrete_function.inference_fn.name.decode()}]")
    assert hostcall.last_error(caught[0]) is raised[1]
    assert caught[0].experimental_payloads == caught[1].experimental_payloads


def test_errors_of_ops_have_their_lines() -> None:
    def picked(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, i)

    index = tf.TensorSpec([1], tf.int32)
    bound = hostcall.bind(tf.function(picked), SPEC, index)
    args = tf.constant(X), tf.constant([3])
    bound(args[0], tf.constant([2]))
    caught = [failure(function, *args) for function in (bound, in_python(bound))]
    assert [type(error) for error in caught] == [tf.errors.InvalidArgumentError] * 2
    assert caught[0].message == caught[1].message
    assert caught[0].message.startswith("Graph execution error:\n")
    assert "test_plain_calls.py" in caught[0].message


def _without_numbers(text: str) -> str:
    return "".join(sign for sign in text if not sign.isdigit())


def test_a_function_that_is_gone_is_an_error_of_tensorflows(bound: Any) -> None:
    run = _library.load("hostcall._tensorflow").PlainCall
    call = run(context.context(), "none_such", (), [], 0, False).run
    mine = failure(call, (), [])
    theirs = failure(context.context().call_function, b"none_such", [], 0)
    assert type(mine) is type(theirs)
    assert mine.message == theirs.message


@pytest.mark.usefixtures("enabled_again")
def test_ctrl_c_is_one_while_hostcall_is_enabled() -> None:
    works = [True]

    def interrupted(x: np.ndarray) -> np.ndarray:
        if works:
            return x
        raise KeyboardInterrupt

    bound = hostcall.bind(jitted(lambda x: tf.numpy_function(interrupted, [x], SPEC)), SPEC)
    x = tf.constant(X)
    bound(x)  # the first call of a process is TensorFlow's
    works.clear()
    with pytest.raises(KeyboardInterrupt):
        bound(x)
    hostcall.disable()
    errors = [failure(function, x) for function in (bound, in_python(bound))]
    assert type(errors[0]) is type(errors[1])


# Objects.


def test_nothing_is_kept_of_arguments_and_results() -> None:
    large = np.ones(1 << 20, np.float32)
    identity = hostcall.bind(tf.function(lambda batch: batch["x"] * 1.0), {"x": large})
    identity({"x": large})
    key = {"x": tf.constant(large)}
    result = identity(key)
    fates = [Fate(result), Fate(key["x"])]
    del result, key
    for fate in fates:
        fate.assert_goes()


def test_lists_that_change_during_a_copy_are_safe() -> None:
    size = 1 << 22
    large = np.ones(size, np.float32)
    bound = hostcall.bind(tf.function(lambda pair: pair[0][0] + pair[1][0]), [large[:1], large])
    expected = 2.0
    pair = [tf.ones([1]), large]
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            pair[0] = tf.ones([1])
            gc.collect(0)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(20):
            assert float(bound(pair)) == expected
    finally:
        stop.set()
        thread.join()


_AT_EXIT = """
import sys, numpy as np, tensorflow as tf, hostcall
bound = hostcall.bind(lambda x: x + 1.0, tf.TensorSpec([2], tf.float32))
bound(np.ones(2, np.float32))
bound(np.ones(2, np.float32))
sys.modules["kept"] = bound
print("done")
"""


def test_bound_functions_that_are_left_at_exit_are_no_leak(fresh_python: Template) -> None:
    fresh_python.run_program(_AT_EXIT).assert_well("done\n")


# The check of TensorFlow's header.


@pytest.mark.parametrize("wrong", [0, 1, 2, None])
def test_a_context_that_cpp_cannot_read_is_left_to_python(
    monkeypatch: pytest.MonkeyPatch, wrong: int | None
) -> None:
    bindings = _library.load("hostcall._tensorflow")

    def settings(of: Any) -> Any:
        found = [*bindings.thread_settings(of)]
        if wrong is None:
            return None
        found[wrong] = object()
        return tuple(found)

    other = SimpleNamespace(thread_settings=settings, set_surroundings=bindings.set_surroundings)
    monkeypatch.setattr(plain_calls, "_library", SimpleNamespace(load=lambda _: other))
    assert not plain_calls._can_read_context.__wrapped__()


def test_this_context_can_be_read_and_stays_as_it_is() -> None:
    local = context.context()._thread_local_data
    before, local.function_call_options = local.function_call_options, None
    try:
        assert plain_calls._can_read_context.__wrapped__()
        assert local.function_call_options is None
    finally:
        local.function_call_options = before


def test_bound_functions_work_where_it_cannot(monkeypatch: pytest.MonkeyPatch, ways: Ways) -> None:
    monkeypatch.setattr(plain_calls, "_can_read_context", lambda: False)
    bound = hostcall.bind(jitted(add_one), SPEC)
    result, quick = ways.take(bound, X)
    np.testing.assert_array_equal(result, X + 1)
    assert not quick
