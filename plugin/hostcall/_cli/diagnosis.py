"""What `hostcall doctor` says: versions, what was built against what, and what is switched on."""

from __future__ import annotations

import dataclasses
import os
import platform
from typing import Any

import hostcall
from hostcall import _control, _versions
from hostcall._callbacks import requested_routes
from hostcall_runtime import _library

_VARIABLES = ("HOSTCALL_DISABLE", "HOSTCALL_ROUTE", "TF_XLA_FLAGS", "XLA_FLAGS")

# What registers them is csrc/tensorflow: module.cc, and script_op_kernel.cc.
_TARGETS = {"hostcall": ["Host"], "hostcall_native": ["Host"]}
_MODULES = ("hostcall_runtime._runtime", "hostcall._tensorflow")
_OPS = ["EagerPyFunc", "PyFunc", "PyFuncStateless"]
_DEVICES = {"XLA_CPU_JIT": "compiles", "XLA_GPU_JIT": "answers with an error that says what to do"}


def report() -> dict[str, Any]:
    """All of it as dicts, lists, strings and numbers."""
    built, found = _versions.built(), _versions.found()
    enabled = _control.is_enabled()
    return {
        "importable": True,
        "hostcall": hostcall.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "tensorflow": found.tensorflow,
        "built_against": dataclasses.asdict(built),
        "found": dataclasses.asdict(found),
        "mismatches": _versions.mismatches(built, found),
        "modules": [_library.load(name).__file__ for name in _MODULES],
        "targets": _TARGETS if enabled else {},
        "kernels": dict.fromkeys(_OPS, _DEVICES) if enabled else {},
        "callbacks": _library.load("hostcall_runtime._runtime").size(),
        "enabled": enabled,
        "route": requested_routes.current(),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """A report as rows: what, and its value."""
    built, found = report["built_against"], report["found"]
    versions = [
        (name, f"built against {_shown(built[name])}, found {_shown(found[name])}")
        for name in ("tensorflow", "ffi_api", "python", "cxx11_abi")
    ]
    targets = [f"{name} on {', '.join(platforms)}" for name, platforms in report["targets"].items()]
    variables = [f"{name}={value}" for name, value in report["environment"].items()]
    return [
        ("hostcall", report["hostcall"]),
        ("platform", f"Python {report['python']}, {report['platform']}"),
        *versions,
        ("fits", "yes" if not report["mismatches"] else "; ".join(report["mismatches"])),
        ("modules", "\n".join(report["modules"])),
        ("enabled", "yes" if report["enabled"] else "no: call hostcall.enable()"),
        ("route", report["route"]),
        ("targets", ", ".join(targets) or "none"),
        ("kernels", ", ".join(report["kernels"]) or "none"),
        ("callbacks", f"{report['callbacks']} registered"),
        ("environment", "\n".join(variables) or "nothing set"),
    ]


def _shown(version: Any) -> str:
    return ".".join(map(str, version)) if isinstance(version, list | tuple) else str(version)
