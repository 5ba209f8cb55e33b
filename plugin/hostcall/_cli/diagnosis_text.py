"""The report of `hostcall doctor` in sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from hostcall._cli.diagnosis import VARIABLES

_VERSIONS = {
    "tensorflow": "TensorFlow",
    "ffi_api": "XLA's foreign function interface",
    "python": "Python",
    "cxx11_abi": "The flag of the C++11 ABI",
}
_WIDTH = 100


def text(report: dict[str, Any], names: bool = False) -> str:
    """The report of `diagnosis.report` as a page for the terminal.

    Args:
      report: the report.
      names: whether each private name is listed, or a missing one alone.
    """
    sections = {
        "Versions": _versions(report),
        "Compiled functions": _compiler(report),
        "Extension modules": report["modules"],
        "Environment variables": _environment(report),
        **dict(_frameworks(report, names)),
        "What stays in the process when hostcall is disabled": _permanent(report),
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


def _versions(report: dict[str, Any]) -> list[str]:
    built, found = report["built_against"], report["found"]
    lines = [
        f"{label}: built against {_dotted(built[key])}, found {_dotted(found[key])}"
        for key, label in _VERSIONS.items()
    ]
    if report["mismatches"]:
        lines.append("These do not fit: " + "; ".join(report["mismatches"]))
    else:
        lines.append("They fit.")
    return [*lines, _jax(**report["jax"])]


def _jax(version: str | None, problem: str | None) -> str:
    if version is None:
        return "JAX is not installed. Only hostcall.jax needs it."
    return f"JAX: found {version}. {problem or 'hostcall.jax works with it.'}"


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


def _environment(report: dict[str, Any]) -> list[str]:
    variables = [f"{name}={value}" for name, value in report["environment"].items()]
    return variables or [f"None of {', '.join(VARIABLES)} is set."]


def _frameworks(report: dict[str, Any], all_names: bool) -> Iterator[tuple[str, list[str]]]:
    for framework in dict.fromkeys(entry["framework"] for entry in report["names"]):
        names = [name for name in report["names"] if name["framework"] == framework]
        patches = [patch for patch in report["patches"] if patch["framework"] == framework]
        yield (
            f"Private names of {framework} that features of hostcall need",
            _features(names, all_names),
        )
        yield f"What hostcall replaces in {framework}", _replaced(patches)


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


def _replaced(patches: list[dict[str, Any]]) -> list[str]:
    if not patches:
        return ["Nothing."]
    return [
        f"{patch['target']}: {'replaced' if patch['installed'] else 'not replaced'}. {patch['why']}"
        for patch in patches
    ]


def _permanent(report: dict[str, Any]) -> list[str]:
    return [f"{entry['what']}: {entry['why']}" for entry in report["permanent"]]
