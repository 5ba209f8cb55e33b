"""Programs that call native code."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from tests.support.helpers import eagerly as eagerly
from tests.support.helpers import jitted, plain
from tests.support.helpers import partitioned as partitioned
from tests.support.native_code import functions

SIZE = ctypes.c_int64


def same(*specs: Any) -> Any:
    return specs[0]


def pointer(dtype: Any) -> Any:
    return ctypes.POINTER(np.ctypeslib.as_ctypes_type(np.dtype(dtype)))


FLOATS = pointer("float32")
# What next_float32 takes, and scale.
NEXT = (FLOATS, FLOATS, SIZE)
SCALE = (FLOATS, FLOATS, FLOATS, SIZE)


def of(name: str, *argtypes: Any, returns: Any = None, result: Any = same) -> Any:
    function = functions()[name]  # by index, and so a new one
    function.argtypes, function.restype = argtypes, returns
    return hostcall.native(function, result=result, name=name)


def called_on(native: Any, dtypes: Any = tf.float32) -> Callable[..., Any]:
    return lambda *tensors: tf.numpy_function(native, list(tensors), dtypes)


each_mode = pytest.mark.parametrize("mode", [eagerly, plain, jitted, partitioned])
in_graphs = pytest.mark.parametrize("mode", [plain, jitted, partitioned])
