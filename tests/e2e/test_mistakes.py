"""Mistakes that people make: each message is short, and has their line and the line to write."""

import concurrent.futures
import dataclasses
import inspect
import itertools
import logging
import multiprocessing
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall
import hostcall.jax
from hostcall._compiler import announcements
from tests.support.helpers import jitted, plain

X = tf.constant([1.0, 2.0])
SPEC = tf.TensorSpec([2], tf.float32)
Y = jnp.array([1.0, 2.0])
STRUCT = jax.ShapeDtypeStruct((2,), jnp.float32)
AS_FLOAT32 = "return np.asarray(y, np.float32)"
LONGEST = 12  # lines of a message
LIMIT = 60.0  # seconds, for what is sure to come
WRONG_SIZE = "tf.TensorSpec([3], tf.float32)    # for result 0, if the function is right"
PADDED = "return np.array([*itertools.zip_longest(*y, fillvalue=0)], np.float32).T"


def doubled(x: Any) -> Any:
    return np.float64(2.0) * np.asarray(x, np.float64)


def forgotten(x: Any) -> Any:
    x + 1.0


def twice(x: Any) -> Any:
    return x, x


def once(x: Any) -> Any:
    return x


def listed(x: Any) -> Any:
    return [*np.asarray(x)]


def keyed(x: Any) -> Any:
    return {"a": x}


def added(x: Any, y: Any) -> Any:
    return x + y


def raises(x: Any) -> Any:
    raise LookupError("no such row")


def row(x: Any) -> Any:
    return np.reshape(x, (1, 2))


def longer(x: Any) -> Any:
    return np.append(x, x[:1])


def ragged(x: Any) -> Any:
    return ([x, x[:1]],)


ended = threading.Event()


def waits(x: Any) -> Any:
    ended.wait(LIMIT)
    return x


unnamed = lambda x: x  # noqa: E731


def first_upstream(inputs: Any, results: Any, upstream: Any) -> Any:
    return upstream


def of_first(inputs: Any, results: Any, upstream: Any) -> Any:
    return upstream[0]


def from_one(x: Any) -> Any:
    return tf.TensorSpec(x.shape, x.dtype)


def numpy_function(function: Any, tout: Any = SPEC) -> Any:
    return jitted(lambda x: tf.numpy_function(function, [x], tout))


def py_function(function: Any) -> Any:
    return jitted(lambda x: tf.ensure_shape(tf.py_function(function, [x], tf.float32), [2]))


def callback(function: Any, result: Any = SPEC, **options: Any) -> Any:
    return jitted(hostcall.callback(function, result=result, **options))


def called_by_jax(function: Any, result: Any = STRUCT) -> Any:
    return jax.jit(lambda x: hostcall.jax.call(function, result, x))


def of_declared() -> None:
    declared = hostcall.declare(lambda x, y: x, result=from_one)
    plain(lambda x: tf.numpy_function(declared, [x, x], tf.float32))(X)


def without_shape() -> None:
    with hostcall.scope(route="custom_call"):
        numpy_function(once, tf.float32)(X)


def differentiated(grad: Any) -> None:
    product = hostcall.callback(added, result=SPEC, grad=grad)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = jitted(lambda x: product(x, x))(X)
    tape.gradient(y, X)


squared = hostcall.callback(np.square, result=lambda x: x, grad=of_first)


def in_time(run: Callable[..., Any], x: Any) -> None:
    ended.clear()
    try:
        run(x)
    finally:
        ended.set()


def in_other_processes(function: Any) -> None:
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        callback(function, executor=pool)(X)


@dataclasses.dataclass
class Mistake:
    """A program with a mistake, the function that it is in, and what the message has to say."""

    run: Callable[[], Any]
    culprit: Any
    write: str


