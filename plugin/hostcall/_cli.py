"""The implementations of the commands of `hostcall_command`.

Each takes the options of the command, returns the text to print, and raises an OSError, ValueError
or KeyError that says what is wrong with them.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import platform
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

# TensorFlow comes first: importing it imports hostcall's TensorFlow side, without a cycle.
import tensorflow  # noqa: F401

import hostcall
from hostcall import _control, _inspect, _installation, _report, _versions
from hostcall._callbacks import requested_routes
from hostcall._compiler import graph_pass
from hostcall._explain import explaining
from hostcall._explain.explanation import Explanation, page
from hostcall._inspect import InspectionError
from hostcall._report import Code
from hostcall._serving import worker as serving_worker
from hostcall._tf import function_defs as defs
from hostcall._tf import protos
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, MetaGraphDef, NodeDef
from hostcall_runtime import _library, _patching
from hostcall_runtime._errors import counted


def explain(saved_model: Path, signature: str | None, html: Path | None, as_json: bool) -> str:
    """Explain one signature of a SavedModel, or all, and write them on a page if one is wanted."""
    found = explain_saved_model(saved_model, signature)
    if html is not None:
        html.write_text(page(*found), encoding="utf-8")
    if as_json:
        return json.dumps([explanation.to_dict() for explanation in found], indent=2)
    return "\n\n".join(map(str, found))


def inspect(path: Path, as_json: bool) -> str:
    """List the Python functions that a file names."""
    found = _inspect.inspect(path)
    return json.dumps(found.to_dict(), indent=2) if as_json else str(found)


def rewrite(saved_model: Path, out: Path, route: str, as_json: bool) -> str:
    """Write a copy of a SavedModel with its compiled functions rewritten."""
    changed = rewrite_saved_model(saved_model, out, route)
    if as_json:
        return json.dumps({"out": str(out), "route": route, "rewritten": changed}, indent=2)
    what = ", ".join(changed) or "nothing: no compiled function has to be partitioned"
    return f"Wrote {out}. Rewritten: {what}."


def doctor(names: bool, as_json: bool) -> str:
    """Report versions, the build of hostcall, and the features that are switched on."""
    report = doctor_report()
    return json.dumps(report, indent=2) if as_json else _doctor_text(report, names)


# These commands are functions of other modules as they are.
serving_library, worker = _versions.serving_library, serving_worker.run


# The files with the model, and TensorFlow's with a checksum, which is wrong for a copy.
_MODEL, _TEXT_MODEL, _FINGERPRINT = "saved_model.pb", "saved_model.pbtxt", "fingerprint.pb"


def explain_saved_model(path: Path, signature: str | None) -> list[Explanation]:
    """Explain one signature of a SavedModel, or all: without any, all functions that none calls."""
    graphs = _inspect.read_saved_model(path).meta_graphs
    graph = next((one for one in graphs if "serve" in one.meta_info_def.tags), graphs[0])
    _inspect.inspect_saved_model(path)  # reads the pickles, which explanations mention
    known = sorted(name for name in graph.signature_def if name != _inspect.INIT)
    if signature is not None and signature not in known:
        names = ", ".join(map(repr, known)) or "none"
        raise InspectionError(f"{path} has no signature {signature!r}; it has {names}.")
    library = protos.function_pb2.FunctionDefLibrary()
    library.CopyFrom(graph.graph_def.library)
    wanted = known if signature is None else [signature]
    if not wanted:
        library = defs.with_defaults(library)
        return [explaining.explain_library(library, name) for name in _roots(library)]
    library.function.extend([_signature_function(graph, name, library) for name in wanted])
    library = defs.with_defaults(library)
    return [explaining.explain_library(library, _entry(name), title=name) for name in wanted]


def rewrite_saved_model(path: Path, out: Path, route: str) -> list[str]:
    """Write a copy of a SavedModel, and return the names of the functions that were rewritten."""
    model = _inspect.read_saved_model(path)
    if out.exists():
        raise InspectionError(f"{out} exists already.")
    changed = []
    for graph in model.meta_graphs:
        rewritten = graph_pass.rewrite(graph.graph_def, route)
        names = _changed(graph.graph_def.library, rewritten.library)
        graph.graph_def.CopyFrom(rewritten)
        for node in graph.object_graph_def.nodes:
            if set(node.function.concrete_functions) & set(names):
                # TensorFlow would compile its wrapper of the function when it loads it.
                node.function.function_spec.ClearField("jit_compile")
        changed += names
    shutil.copytree(path, out, ignore=shutil.ignore_patterns(_FINGERPRINT, _MODEL, _TEXT_MODEL))
    (out / _MODEL).write_bytes(model.SerializeToString(deterministic=True))
    return changed


def _changed(before: FunctionDefLibrary, after: FunctionDefLibrary) -> list[str]:
    compiled = {f.signature.name for f in before.function if defs.is_compiled(f)}
    return [
        f.signature.name
        for f in after.function
        if f.signature.name in compiled and not defs.is_compiled(f)
    ]


def _roots(library: FunctionDefLibrary) -> Iterator[str]:
    functions = defs.by_name(library)
    nodes = defs.all_nodes(library)
    called = {name for node in nodes for name in defs.called_functions(node, functions)}
    return (name for name in functions if name not in called)


def _entry(signature: str) -> str:
    return f"{signature} (signature)"  # unlike the name of any function


def _signature_function(
    graph: MetaGraphDef, signature: str, library: FunctionDefLibrary
) -> FunctionDef:
    """Return the nodes of the graph that a signature runs, as a function."""
    functions = defs.by_name(library)
    nodes = {node.name: node for node in graph.graph_def.node}
    outputs = graph.signature_def[signature].outputs.values()
    needed = _inspect.reached_from(graph.graph_def, {defs.source(o.name): [] for o in outputs})
    function: FunctionDef = protos.function_pb2.FunctionDef()
    function.signature.name = _entry(signature)
    for name in (node.name for node in graph.graph_def.node if node.name in needed):
        added = function.node_def.add()
        added.CopyFrom(nodes[name])
        added.input[:] = _function_inputs(nodes[name].input, nodes, functions)
    return function


def _function_inputs(
    values: Iterable[str], nodes: Mapping[str, NodeDef], functions: Functions
) -> Iterator[str]:
    """Yield inputs as functions write them, `node:result:index`, from `node:number`."""
    for value in values:
        if value.startswith("^"):
            yield value
            continue
        name, _, number = value.partition(":")
        left = int(number or 0)
        for result, types in defs.output_types(nodes[name], functions).items():
            if left < len(types):
                yield f"{name}:{result}:{left}"
                break
            left -= len(types)


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
    "HOSTCALL_WORKER_IMPORT",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)

# _installation.py and csrc/tensorflow/script_op_kernel.cc register these.
_TARGETS = {"hostcall": ["Host", "CUDA"], "hostcall_native": ["Host"]}
_MODULES = ("hostcall_runtime._runtime", "hostcall._tensorflow")


def doctor_report() -> dict[str, Any]:
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


def _doctor_text(report: dict[str, Any], names: bool) -> str:
    """Return a report as a page for the terminal, which lists each private name if `names`."""
    variables = [f"{name}={value}" for name, value in report["environment"].items()]
    sections: dict[str, list[Any]] = {
        "Versions": _version_lines(report),
        "Compiled functions": _compiler(report),
        "Extension modules": [*map(Code, report["modules"])],
        "Environment variables": variables or [f"None of {', '.join(VARIABLES)} is set."],
        **dict(_frameworks(report, names)),
        "What stays in the process when hostcall is disabled": [
            f"{entry['what']}: {entry['why']}" for entry in report["permanent"]
        ],
    }
    state = "enabled" if report["enabled"] else "disabled: call hostcall.enable() to enable it"
    first = f"hostcall {report['hostcall']} is {state}."
    parts = [first, f"Python {report['python']}, {report['platform']}"]
    for title, lines in sections.items():
        parts += ["", title, *(type(line)(f"  {line}") for line in lines)]
    return _report.as_text(parts)


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
    functions = counted(report["callbacks"], "Python function")
    registered = f"Registered with compiled programs of this process: {functions}."
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
