"""Values whose sizes only the run knows: a sample of uses, and programs that users have sent in."""

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.dynamic.cases import GRADIENTS, MODES, Case, choose
from tests.dynamic.outcomes import RIGHT, TOO_LONG, Outcome
from tests.dynamic.running import run
from tests.support.helpers import assert_alike, jitted, plain, value_and_gradient

SEED, SAMPLE = 20, 25

X = tf.constant([0.1, -0.1, 0.6, 0.1, -0.5, 0.4])
SQUARE = tf.reshape(tf.range(4.0), [2, 2, 1, 1])


def check(program: Callable[..., Any], *args: Any) -> None:
    assert_alike(jitted(program)(*args), plain(program)(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.custom_call("its processes choose the routes themselves")
def test_a_sample_of_uses_is_right() -> None:
    found = run(itertools.islice(choose(SEED), SAMPLE))
    assert [(case.id, outcome) for case, outcome in found if outcome.failed] == []


# Users' programs: running totals of what a mask keeps, a tail of it, its one element broadcast,
# a gradient of a concatenation, the last beside a callback, places in what a mask keeps, rows in an
# array, gradients of branches that differ. Of the last three, one has an op of XLA's own in a
# cluster, one a factorization that computes no vectors, and one an argument that XLA knows.
USERS = (
    "mask/cumsum/print/none",
    "mask/chain/print/none",
    "mask/tail/print/none",
    "mask/times_full/print/none",
    "mask/concat_self/print/inside",
    "mask/last/numpy/none",
    "mask/roll/numpy/none",
    "free_mask/where_index/print/none",
    "mask_in_loop/where_index/print/none",
    "mask_in_branch/where_index/print/none",
    "cond_sizes/chain/print/outside",
    "array_concat/sum/print/none",
    "cond_sizes/matmul/numpy/inside",
    "bounded_rows/tf_slice/partition/inside",
    "fill/singular_values/numpy/outside",
    "repeat/where_zeros/print/outside",
)


@pytest.mark.custom_call("its processes choose the routes themselves")
def test_programs_of_users_are_right() -> None:
    found = {case.id: outcome for case, outcome in run(map(Case.of_id, USERS))}
    assert found == dict.fromkeys(USERS, Outcome(RIGHT))


def test_the_parts_of_a_partition_are_stitched_together() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        y, z = tf.dynamic_partition(x, tf.cast(x > 0.0, tf.int32), 2)
        n = tf.shape(y)[0]
        places = [tf.range(n), tf.range(n, n + tf.shape(z)[0])]
        return tf.dynamic_stitch(places, [y, z])

    check(program, X)


def test_the_gradient_of_turned_images_whose_tape_is_inside_or_outside() -> None:
    def turned(x: tf.Tensor) -> tf.Tensor:
        return tf.image.rot90(x, k=3) * x[:, ::-1]

    check(lambda x: value_and_gradient(turned, x), SQUARE)
    expected = value_and_gradient(plain(turned), SQUARE)
    assert_alike(value_and_gradient(jitted(turned), SQUARE), expected, rtol=1e-7)


class LastKept(keras.layers.Layer):
    def call(self, x: tf.Tensor) -> tf.Tensor:
        kept = tf.boolean_mask(x, tf.argsort(tf.reduce_sum(x, 1)) > 0)
        tf.print(tf.shape(kept), output_stream="file:///dev/null")  # stock XLA refuses it
        return x + kept[-1:]


def losses(jit: bool) -> list[float]:
    keras.utils.set_random_seed(0)
    layers = [keras.Input([4]), keras.layers.Dense(3), LastKept(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.SGD(0.001), "mse", jit_compile=jit)
    x = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    history = model.fit(x, x[:, :1], batch_size=4, epochs=2, shuffle=False, verbose=0).history
    return history["loss"]


def test_a_layer_that_uses_the_last_kept_row_trains_as_it_does_uncompiled() -> None:
    np.testing.assert_allclose(losses(True), losses(False), rtol=1e-4)


def test_a_case_that_ends_its_process_fails_alone() -> None:
    cases = [*itertools.islice(choose(SEED), 2)]
    found = [*run(cases, limit=0.001)]
    assert [(case, outcome.kind) for case, outcome in found] == [(c, TOO_LONG) for c in cases]


def test_an_id_repeats_a_case() -> None:
    cases = [*itertools.islice(choose(SEED), 3)]
    assert [Case.of_id(case.id) for case in cases] == cases


def test_each_pair_comes_once_in_a_pass() -> None:
    names = ["mask", "unique"], ["last", "sum", "sort"]
    cases = [*choose(SEED, *names)]
    assert len({*cases}) == len(cases) == 6 * len(MODES) * len(GRADIENTS)
    assert len({(case.source, case.use) for case in cases[:6]}) == 6