MISTAKES = {
    "another dtype": Mistake(lambda: numpy_function(doubled)(X), doubled, AS_FLOAT32),
    "another dtype of a callback": Mistake(lambda: callback(doubled)(X), doubled, AS_FLOAT32),
    "another dtype in eager mode": Mistake(
        lambda: hostcall.callback(doubled, result=SPEC)(X), doubled, AS_FLOAT32
    ),
    "another dtype in a plain graph": Mistake(
        lambda: plain(hostcall.callback(doubled, result=SPEC))(X), doubled, AS_FLOAT32
    ),
    "another dtype in JAX": Mistake(
        lambda: called_by_jax(doubled, jax.ShapeDtypeStruct((2,), jnp.int32))(Y),
        doubled,
        "return np.asarray(y, np.int32)",
    ),
    "another dtype of one of two": Mistake(
        lambda: callback(twice, (SPEC, tf.TensorSpec([2], tf.bfloat16)))(X),
        twice,
        "y1 = np.asarray(y1, ml_dtypes.bfloat16)",
    ),
    "two for one": Mistake(lambda: numpy_function(twice)(X), twice, "    return y\n"),
    "one for two": Mistake(lambda: callback(once, (SPEC, SPEC))(X), once, "return y0, y1"),
    "two for one in JAX": Mistake(lambda: called_by_jax(twice)(Y), twice, "    return y\n"),
    "two for one in eager mode": Mistake(
        lambda: hostcall.callback(twice, result=SPEC)(X), twice, "    return y\n"
    ),
    "a list for an array": Mistake(lambda: callback(listed)(X), listed, f"{AS_FLOAT32}    # y is"),
    "no return": Mistake(lambda: numpy_function(forgotten)(X), forgotten, "lacks its `return`"),
    "no return of a py_function": Mistake(
        lambda: py_function(forgotten)(X), forgotten, "lacks its `return`"
    ),
    "no return of a callback": Mistake(
        lambda: callback(forgotten)(X), forgotten, "lacks its `return`"
    ),
    "no return in eager mode": Mistake(
        lambda: hostcall.callback(forgotten, result=SPEC)(X), forgotten, "lacks its `return`"
    ),
    "no return in JAX": Mistake(
        lambda: called_by_jax(forgotten)(Y), forgotten, "lacks its `return`"
    ),
    "another key": Mistake(
        lambda: callback(keyed, {"a": SPEC, "b": SPEC})(X), keyed, "return {'a': ..., 'b': ...}"
    ),
    "another key in JAX": Mistake(
        lambda: called_by_jax(keyed, {"c": STRUCT})(Y), keyed, "return {'c': ...}"
    ),
    "no return of a structure": Mistake(
        lambda: callback(forgotten, {"a": SPEC})(X), forgotten, "lacks its `return`"
    ),
    "a shape function of one": Mistake(
        lambda: hostcall.callback(added, result=from_one)(X, X), from_one, "result=lambda x, y: ..."
    ),
    "a declared shape function of one": Mistake(of_declared, from_one, "result=lambda x, y: ..."),
    "a shape function of one in JAX": Mistake(
        lambda: hostcall.jax.call(added, from_one, Y, Y), from_one, "result=lambda x, y: ..."
    ),
    "no shape": Mistake(
        without_shape, once, "hostcall.declare(once, result=lambda x: tf.TensorSpec([...], "
    ),
    "a gradient of other arguments": Mistake(
        lambda: differentiated(once), once, "grad=lambda inputs, results, upstream: ..."
    ),
    "a gradient for one of two": Mistake(
        lambda: differentiated(first_upstream), first_upstream, "Return one for each argument"
    ),
    "a gradient of another shape in JAX": Mistake(
        lambda: jax.grad(lambda x: squared(x).sum())(Y), of_first, "the shape of its input"
    ),
    "an exception": Mistake(
        lambda: numpy_function(raises)(X), raises, 'raise LookupError("no such row")'
    ),
    "an exception of a callback": Mistake(
        lambda: callback(raises)(X), raises, "hostcall.last_error(e) returns the exception"
    ),
    "an exception in JAX": Mistake(
        lambda: called_by_jax(raises)(Y), raises, 'raise LookupError("no such row")'
    ),
    "too slow": Mistake(
        lambda: in_time(callback(waits, timeout=0.01), X), waits, "declare timeout=0.1."
    ),
    "a lambda for other processes": Mistake(
        lambda: in_other_processes(unnamed),
        unnamed,
        "executor=concurrent.futures.ThreadPoolExecutor(4)",
    ),
    "another shape": Mistake(lambda: numpy_function(longer)(X), longer, WRONG_SIZE),
    "another shape of a py_function": Mistake(lambda: py_function(longer)(X), longer, WRONG_SIZE),
    "another shape in JAX": Mistake(lambda: called_by_jax(longer)(Y), longer, WRONG_SIZE),
    "the elements in another shape": Mistake(
        lambda: callback(row)(X), row, "return np.reshape(y, (2,))"
    ),
    "more than the bound": Mistake(
        lambda: callback(longer, hostcall.BoundedSpec([2], tf.float32, [0]))(X),
        longer,
        "hostcall.BoundedSpec([3], tf.float32, [0])    # for result 0",
    ),
    "rows of different lengths": Mistake(lambda: callback(ragged)(X), ragged, PADDED),
    "rows of different lengths in JAX": Mistake(lambda: called_by_jax(ragged)(Y), ragged, PADDED),
    # Python's own traceback has the line of these.
    "no result of a callback": Mistake(
        lambda: hostcall.callback(once),  # type: ignore[call-overload]
        None,
        "@hostcall.callback(result=lambda x: tf.TensorSpec(x.shape, x.dtype))",
    ),
    "no result in JAX": Mistake(
        lambda: hostcall.jax.call(once, Y),
        None,
        "hostcall.jax.call(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)",
    ),
    "an option's name": Mistake(
        lambda: callback(once, statefull=False), None, "Did you mean 'stateful'?"
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_the_message_is_short_and_has_the_line_to_write(mistake: Mistake) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of many classes
        mistake.run()
    error = caught.value
    message = error.message if isinstance(error, tf.errors.OpError) else str(error)
    assert mistake.write in message
    if message.startswith("Graph execution error"):  # TensorFlow's list of frames comes first
        message = message.rpartition("\n\n")[2]
    assert len(message.splitlines()) < LONGEST
    if mistake.culprit is not None:
        line = inspect.unwrap(mistake.culprit).__code__.co_firstlineno
        assert f"{Path(__file__).name}:{line}" in message


@pytest.mark.parametrize("way", [plain, lambda function: function])
def test_tensorflows_kernels_write_more_lines_and_the_same_to_write(way: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        way(hostcall.callback(longer, result=SPEC))(X)
    message = caught.value.message
    assert WRONG_SIZE in message
    assert f"{Path(__file__).name}:{longer.__code__.co_firstlineno}" in message
    assert "hostcall_runtime/_" not in message
    assert isinstance(hostcall.last_error(caught.value), ValueError)


def test_what_is_declared_is_not_said_to_be_demanded() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        MISTAKES["more than the bound"].run()
    assert "nothing declares" not in caught.value.message


def test_the_padded_rows_are_an_array() -> None:
    y = [[1.0, 2.0], [3.0]]
    made = eval(PADDED.removeprefix("return "), {"np": np, "itertools": itertools, "y": y})
    np.testing.assert_array_equal(made, [[1.0, 2.0], [3.0, 0.0]])


def test_a_check_advises_what_the_error_does() -> None:
    for function, line in ((doubled, AS_FLOAT32), (forgotten, "return y"), (listed, AS_FLOAT32)):
        declared = hostcall.callback(function, result=SPEC)
        report = hostcall.check(declared, X, raise_errors=False)
        (written,) = {finding.line for finding in report.findings}
        assert line in written
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            jitted(declared)(X)
        (advised,) = re.findall(r"Write:\n    (.*)", caught.value.message)
        assert advised == written


def test_the_log_names_a_missing_shape_in_four_lines(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, auto_route: None
) -> None:
    monkeypatch.setattr(announcements, "_told", set())
    with caplog.at_level(logging.WARNING, "hostcall"):
        numpy_function(once, tf.float32)(X)
    (message,) = [r.getMessage() for r in caplog.records if r.name == "hostcall"]
    lines = message.splitlines()
    assert len(lines) == 4
    assert f"{Path(__file__).name}:{once.__code__.co_firstlineno}" in lines[0]
    assert (
        lines[2] == "    hostcall.declare(once, result=lambda x: tf.TensorSpec([...], tf.float32))"
    )


LOGGED = """
import tensorflow as tf, hostcall

@tf.function(jit_compile=True)
def program(x):
    return tf.numpy_function(lambda v: v, [x], tf.float32) + 1.0

with hostcall.scope(route="custom_call"):
    try:
        program(tf.ones([2]))
    except tf.errors.InvalidArgumentError as error:
        print(len(error.message.splitlines()))
"""


def test_tensorflow_logs_a_missing_shape_once() -> None:
    everything = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
    command = [sys.executable, "-c", LOGGED]
    ended = subprocess.run(command, env=everything, capture_output=True, text=True, check=True)
    assert int(ended.stdout) < LONGEST
    assert ended.stderr.count("nothing tells the shape of result 0") == 1
