"""Stateful calls run once each and in program order: straight-line code."""

from typing import Any

import pytest
import tensorflow as tf

from tests.support.e2e.journals import in_order, same_order
from tests.support.helpers import gradient_of

KINDS = ["numpy", "eager", "v1"]


@in_order(["first", "second"], tf.eye(50))
def test_a_later_call_with_ready_inputs_waits_for_an_earlier_one(journal: Any, x: Any) -> Any:
    slow = x
    for _ in range(20):
        slow = tf.linalg.matmul(slow, x)
    first = journal.numpy("first", slow)
    second = journal.numpy("second", x)
    return second, first


@pytest.mark.parametrize("kind", KINDS)
@in_order(["0", "1", "2", "3", "4"], tf.zeros([3]))
def test_calls_with_unused_results_run(journal: Any, x: tf.Tensor, *, kind: str) -> tf.Tensor:
    for i in range(5):
        getattr(journal, kind)(str(i), x)
    return x + 1.0


@in_order(["same"] * 3, tf.zeros([3]))
def test_equal_calls_are_not_shared(journal: Any, x: tf.Tensor) -> tf.Tensor:
    return journal.numpy("same", x) + journal.numpy("same", x) + journal.numpy("same", x)


@in_order(["constant"])
def test_a_call_of_constants_runs_each_time(journal: Any) -> tf.Tensor:
    return journal.numpy("constant", tf.constant([1.0, 2.0]))


@in_order([f"{kind} {i}" for i in range(12) for kind in ["say", *KINDS]], tf.zeros([2]))
def test_many_calls_of_all_kinds(journal: Any, x: tf.Tensor) -> list[tf.Tensor]:
    results = []
    for i in range(12):
        journal.say(f"say {i}")
        results += [getattr(journal, kind)(f"{kind} {i}", x) for kind in KINDS]
    return results


@pytest.mark.parametrize("size", [65_537, 300_000])
@pytest.mark.parametrize("kind", KINDS)
def test_large_arrays_which_xla_gives_to_its_pool_threads(kind: str, size: int) -> None:
    def program(journal: Any, x: tf.Tensor) -> list[tf.Tensor]:
        results = []
        for i in range(10):
            results.append(getattr(journal, kind)(str(i), x * float(i)))
            journal.say(f"after {i}")
        return results

    expected = [tag for i in range(10) for tag in (str(i), f"after {i}")]
    assert same_order(program, tf.range(size, dtype=tf.float32)) == expected


@in_order(["forward 2", "forward 5", "gradient 5", "gradient 2", "end"], tf.constant([2.0, 3.0]))
def test_a_gradient_call_runs_after_its_forward_call_and_what_followed(
    journal: Any, x: tf.Tensor
) -> Any:
    @tf.custom_gradient
    def noted(value: tf.Tensor) -> Any:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            journal.note(f"gradient {int(value[0])}")
            return 2.0 * value * upstream

        journal.note(f"forward {int(value[0])}")
        return value * value, gradient

    def call(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.py_function(noted, [x], tf.float32), [2])

    slope = gradient_of(lambda x: call(call(x) + 1.0), x)
    journal.say("end")
    return slope
