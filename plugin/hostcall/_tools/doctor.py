"""The command `hostcall doctor`: what is installed, what is switched on, and a call that is tried.

It works with TensorFlow, with JAX alone, and says so where neither is installed.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import os
import platform
import textwrap
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import numpy as np

import hostcall
from hostcall import _control
from hostcall._report import Code
from hostcall_runtime import _library, _patching
from hostcall_runtime._errors import counted

_WIDTH = 80
_HAS_TENSORFLOW = importlib.util.find_spec("tensorflow") is not None
if _HAS_TENSORFLOW:
    importlib.import_module("tensorflow")  # and hostcall's side of it


def doctor(names: bool, as_json: bool) -> str:
    """Report on this installation."""
    found = report()
    return json.dumps(found, indent=2) if as_json else _text(found, names)


VARIABLES = (
    "HOSTCALL_DISABLE",
    "HOSTCALL_ROUTE",
    "HOSTCALL_UNCOMPILABLE",
    "HOSTCALL_MAX_COMPILATIONS",
    "HOSTCALL_SEMANTICS",
    "HOSTCALL_FUNCTIONS",
    "HOSTCALL_RANDOM_NUMBERS",
    "HOSTCALL_WARN_AFTER",
    "HOSTCALL_ASSERTIONS",
    "HOSTCALL_ALLOW",
    "HOSTCALL_NATIVE_PATH",
    "HOSTCALL_WORKERS",
    "HOSTCALL_WORKER_BYTES",
    "HOSTCALL_WORKER_CALLS",
    "HOSTCALL_WORKER_IMPORT",
    "HOSTCALL_WORKER_PYTHON",
    "HOSTCALL_WORKER_QUEUE",
    "HOSTCALL_WORKER_SOCKET",
    "HOSTCALL_WORKER_START",
    "HOSTCALL_WORKER_TIMEOUT",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)

# _installation.py and csrc/tensorflow/script_op_kernel.cc register these.
_TARGETS = {"hostcall": ["Host", "CUDA"], "hostcall_native": ["Host"]}
_RUNTIME = "hostcall_runtime._runtime"


def report() -> dict[str, Any]:
    """Return all facts as dicts, lists, strings and numbers."""
    with_tensorflow = _of_tensorflow() if _HAS_TENSORFLOW else _WITHOUT_TENSORFLOW
    jax = _load_jax()
    runtime = _library.load(_RUNTIME)
    return {
        "importable": True,
        "hostcall": hostcall.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        **with_tensorflow,
        "jax": jax,
        "modules": [str(runtime.__file__), *with_tensorflow["modules"]],
        "callbacks": runtime.size(),
        "enabled": _control.is_enabled(),
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "names": list(_names()),
        "patches": list(_replaced()),
        "calls": _calls(with_tensorflow["tensorflow"], jax["version"]),
    }


# The facts about TensorFlow in a process that has none.
_WITHOUT_TENSORFLOW: dict[str, Any] = {
    "tensorflow": None,
    "built_against": None,
    "found": None,
    "mismatches": [],
    "modules": [],
    "targets": {},
    "route": None,
    "permanent": [],
}


def _of_tensorflow() -> dict[str, Any]:
    """Return the facts about TensorFlow."""
    from hostcall import _installation, _versions
    from hostcall._ops import requested_routes

    built, found = _versions.built(), _versions.found()
    return {
        "tensorflow": found.tensorflow,
        "built_against": dataclasses.asdict(built),
        "found": dataclasses.asdict(found),
        "mismatches": _versions.mismatches(built, found),
        "modules": [str(_library.load("hostcall._tensorflow").__file__)],
        "targets": _TARGETS if _control.is_enabled() else {},
        "route": requested_routes.current(),
        "permanent": [{"what": what, "why": why} for what, why in _installation.PERMANENT.items()],
    }


def _calls(tensorflow: str | None, jax: str | None) -> dict[str, str]:
    """Make one call from a compiled program of each framework; return how each has ended."""
    tries = {"TensorFlow": (tensorflow, _call_in_tensorflow), "JAX": (jax, _call_in_jax)}
    return {name: _outcome(call) for name, (version, call) in tries.items() if version is not None}


def _outcome(call: Callable[[], Any]) -> str:
    try:
        value = float(call())
    except Exception as error:  # whatever is wrong with the installation
        return f"it raises {type(error).__name__}: {error}".partition("\n")[0]
    return "" if value == _EXPECTED else f"it returns {value}, and not {_EXPECTED}"


_EXPECTED = 3.0


def _next(x: Any) -> np.ndarray:
    return np.asarray(x + 1, np.float32)


def _call_in_tensorflow() -> object:
    tensorflow = importlib.import_module("tensorflow")
    called = hostcall.callback(_next, result=lambda x: x)
    return tensorflow.function(called, jit_compile=True)(tensorflow.constant(2.0))


def _call_in_jax() -> object:
    jax = importlib.import_module("jax")
    call = importlib.import_module("hostcall.jax").call
    return jax.jit(lambda x: call(_next, jax.ShapeDtypeStruct((), np.float32), x))(np.float32(2.0))


def _load_jax() -> dict[str, str | None]:
    """Load hostcall.jax for its table; return JAX's version, if installed, and its problem."""
    try:
        version = metadata.version("jax")
    except metadata.PackageNotFoundError:
        return {"version": None, "problem": None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table has the missing names
        try:
            importlib.import_module("hostcall.jax")
        except ImportError as error:
            return {"version": version, "problem": str(error)}
    return {"version": version, "problem": _patching.untested_jax(version)}


def _names() -> Iterator[dict[str, Any]]:
    """Yield the private names in the tables of the frameworks."""
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
    """Yield the patches in these tables."""
    for table in _patching.tables():
        for patch in table.patches:
            yield {
                "framework": table.framework,
                "target": patch.target,
                "installed": patch in table.installed,
                "feature": patch.feature,
                "why": patch.why,
            }


_VERSIONS = {
    "tensorflow": "TensorFlow",
    "ffi_api": "XLA's foreign function interface",
    "python": "Python",
    "cxx11_abi": "The flag of the C++11 ABI",
}


def _text(report: dict[str, Any], names: bool) -> str:
    """Return a report as a page for the terminal, which lists each private name if `names`."""
    variables = [f"{name}={value}" for name, value in report["environment"].items()]
    sections: dict[str, list[Any]] = {
        "Versions": _version_lines(report),
        "Compiled functions": _compiler(report),
        "Extension modules": [*map(Code, report["modules"])],
        "Environment variables": variables or [f"None of {', '.join(VARIABLES)} is set."],
        **dict(_frameworks(report, names)),
    }
    if report["permanent"]:
        sections["What stays in the process when hostcall is disabled"] = [
            f"{entry['what']}: {entry['why']}" for entry in report["permanent"]
        ]
    sections["A call from a compiled program"] = [
        f"{name}: {fault or 'it works.'}" for name, fault in report["calls"].items()
    ] or ["Neither TensorFlow nor JAX is installed."]
    state = "enabled" if report["enabled"] else "disabled: call hostcall.enable() to enable it"
    first = f"hostcall {report['hostcall']} is {state}."
    parts = [first, f"Python {report['python']}, {report['platform']}"]
    for title, lines in sections.items():
        parts += ["", title, *map(_indented, lines)]
    return "\n".join(parts)


def _indented(line: str) -> str:
    """Return a line that fits the terminal; a path stays whole."""
    if isinstance(line, Code):
        return f"  {line}"
    return textwrap.fill(
        line,
        _WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _version_lines(report: dict[str, Any]) -> list[str]:
    built, found = report["built_against"], report["found"]
    if built is None:
        lines = ["TensorFlow is not installed. JAX works without it."]
    else:
        lines = [
            f"{label}: built against {_dotted(built[key])}, found {_dotted(found[key])}"
            for key, label in _VERSIONS.items()
        ]
        mismatches = "; ".join(report["mismatches"])
        lines.append(f"These do not fit: {mismatches}" if mismatches else "They fit.")
    version, problem = report["jax"]["version"], report["jax"]["problem"]
    if version is None:
        return [*lines, "JAX is not installed. Only hostcall.jax needs it."]
    return [*lines, f"JAX: found {version}. {problem or 'hostcall.jax works with it.'}"]


def _dotted(version: Any) -> str:
    return ".".join(map(str, version)) if isinstance(version, list | tuple) else str(version)


def _compiler(report: dict[str, Any]) -> list[str]:
    functions = counted(report["callbacks"], "Python function")
    registered = f"Registered with compiled programs of this process: {functions}."
    if report["route"] is None:
        return [registered]
    route = f'Script ops take the route "{report["route"]}" unless another is asked for.'
    if not report["enabled"]:
        return ["Script ops do not compile, as hostcall is disabled.", route, registered]
    targets = [f"{name} on {', '.join(where)}" for name, where in report["targets"].items()]
    return [f"Custom call targets: {', '.join(targets)}.", route, registered]


def _frameworks(report: dict[str, Any], all_names: bool) -> Iterator[tuple[str, list[str]]]:
    for framework in dict.fromkeys(entry["framework"] for entry in report["names"]):
        names = [name for name in report["names"] if name["framework"] == framework]
        patches = [patch for patch in report["patches"] if patch["framework"] == framework]
        needed = f"Private names of {framework} that features of hostcall need"
        yield needed, _features(names, all_names)
        replaced = [
            f"{one['target']}: {'' if one['installed'] else 'not '}replaced. {one['why']}"
            for one in patches
        ]
        yield f"What hostcall replaces in {framework}", replaced or ["Nothing."]


def _features(names: list[dict[str, Any]], all_names: bool) -> list[str]:
    lines = []
    for feature in dict.fromkeys(name["feature"] for name in names):
        own = [name for name in names if name["feature"] == feature]
        if missing := [name for name in own if not name["found"]]:
            listed = ", ".join(name["name"] for name in missing)
            why = f"switched off. Missing: {listed}. Without it, {missing[0]['without']}"
        else:
            why = f"{counted(len(own), 'name')}, found"
        lines.append(f"{feature}: {why}")
        if all_names:
            lines += [Code(f"  {n['name']}: {'found' if n['found'] else 'missing'}") for n in own]
    return lines
