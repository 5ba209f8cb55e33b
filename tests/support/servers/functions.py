"""The functions of the models that are served: what workers import."""

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall

_folder = os.environ["SERVING_TEST_LIBRARIES"]
_library = ctypes.CDLL(f"{_folder}/libserving_test.so")
_handlers = ctypes.CDLL(f"{_folder}/libhandlers_test.so")
_floats = ctypes.POINTER(ctypes.c_float)


def _native(name: str, sizes: int, result: Any, status: bool = False) -> Any:
    function = _library[name]
    function.argtypes = [_floats, _floats] + [ctypes.c_int64] * sizes
    function.restype = ctypes.c_int32 if status else None
    return hostcall.native(function, result=result, name=name)


def _handler(name: str, result: Any, **attributes: Any) -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    capsule = make(ctypes.cast(_handlers[name], ctypes.c_void_p), None, None)
    return hostcall.native(capsule, result=result, name=name, attributes=attributes)


def _same(x: tf.TensorSpec) -> tf.TensorSpec:
    return tf.TensorSpec(x.shape, x.dtype)


plus_one = _native("plus_one", 1, _same)
sums = _native("sums", 2, lambda x: tf.TensorSpec(x.shape[:1], x.dtype))
root = _native("root", 0, _same, status=True)
append = _native("append", 0, _same)
odd = _native("plus_one", 1, lambda x: tf.TensorSpec([x.shape[0] // 2], x.dtype))

_scale: dict[str, Any] = {"word": "grüße", "factor": 2.0, "offset": 3, "negative": True}
scale = _handler("scale", _same, **_scale, half=np.float64(0.5))
scale_batches = hostcall.declare(
    _handler("scale", _same, **_scale, half=np.float64(0.5)), vmap_method="expand_dims"
)
later = _handler("later", _same)
on_pool = _handler("on_pool", tf.TensorSpec([], tf.int64))


def double(x: Any) -> Any:
    return x * np.float32(2)


@hostcall.declare(result=_same)
def thrice(x: Any) -> Any:
    return x * np.float32(3)


@hostcall.declare(result=_same, vmap_method="expand_dims")
def of_batches(x: Any) -> Any:
    return x * np.float32(5)


@hostcall.declare(result=_same, memory="device")
def on_device(x: Any) -> Any:
    return 7 * np.from_dlpack(x)


def shout(x: Any) -> Any:
    return np.asarray(f"{float(x[0]):.1f}!".encode(), object)


def refuse(x: Any) -> Any:
    raise ValueError("no such sensor")


@hostcall.declare(result=_same)
def die_once(x: Any) -> Any:
    """Ends the worker, the first time in the life of a folder."""
    marker = Path(os.environ["SERVING_TEST_MARKER"])
    if not marker.exists():
        marker.touch()
        os._exit(3)
    return x * np.float32(2)


def unique(x: Any) -> Any:
    return np.unique(x)
