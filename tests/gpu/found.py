"""The GPUs of this machine: the driver, its devices, and those that TensorFlow and JAX see."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import subprocess
import sys
from importlib.metadata import distributions

from tests.support.native.modules import ROOT

# The exit status that automake takes for a skipped test: neither a success nor a failure.
NO_GPU = 77

_DRIVER = "libcuda.so.1"
_PLUGINS = ["jax-cuda12-plugin", "jax-cuda13-plugin"]
_WHEELS = ["tensorflow", "tensorflow-cpu", "jax", "jaxlib", *_PLUGINS]
# tests.support.device comes first, since it may add a GPU that is none.
_TENSORFLOW = """
import tests.support.device, json, tensorflow as tf
print(json.dumps([gpu.name for gpu in tf.config.list_physical_devices("GPU")]))
"""
_JAX = """
import json, jax
print(json.dumps([str(gpu) for gpu in jax.devices("cuda")]))
"""


@dataclasses.dataclass(frozen=True)
class Found:
    """What this machine has: the driver or its error, and the GPUs that each of them sees."""

    driver: str
    gpus: tuple[str, ...]
    wheels: dict[str, str]
    tensorflow: tuple[str, ...]
    jax: tuple[str, ...]

    def __str__(self) -> str:
        wheels = [f"{name} {version}" for name, version in self.wheels.items()]
        titles = ("GPUs", "wheels", "TensorFlow sees", "JAX sees")
        lists = (self.gpus, wheels, self.tensorflow, self.jax)
        pairs = zip(titles, lists, strict=True)
        lines = [f"{title}: {', '.join(names) or 'none'}" for title, names in pairs]
        return "\n".join([f"driver: {self.driver}", *lines])


def find() -> Found:
    """Looks for all of it; TensorFlow and JAX look in processes of their own."""
    driver, gpus = _ask_driver()
    wheels = {name: each.version for name in _WHEELS for each in distributions(name=name)}
    return Found(driver, gpus, wheels, _seen(_TENSORFLOW), _seen(_JAX, JAX_PLATFORMS="cuda"))


def _ask_driver() -> tuple[str, tuple[str, ...]]:
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError as error:
        return f"none ({error})", ()
    if status := driver.cuInit(0):
        return f"{_DRIVER} finds no device: cuInit returns {status}", ()
    number, count = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(number))
    driver.cuDeviceGetCount(ctypes.byref(count))
    names = []
    for device in range(count.value):
        name = ctypes.create_string_buffer(256)
        driver.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode())
    major, rest = divmod(number.value, 1000)
    return f"{_DRIVER}, for CUDA {major}.{rest // 10}", tuple(names)


def _seen(script: str, **variables: str) -> tuple[str, ...]:
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    # JAX says by an error that it has no such devices.
    return tuple(json.loads(ended.stdout.splitlines()[-1])) if ended.returncode == 0 else ()
