"""`hostcall doctor`: collects the facts, and prints them."""

from __future__ import annotations

import dataclasses
import importlib
import os
import platform
import textwrap
import warnings
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import hostcall
from hostcall import _control, _installation, _versions
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

# _installation.py and csrc/tensorflow/script_op_kernel.cc register these.
_TARGETS = {"hostcall": ["Host", "CUDA"], "hostcall_native": ["Host"]}
_MODULES = ("hostcall_runtime._runtime", "hostcall._tensorflow")
_OPS = ["EagerPyFunc", "PyFunc", "PyFuncStateless"]
_DEVICES = {"XLA_CPU_JIT": "compiles", "XLA_GPU_JIT": "compiles, for NVIDIA GPUs"}


def report() -> dict[str, Any]:
    """Return all facts as dicts, lists, strings and numbers."""
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
        "permanent": [{"what": what, "why": why} for what, why in _installation.PERMANENT.items()],
    }


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
_WIDTH = 100


def text(report: dict[str, Any], names: bool = False) -> str:
    """Return a report as a page for the terminal, which lists each private name if `names`."""
    variables = [f"{name}={value}" for name, value in report["environment"].items()]
    sections = {
        "Versions": _version_lines(report),
        "Compiled functions": _compiler(report),
        "Extension modules": report["modules"],
        "Environment variables": variables or [f"None of {', '.join(VARIABLES)} is set."],
        **dict(_frameworks(report, names)),
        "What stays in the process when hostcall is disabled": [
            f"{entry['what']}: {entry['why']}" for entry in report["permanent"]
        ],
    }
    state = "enabled" if report["enabled"] else "disabled: call hostcall.enable() to enable it"
    first = f"hostcall {report['hostcall']} is {state}.\n"
    pages = [f"{title}\n" + "\n".join(map(_indented, lines)) for title, lines in sections.items()]
    return "\n\n".join([first + f"Python {report['python']}, {report['platform']}", *pages])


def _indented(line: str) -> str:
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
    route = f'Script ops take the route "{report["route"]}" where nothing else is asked for.'
    count = report["callbacks"]
    functions = "1 Python function is" if count == 1 else f"{count} Python functions are"
    registered = f"{functions} registered with compiled programs of this process."
    if not report["enabled"]:
        return ["Script ops do not compile, as hostcall is disabled.", route, registered]
    targets = [f"{name} on {', '.join(where)}" for name, where in report["targets"].items()]
    return [
        f"Script ops that compile on CPUs: {', '.join(report['kernels'])}. On GPUs, an error says "
        "what to do.",
        f"Custom call targets: {', '.join(targets)}.",
        route,
        registered,
    ]


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
        missing = [name for name in own if not name["found"]]
        if missing:
            listed = ", ".join(name["name"] for name in missing)
            why = f"switched off. Missing: {listed}. Without it, {missing[0]['without']}"
        else:
            why = "1 name, found" if len(own) == 1 else f"{len(own)} names, all found"
        lines.append(f"{feature}: {why}")
        if all_names:
            lines += [f"  {n['name']}: {'found' if n['found'] else 'missing'}" for n in own]
    return lines
