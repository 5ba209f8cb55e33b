"""Calls within calls within calls: where the stack of the thread, or Python's recursion, ends."""

import gc
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import tensorflow as tf

import hostcall
from tests.support.device import DEVICE
from tests.support.helpers import assert_says, failure, jitted
from tests.support.versions import calls_from_the_device, on_the_callers_thread

SPEC = tf.TensorSpec([], tf.float32)
FAR = 1_000_000.0


@pytest.fixture(params=["custom_call", "partition"])
def build(request: Any) -> Iterator[Any]:
    with hostcall.scope(route=request.param):
        yield jitted


@pytest.fixture(params=["one function", "a new function a level"])
def nested(request: Any, build: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    """A program whose callback calls it again, or another one like it, down to 0."""

    def numpy_step(x: Any) -> Any:
        return x if x == 0.0 else run(tf.constant(x - 1.0)).numpy()

    def eager_step(x: tf.Tensor) -> tf.Tensor:
        return x if x == 0.0 else run(x - 1.0)

    functions = [
        lambda x: tf.py_function(eager_step, [x], SPEC) + 1.0,
        lambda x: tf.numpy_function(numpy_step, [x], SPEC) + 1.0,
    ]

    def in_turn(x: tf.Tensor) -> tf.Tensor:
        return build(functions[int(x) % 2])(x)

    run = build(functions[1]) if request.param == "one function" else in_turn
    return run


def on_thread(stack_kib: int, call: Callable[[], Any]) -> Any:
    """Run `call` on a thread with a stack of that size and deep recursion; return its result."""
    returned: list[Any] = []
    limit, size = sys.getrecursionlimit(), threading.stack_size(stack_kib << 10)
    try:
        thread = threading.Thread(target=lambda: returned.append(call()))
        sys.setrecursionlimit(1_000_000)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    return returned[0]


@on_the_callers_thread  # which has the stack that the test gives it
@pytest.mark.parametrize("stack_kib", [512, 1024])
def test_calls_are_refused_before_the_stack_ends(nested: Any, stack_kib: int) -> None:
    def fail_and_go_on() -> Any:
        return [failure(nested, tf.constant(FAR)), nested(tf.constant(3.0))]

    error, later = on_thread(stack_kib, fail_and_go_on)
    assert float(later) == 4.0
    text = str(error)
    assert "ResourceExhaustedError: Calls of compiled programs into Python are nested" in text
    # The C library may give the thread the stack of one that has ended, up to four times as large.
    named = re.search(r"the stack of their thread \((\d+) KiB\)", text)
    assert named is not None
    assert stack_kib <= int(named[1]) <= 4 * stack_kib
    assert_says(text, "threading.stack_size(", "_step (", f"called at {__file__}:")
    assert text.count("Passed on by") > 2


def test_on_a_large_stack_calls_nest_deep(build: Any) -> None:
    def step(x: Any) -> Any:
        return x if x == 0.0 else run(tf.constant(x - 1.0)).numpy()

    run = build(lambda x: tf.numpy_function(step, [x], SPEC) + 1.0)
    assert float(on_thread(32 * 1024, lambda: run(tf.constant(600.0)))) == 601.0


@calls_from_the_device
def test_a_single_call_is_not_refused_on_a_small_stack(build: Any) -> None:
    run = build(lambda x: tf.numpy_function(lambda v: v * 2, [x], SPEC) + 1.0)
    run(tf.constant(1.0))
    assert float(on_thread(128, lambda: run(tf.constant(3.0)))) == 7.0


@on_the_callers_thread  # each of the others is one more
@pytest.mark.parametrize("op", [tf.numpy_function, tf.py_function])
def test_wherever_pythons_recursion_ends_there_is_an_error(
    build: Any, op: Any, request: Any
) -> None:
    if DEVICE.startswith("GPU") and request.node.callspec.params["build"] == "partition":
        pytest.skip("each level runs on a thread of its own, and a recursion ends on none")

    def step(x: Any) -> Any:
        return run(tf.constant(float(x) - 1.0)).numpy()

    run = build(lambda x: op(step, [x], SPEC) + 1.0)
    run.get_concrete_function(SPEC)
    tf.constant(1.0).numpy()  # TensorFlow waits for ever where its first one meets the limit
    limit, depth = sys.getrecursionlimit(), 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    texts = []
    gc.disable()  # finalizers of other tests' objects could make no calls there
    try:
        for room in range(120, 160):
            sys.setrecursionlimit(depth + room)
            texts.append(str(failure(run, tf.constant(FAR))))
    finally:
        sys.setrecursionlimit(limit)
        gc.enable()
    # TensorFlow has a text of its own for such an error while it binds arguments.
    assert all("maximum recursion depth exceeded" in text for text in texts)
    assert max(map(len, texts)) < 20_000
