"""A script that runs all programs of some files and prints their outcomes as JSON.

Environment variables: PROGRAMS names the files, V1 that of the function of
`tf.compat.v1` that makes the process one of TensorFlow 1, SWITCH those of hostcall to call first.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


def as_json(value: Any) -> Any:
    """Convert a value so that two processes can compare it, arrays with their dtypes."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    if isinstance(value, tf.Tensor | tf.IndexedSlices):
        value = tf.convert_to_tensor(value).numpy()
    if isinstance(value, np.ndarray | np.generic):
        return [str(np.asarray(value).dtype), np.asarray(value).astype(str).tolist()]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def outcome_of(function: Callable[[], Any]) -> Any:
    try:
        return as_json(function())
    except Exception as error:
        return {"raised": type(error).__name__, "text": str(error)}


if __name__ == "__main__":
    if os.environ.get("WITH_HOSTCALL") == "1":
        import hostcall

        for switch in os.environ.get("SWITCH", "").split():
            getattr(hostcall, switch)()
    if os.environ.get("SET_JIT") == "1":
        tf.config.optimizer.set_jit(True)
    if "V1" in os.environ:
        getattr(tf.compat.v1, os.environ["V1"])()
    files = map(importlib.import_module, os.environ["PROGRAMS"].split())
    programs = {name: function for file in files for name, function in file.PROGRAMS.items()}
    json.dump({name: outcome_of(function) for name, function in programs.items()}, sys.stdout)
