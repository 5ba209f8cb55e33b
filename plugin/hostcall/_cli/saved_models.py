"""SavedModels as files: explanations of their functions, and rewritten copies.

Both read them as messages and do not load them. So neither the objects nor the Python functions
that they were made from have to be there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hostcall._compiler import graph_pass
from hostcall._explain import explaining
from hostcall._explain.explanation import Explanation
from hostcall._inspect import inspecting
from hostcall._inspect.inspection import InspectionError
from hostcall._tf import function_defs as defs
from hostcall._tf import protos
from hostcall._tf.function_defs import with_defaults
from hostcall._tf.types import FunctionDefLibrary, Functions, MetaGraphDef, NodeDef

# TensorFlow's file with a checksum, which is wrong for a copy, and those with the model.
_FINGERPRINT = "fingerprint.pb"
_MODEL = "saved_model.pb"
_TEXT_MODEL = "saved_model.pbtxt"


def explain(path: Path, signature: str | None) -> list[Explanation]:
    """Explain the functions of a SavedModel.

    Args:
      path: its directory.
      signature: the signature to explain; None for all, or without signatures, for all functions
        that no other one calls.

    Raises:
      InspectionError: when there is no SavedModel, or it has no such signature.
    """
    graphs = _read(path).meta_graphs
    graph = next((one for one in graphs if "serve" in one.meta_info_def.tags), graphs[0])
    inspecting.of_saved_model(path)  # reads the pickles, which explanations mention
    known = sorted(name for name in graph.signature_def if name != inspecting.INIT)
    if signature is not None and signature not in known:
        names = ", ".join(map(repr, known)) or "none"
        raise InspectionError(f"{path} has no signature {signature!r}; it has {names}.")
    library = protos.function_pb2.FunctionDefLibrary()
    library.CopyFrom(graph.graph_def.library)
    wanted = known if signature is None else [signature]
    if not wanted:
        library = with_defaults(library)
        return [explaining.explain_library(library, name) for name in _roots(library)]
    library.function.extend([_signature_function(graph, name, library) for name in wanted])
    library = with_defaults(library)
    return [explaining.explain_library(library, _entry(name), title=name) for name in wanted]


def rewrite(path: Path, out: Path, route: str) -> list[str]:
    """Write a copy of a SavedModel with its compiled functions rewritten.

    Args:
      path: its directory.
      out: the directory of the copy, which must not exist.
      route: as for `hostcall.rewrite`.

    Returns:
      The names of the functions that were rewritten.

    Raises:
      InspectionError: when there is no SavedModel, or `out` exists.
      ValueError: as `hostcall.rewrite` does.
    """
    model = _read(path)
    if out.exists():
        raise InspectionError(f"{out} exists already.")
    changed = []
    for graph in model.meta_graphs:
        rewritten = graph_pass.rewrite(graph.graph_def, route)
        names = _changed(graph.graph_def.library, rewritten.library)
        graph.graph_def.CopyFrom(rewritten)
        _compile_no_more(graph.object_graph_def, names)
        changed += names
    skipped = shutil.ignore_patterns(_FINGERPRINT, _MODEL, _TEXT_MODEL)
    shutil.copytree(path, out, ignore=skipped)
    (out / _MODEL).write_bytes(model.SerializeToString(deterministic=True))
    return changed


def _read(path: Path) -> Any:
    if not path.is_dir():
        raise InspectionError(f"{path} is no directory.")
    return inspecting.read_saved_model(path)


def _changed(before: FunctionDefLibrary, after: FunctionDefLibrary) -> list[str]:
    compiled = {f.signature.name for f in before.function if defs.is_compiled(f)}
    return [
        f.signature.name
        for f in after.function
        if f.signature.name in compiled and not defs.is_compiled(f)
    ]


def _compile_no_more(objects: Any, names: list[str]) -> None:
    """Keep TensorFlow from compiling its wrappers of the functions when it loads them."""
    for node in objects.nodes:
        if set(node.function.concrete_functions) & set(names):
            node.function.function_spec.ClearField("jit_compile")


def _roots(library: FunctionDefLibrary) -> Iterator[str]:
    functions = {function.signature.name: function for function in library.function}
    called = {
        name
        for function in library.function
        for node in function.node_def
        for name in defs.called_functions(node, functions)
    }
    return (name for name in functions if name not in called)


def _entry(signature: str) -> str:
    return f"{signature} (signature)"  # unlike the name of any function


def _signature_function(graph: MetaGraphDef, signature: str, library: FunctionDefLibrary) -> Any:
    """Return the nodes of the graph that a signature runs, as a function."""
    functions = {function.signature.name: function for function in library.function}
    nodes = {node.name: node for node in graph.graph_def.node}
    pending = [defs.source(o.name) for o in graph.signature_def[signature].outputs.values()]
    needed = set()
    while pending:
        name = pending.pop()
        if name in nodes and name not in needed:
            needed.add(name)
            pending.extend(map(defs.source, nodes[name].input))
    function = protos.function_pb2.FunctionDef()
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
