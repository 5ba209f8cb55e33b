"""The files that `hostcall.inspect` reads: graphs, Keras models, exported programs."""

from __future__ import annotations

import functools
import importlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from hostcall._inspect import script_ops
from hostcall._inspect.inspection import Inspection, InspectionError, PythonFunction, Use, merged
from hostcall._saving import functions
from hostcall._tf import concrete_functions, script_op_graphs
from hostcall._tf import function_defs as defs
from hostcall._tf.types import GraphDef, MetaGraphDef
from hostcall_runtime._errors import ProgramError

# A signature that TensorFlow adds by itself.
INIT = "__saved_model_init_op"
_CARRIED_APART = (
    "Pickles lie beside the graph in a SavedModel, and nowhere else: a graph of its own has none."
)


def read_saved_model(path: Path) -> Any:
    """Return the message of a SavedModel, which has a graph at least.

    Raises:
      InspectionError: when it cannot be read.
    """
    try:
        model = concrete_functions.read_saved_model(str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise InspectionError(f"{path} holds no SavedModel that can be read: {reason}") from error
    if not model.meta_graphs:
        raise InspectionError(f"{path} holds a SavedModel without a graph.")
    return model


def of_saved_model(path: Path) -> Inspection:
    """Return the functions of a SavedModel.

    Raises:
      InspectionError: when it cannot be read.
    """
    graphs = read_saved_model(path).meta_graphs
    functions = []
    for graph in graphs:
        tags = f" ({', '.join(graph.meta_info_def.tags)})" if len(graphs) > 1 else ""
        functions += _functions(graph.graph_def, _roots(graph), str(path), tags)
    return Inspection(str(path), "SavedModel", merged(functions))


def of_graph(path: Path) -> Inspection:
    """Return the functions of a GraphDef, or of the MetaGraphDef in a .meta file.

    Raises:
      InspectionError: when it cannot be read.
    """
    v1 = tf.compat.v1
    message: Any = v1.MetaGraphDef() if path.suffix == ".meta" else v1.GraphDef()
    name, data = message.DESCRIPTOR.name, path.read_bytes()
    try:
        if path.suffix == ".pbtxt":
            text_format.Parse(data.decode(), message)
        else:
            message.ParseFromString(data)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise InspectionError(f"{path} holds no {name} that can be read: {reason}") from error
    is_meta = isinstance(message, v1.MetaGraphDef)
    graph, roots = (message.graph_def, _roots(message)) if is_meta else (message, {})
    found = merged(_functions(graph, roots, None, ""))
    notes = (_CARRIED_APART,) if any(function.pickle for function in found) else ()
    return Inspection(str(path), name, found, notes)


def _functions(
    graph: GraphDef, roots: Mapping[str, list[str]], directory: str | None, tags: str
) -> list[PythonFunction]:
    """Return the functions that the nodes of a graph name, with a use each.

    Args:
      graph: the graph.
      roots: the user's names for functions and nodes of the graph, such as signatures.
      directory: the directory of the SavedModel, for pickles.
      tags: the suffix for the names of a graph among several.
    """
    reached = _reached_from(graph, roots)
    shapes = script_ops.Shapes(graph)
    found: list[PythonFunction] = []
    for function, node in script_op_graphs.nodes_by_function(graph):
        of = reached.get(function or node.name) or ([function] if function else ["the graph"])
        use = script_ops.Place(tuple(f"{name}{tags}" for name in of), function, node, shapes)
        found += script_ops.functions_of(use, directory)
    return found


def _roots(graph: MetaGraphDef) -> dict[str, list[str]]:
    """Return the user's names for the functions and nodes of a MetaGraphDef."""
    roots: dict[str, list[str]] = {}
    for name, signature in graph.signature_def.items():
        if name != INIT:
            for output in signature.outputs.values():
                roots.setdefault(output.name.partition(":")[0], []).append(f"signature {name}")
    for path, node in _objects(graph.object_graph_def):
        for function in node.function.concrete_functions:
            roots.setdefault(function, []).append(path)
    return roots


def _objects(graph: Any) -> Iterable[tuple[str, Any]]:
    """Yield the objects of a SavedModel, with the path of each from its root: "encoder.layer"."""
    seen, pending = {0}, [("", 0)] if graph.nodes else []
    while pending:
        path, number = pending.pop(0)
        yield path, graph.nodes[number]
        for child in graph.nodes[number].children:
            if child.node_id not in seen and 0 <= child.node_id < len(graph.nodes):
                seen.add(child.node_id)
                name = f"{path}.{child.local_name}" if path else child.local_name
                pending.append((name, child.node_id))


def _reached_from(graph: GraphDef, roots: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the user's names that lead to each function and node of the graph."""
    functions = {function.signature.name: function for function in graph.library.function}
    nodes = {node.name: node for node in graph.node}
    reached: dict[str, list[str]] = {}
    for root, names in roots.items():
        seen, pending = {root}, [root]
        while pending:
            at = pending.pop()
            reached[at] = list(dict.fromkeys([*reached.get(at, []), *names]))
            inputs = nodes[at].input if at in nodes else ()
            steps = [value.removeprefix("^").partition(":")[0] for value in inputs]
            inside = functions[at].node_def if at in functions else [nodes[at]] * (at in nodes)
            steps += [name for node in inside for name in defs.called_functions(node, functions)]
            pending += [step for step in steps if step not in seen]
            seen.update(steps)
    return reached


# The modules that Keras imports by itself, and those where it looks up functions named by strings.
_KERAS = ("keras", "keras_hub", "keras_cv", "keras_nlp")
_PARTS = ("activations", "losses", "metrics", "initializers", "regularizers", "constraints")
_NOTE = (
    "A .keras file holds no graph: Keras builds the model anew from its classes, and calls the "
    "Python functions that they call. hostcall.allow has no say in it. Model.export writes a "
    "SavedModel, which names these functions."
)


def of_model(path: Path) -> Inspection:
    """Return the classes and functions of a Keras model that are not Keras's own.

    Raises:
      InspectionError: when it cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
        found = merged(list(_in(config, "")))
    except (zipfile.BadZipFile, KeyError, ValueError, RecursionError, OSError) as error:
        raise InspectionError(
            f"{path} holds no Keras model that can be read: {type(error).__name__}: {error}"
        ) from error
    return Inspection(str(path), "Keras model", found, (_NOTE,))


def _in(config: Any, layer: str) -> Iterator[PythonFunction]:
    """Yield the functions that a part of the configuration names; `layer` is the one around it."""
    if isinstance(config, list):
        for item in config:
            yield from _in(item, layer)
    if not isinstance(config, dict):
        return
    inner = config.get("config")
    if isinstance(inner, dict) and isinstance(inner.get("name"), str):
        layer = inner["name"]
    if isinstance(config.get("class_name"), str):
        yield from _named_by(config, layer)
    for item in config.values():
        yield from _in(item, layer)


def _named_by(config: dict[str, Any], layer: str) -> Iterator[PythonFunction]:
    name, module = config["class_name"], config.get("module")
    if name == "__lambda__":
        yield PythonFunction(
            f"a lambda in {layer}",
            uses=(Use("a lambda, as bytecode", (), layer),),
            problem="the file holds it as bytecode, which can do anything when it is called",
            write="keras.saving.load_model(path, safe_mode=False)",
        )
        return
    registered = config.get("registered_name")
    is_function = name == "function" and isinstance(config.get("config"), str)
    if is_function:
        name = registered = config["config"]
    if not isinstance(registered, str) or _is_of_keras(name, module, is_function):
        return
    short = name.rpartition(">")[2]
    place = f"{module}:{short}" if isinstance(module, str) and module != "builtins" else None
    problem, write = _keras_problem(registered, place, short)
    use = Use("a function" if is_function else "a class", (), layer)
    yield PythonFunction(
        place or registered, place, registered, uses=(use,), problem=problem, write=write
    )


def _is_of_keras(name: str, module: Any, is_function: bool) -> bool:
    if isinstance(module, str) and module.partition(".")[0] in _KERAS:
        return True
    return is_function and any(hasattr(getattr(_keras(), part, None), name) for part in _PARTS)


def _keras_problem(registered: str, place: str | None, name: str) -> tuple[str, str]:
    """Return the reason why Keras cannot find it, and the line to write."""
    keras = _keras()
    if keras is not None and keras.saving.get_registered_object(registered) is not None:
        return "", ""
    problem = "Keras takes it only where it is registered, or passed in custom_objects"
    if place is None:
        return problem, f"keras.saving.load_model(path, custom_objects={{{registered!r}: {name}}})"
    module = place.partition(":")[0]
    problem = _missing(module) or problem
    if ">" in registered:
        return problem, f"import {module}  # which registers {registered}"
    return problem, (
        f"from {module} import {name}\n"
        f"    keras.saving.load_model(path, custom_objects={{{registered!r}: {name}}})"
    )


@functools.cache
def _keras() -> Any:
    """Return Keras, or None if it is not installed."""
    try:
        return importlib.import_module("keras")
    except ImportError:
        return None


def _missing(module: str) -> str:
    """Return that there is no such module here, or ""."""
    found = functions.has_module(module)
    return "" if found else f"there is no module {module} here: its directory is not in sys.path"


def of_program(path: Path) -> Inspection:
    """Return the callbacks of an exported program, and check all its files.

    Raises:
      InspectionError: when it cannot be read.
    """
    try:
        from hostcall_mlir.exporting import files  # needs jaxlib
    except ImportError as error:
        raise InspectionError(str(error)) from error
    try:
        manifest = files.read(path).manifest
    except ProgramError as error:
        raise InspectionError(str(error)) from error
    found = tuple(_function(callback, manifest.function) for callback in manifest.callbacks)
    return Inspection(str(path), "exported program", found)


def _function(callback: Any, program: str) -> PythonFunction:
    options = ("borrow", "out", "timeout", "concurrent")
    kind = "tf.py_function" if callback.kind == "eager" else "tf.numpy_function"
    uses = tuple(
        Use(
            f"host call of a {kind}",
            (program,),
            callback.name,
            tuple(map(_text, call.operands)),
            tuple(map(_text, call.results)),
            call.location or "",
        )
        for call in callback.calls
    )
    # What keeps `hostcall.load` from finding it, if that shows without an import.
    given_name, problem = callback.name, "it can only be given"
    if callback.function is not None:
        given_name, problem = None, _missing(callback.function.partition(":")[0])
    write = f"hostcall.load(path, callbacks={{{json.dumps(callback.name)}: function}})"
    return PythonFunction(
        callback.name,
        callback.function,
        given_name,
        declared={name: getattr(callback, name) for name in options if getattr(callback, name)},
        uses=uses,
        problem=problem,
        write=write if problem else "",
    )


def _text(spec: Any) -> str:
    sizes = [f"<={size}" if i in spec.bounded else str(size) for i, size in enumerate(spec.shape)]
    return f"{spec.dtype}({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
