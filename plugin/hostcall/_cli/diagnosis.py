"""What `hostcall doctor` finds: versions, private names, patches, and what is switched on."""

from __future__ import annotations

import dataclasses
import importlib
import os
import platform
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import hostcall
from hostcall import _control, _patches, _versions
from hostcall._callbacks import requested_routes
from hostcall_runtime import _library, _patching

VARIABLES = (
    "HOSTCALL_DISABLE",
    "HOSTCALL_ROUTE",
    "HOSTCALL_UNCOMPILABLE",
    "HOSTCALL_MAX_COMPILATIONS",
    "HOSTCALL_ASSERTIONS",
    "HOSTCALL_ALLOW",
    "HOSTCALL_WORKER_IMPORT",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)

# What registers them is _installation.py and csrc/tensorflow/script_op_kernel.cc.
_TARGETS = {"hostcall": ["Host", "CUDA"], "hostcall_native": ["Host"]}
_MODULES = ("hostcall_runtime._runtime", "hostcall._tensorflow")
_OPS = ["EagerPyFunc", "PyFunc", "PyFuncStateless"]
_DEVICES = {"XLA_CPU_JIT": "compiles", "XLA_GPU_JIT": "compiles, for NVIDIA GPUs"}


def report() -> dict[str, Any]:
    """All of it as dicts, lists, strings and numbers."""
    built, found = _versions.built(), _versions.found()
    jax = _load_jax()
    enabled = _control.is_enabled()
    return {
        "importable": True,
        "hostcall": hostcall.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "tensorflow": found.tensorflow,
        "jax": jax,
        "built_against": dataclasses.asdict(built),
        "found": dataclasses.asdict(found),
        "mismatches": _versions.mismatches(built, found),
        "modules": [_library.load(name).__file__ for name in _MODULES],
        "targets": _TARGETS if enabled else {},
        "kernels": dict.fromkeys(_OPS, _DEVICES) if enabled else {},
        "callbacks": _library.load("hostcall_runtime._runtime").size(),
        "enabled": enabled,
        "route": requested_routes.current(),
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "names": list(_names()),
        "patches": list(_replaced()),
        "permanent": [{"what": what, "why": why} for what, why in _patches.PERMANENT.items()],
    }


def _load_jax() -> dict[str, str | None]:
    """Loads hostcall.jax, for its table: JAX's version if it is installed, and what is wrong."""
    try:
        version = metadata.version("jax")
    except metadata.PackageNotFoundError:
        return {"version": None, "problem": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table tells what is missing
        try:
            importlib.import_module("hostcall.jax")
            tried = importlib.import_module("hostcall.jax._versions")
        except ImportError as error:
            return {"version": version, "problem": str(error)}
    return {"version": version, "problem": tried.untested(version)}


def _names() -> Iterator[dict[str, Any]]:
    """The private names in the tables of the frameworks."""
    for table in _patching.tables():
        missing = table.missing()
        for name in table.names:
            yield {
                "framework": table.framework,
                "name": str(name),
                "feature": name.feature,
                "found": name not in missing,
                "without": name.without,
            }


def _replaced() -> Iterator[dict[str, Any]]:
    """The patches in these tables."""
    for table in _patching.tables():
        for patch in table.patches:
            yield {
                "framework": table.framework,
                "target": patch.target,
                "installed": patch in table.installed,
                "feature": patch.feature,
                "why": patch.why,
            }
