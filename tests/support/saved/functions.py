"""The functions of models that are saved: the module that other processes import."""

import collections
import os  # a file must not reach it through this module
from os import system  # noqa: F401
from pathlib import Path  # noqa: F401
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.support.threads import meeting

Array = np.ndarray
Pair = collections.namedtuple("Pair", ["low", "high"])


def halve(v: Any) -> Any:
    return v / 2


def process(x: Any) -> Any:
    return np.int64(os.getpid())


def cube(x: Any) -> Any:
    return x * x * x


def summed_cubes(x: Any) -> Any:
    return tf.reduce_sum(x * x * x)


@hostcall.declare(pure=True)
def pure_cube(x: Any) -> Any:
    return x * x * x


def unique(x: Any) -> Any:
    return np.unique(x)


@hostcall.callback(result=lambda x: tf.TensorSpec([], x.dtype), vmap_method="expand_dims")
def largest(x: Any) -> Any:
    assert x.ndim > 1, x.shape
    return x.max(-1)


_meet = meeting(2)


def met(x: Any) -> Any:
    return _meet(x)


@hostcall.callback(result=lambda x: x, memory="device")
def doubled_where_it_lies(x: hostcall.DeviceArray) -> Any:
    return np.from_dlpack(x) * 2


def upper(texts: Any) -> Any:
    return np.array([t.decode().upper() for t in texts.ravel()], object).reshape(texts.shape)


def clipped(x: Any, low: float = 0.0, high: float = 1.0) -> Any:
    return np.clip(x, np.float32(low), np.float32(high))


def total(tensors: Any) -> Any:
    return Pair(tensors["a"] + tensors["b"][0], tensors["b"][1])


def ragged_sums(ragged: Any) -> Any:
    return tf.reduce_sum(ragged, axis=1)


@hostcall.callback(
    result=lambda x: {
        "low": tf.TensorSpec([], x.dtype),
        "both": (tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec(x.shape, tf.int32)),
    }
)
def structured(x: Any) -> Any:
    return {"low": x.min(), "both": (x + 1, x.astype(np.int32))}


@hostcall.callback(result=lambda x: hostcall.BoundedSpec(x.shape, x.dtype))
def distinct(x: Any) -> Any:
    return np.unique(x)


@hostcall.declare(out=True, result=lambda x: x)
def doubled_into(x: Any, out: Any) -> None:
    np.multiply(x, 2, out=out)


@hostcall.declare(memo=True, result=lambda x: x)
def remembered(x: Any) -> Any:
    return x + 1


class Scale:
    @staticmethod
    def triple(v: Any) -> Any:
        return v * 3

    def __call__(self, v: Any) -> Any:
        return v
