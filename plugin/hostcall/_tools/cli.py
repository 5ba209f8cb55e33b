"""The implementations of the commands of `hostcall_command`, but for `doctor`.

Each takes the options of the command, returns the text to print, and raises an OSError, ValueError
or KeyError that says what is wrong with them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# TensorFlow comes first: importing it imports hostcall's TensorFlow side, without a cycle.
import tensorflow  # noqa: F401

from hostcall import _versions
from hostcall._compiler import graph_pass
from hostcall._saved.serving import worker as serving_worker
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import protos
from hostcall._tf.types import FunctionDef, FunctionDefLibrary, Functions, MetaGraphDef, NodeDef
from hostcall._tools import inspection as _inspect
from hostcall._tools.explain import explaining
from hostcall._tools.explain.explanation import Explanation, page
from hostcall._tools.inspection import InspectionError


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
