"""Exported programs compute the same in a process without TensorFlow, whole and partitioned."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import hostcall.jax
from tests.support.exported import across, exported, user_code
from tests.support.exported.exported import F3, X
from tests.support.helpers import jitted, to_numpy
from tests.support.stress.processes import Worker
from tests.support.versions import reads_programs_of_jax

bounded = hostcall.callback(
    user_code.unique, result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype, [0])
)
lent = hostcall.callback(user_code.negated, result=lambda x: x, out=True, borrow=True)
narrow = hostcall.callback(user_code.half_of_int4, result=lambda x: x, stateful=False)


def int4_inside(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(narrow(tf.cast(x, "int4")), tf.int32)


def less_than_a_byte(x: Any) -> Any:
    """Numbers that only JAX has, in a call and beside it."""
    for dtype in (jnp.int2, jnp.uint2, jnp.int4, jnp.uint4, jnp.float4_e2m1fn):
        small = jnp.abs(x).astype(dtype)
        called = hostcall.jax.call(user_code.flipped, small, small)
        x = x + called.astype(x.dtype) * 2 + small.astype(x.dtype)
    return x


PROGRAMS = exported.PROGRAMS | {
    "bounded": (lambda x: (bounded(tf.cos(x)), tf.reduce_sum(bounded(x))), (F3,), (X * X[::-1],)),
    "lent": (lambda x: lent(x) * 2.0, (F3,), (X,)),
    "int4": (int4_inside, (F3,), (X * 3,)),
    "less_than_a_byte": (
        hostcall.jax.to_tf(less_than_a_byte),
        (F3,),
        (np.array([0, 1, -1], np.float32),),
    ),
    "doubles": (
        exported.several_dtypes,
        (tf.TensorSpec([2], tf.float64), tf.TensorSpec([], tf.int64)),
        (np.array([np.pi, 1e300]), np.array(2**40)),
    ),
}


def save(folder: Path, name: str) -> Path:
    """The program and what it has to compute, in a directory."""
    function, specs, arguments = PROGRAMS[name]
    compiled = jitted(function)
    hostcall.export(compiled, *specs).save(folder / name / "program")
    user_code.seen.clear()
    returned = tf.nest.flatten(to_numpy(compiled(*arguments)))
    results = [value for value in returned if value.dtype != object]  # None has no array
    arrays = {f"in_{number}": value for number, value in enumerate(arguments)}
    arrays |= {f"out_{number}": value for number, value in enumerate(results)}
    np.savez(folder / name / "expected.npz", seen=np.array(user_code.seen), **arrays)
    return folder / name


@reads_programs_of_jax
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_without_tensorflow(name: str, tmp_path: Path, worker: Worker) -> None:
    folder = save(tmp_path, name)
    for partitioned in (False, True):
        worker.run(across.check, str(folder), partitioned, limit=60.0)
