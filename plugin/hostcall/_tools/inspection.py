"""`hostcall.inspect`: the Python functions that files name, as facts and as a table."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
import types
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import tensorflow as tf
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from hostcall import _report
from hostcall._functions import source_location
from hostcall._ops import lookup
from hostcall._ops.callback_spec import CallbackSpec
from hostcall._report import Code, Table, folded
from hostcall._saved import decoding, pickled_functions, tokens
from hostcall._tf import concrete_functions, script_op_graphs, token_registry
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import op_kinds
from hostcall._tf.graph.solver import reach
from hostcall._tf.types import GraphDef, MetaGraphDef, NodeDef, SavedModel
from hostcall._tools.explain.callback_facts import KINDS, SHAPES, Bodies
from hostcall_runtime import _permissions
from hostcall_runtime._errors import ProgramError, counted


@dataclasses.dataclass(frozen=True)
class Use:
    """A place in a file that names a Python function.

    Attributes:
      kind: the kind of the caller: "tf.numpy_function", "tf.py_function", "tf.compat.v1.py_func",
        "hostcall.callback", "the gradient of ..." one of these, "host call" in an exported program,
        or "layer" and the like in a Keras model.
      of: the signatures and functions of the file that lead there.
      node: the op's name, or the layer's.
      arguments, results: dtypes and shapes, as text.
      line: `file:line` of the call, or "" if it is not known.
    """

    kind: str
    of: tuple[str, ...]
    node: str
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    line: str = ""


@dataclasses.dataclass(frozen=True)
class PythonFunction:
    """A Python function that a file names.

    Attributes:
      name: its name in messages.
      place: the `module:qualname` that it is imported from; None if it cannot be imported.
      given_name: the name that the user has given it, or None.
      pickle: the SHA-256 of its pickle in the file, or None.
      declared: the declared options that differ from the defaults.
      uses: the places that name it.
      problem: the reason why it cannot be called here; "" if none is found without importing it.
      write: the lines to write so that it can be called; "" if it can be called already.
    """

    name: str
    place: str | None = None
    given_name: str | None = None
    pickle: str | None = None
    declared: dict[str, Any] = dataclasses.field(default_factory=dict)
    uses: tuple[Use, ...] = ()
    problem: str = ""
    write: str = ""


@dataclasses.dataclass(frozen=True, repr=False)
class Inspection(_report.Report):
    """The Python functions that a file names. `print` shows them as a table.

    Attributes:
      path: the path of the file or directory.
      format: "SavedModel", "exported program", "Keras model", "GraphDef" or "MetaGraphDef".
      functions: each function once.
      notes: further facts that the user has to know.

    Examples:
      >>> @tf.function(input_signature=[tf.TensorSpec([3], tf.float32)])
      ... def program(x):
      ...     return tf.numpy_function(np.sort, [x], tf.float32)
      >>> module = tf.Module()
      >>> module.program = program
      >>> tf.saved_model.save(module, directory)
      >>> hostcall.inspect(directory).headline
      'SavedModel with 1 Python function'
    """

    path: str
    format: str
    functions: tuple[PythonFunction, ...]
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The format and the number of functions, in one line."""
        missing = sum(bool(function.problem) for function in self.functions)
        more = f", of which {missing} cannot be called here yet" if missing else ""
        return f"{self.format} with {counted(len(self.functions), 'Python function')}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return all facts as dicts, lists, strings and numbers."""
        return {"headline": self.headline, **dataclasses.asdict(self)}

    def _parts(self) -> Iterator[str | Table]:
        return _parts(self)


class InspectionError(ValueError):
    """A file that cannot be inspected; the text has the reason in one line."""


_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")


def inspect(path: str | os.PathLike[str]) -> Inspection:
    """List the Python functions that a file names, without importing or running any.

    `print` shows the result as a table.

    Args:
      path: the path of a SavedModel, or of a program of `hostcall.export`, both directories; of a
        Keras model (`.keras`), a graph (`.pb`, `.pbtxt`) or a meta graph of TensorFlow 1 (`.meta`).

    Returns:
      An `Inspection`: for each function its name, its calls with their arguments, the declared
      options, whether it can be found here and is allowed, and otherwise the lines to write.

    Raises:
      ValueError: when the path is not one of these, or cannot be read.

    Examples:
      >>> @tf.function(input_signature=[tf.TensorSpec([3], tf.float32)])
      ... def program(x):
      ...     return tf.numpy_function(np.sort, [x], tf.float32)
      >>> module = tf.Module()
      >>> module.program = program
      >>> tf.saved_model.save(module, directory)
      >>> (function,) = hostcall.inspect(directory).functions
      >>> function.place, function.uses[0].arguments
      ('numpy:sort', ('float32(3,)',))
    """
    found = Path(os.fspath(path))
    if found.name in _SAVED_MODEL:
        found = found.parent
    if found.is_dir():
        if any((found / name).is_file() for name in _SAVED_MODEL):
            return inspect_saved_model(found)
        if (found / "manifest.json").is_file():
            return inspect_program(found)
        raise InspectionError(
            f"{found} holds no SavedModel (saved_model.pb), and no program of hostcall.export "
            "(manifest.json)."
        )
    readers = {
        ".pb": inspect_graph,
        ".pbtxt": inspect_graph,
        ".meta": inspect_graph,
        ".keras": inspect_model,
    }
    if not found.is_file():
        raise InspectionError(f"{found} {'is not a file' if found.exists() else 'does not exist'}.")
    if found.suffix not in readers:
        kinds = ", ".join(readers)
        raise InspectionError(f"{found} is not a directory, and its name ends in none of {kinds}.")
    return readers[found.suffix](found)


def merged(functions: list[PythonFunction]) -> tuple[PythonFunction, ...]:
    """Return the functions, each once with all its uses."""
    found: dict[tuple[Any, ...], PythonFunction] = {}
    for function in functions:
        key = (function.name, function.place, function.pickle, function.problem)
        known = found.get(key, dataclasses.replace(function, uses=()))
        found[key] = dataclasses.replace(known, uses=known.uses + function.uses)
    return tuple(found.values())


def _parts(inspection: Inspection) -> Iterator[str | Table]:
    yield f"{inspection.path}: {inspection.headline}"
    yield from inspection.notes
    if inspection.functions:
        rows = [
            (_name(one), "\n".join(map(_use_text, one.uses)), one.problem or "can be called")
            for one in inspection.functions
        ]
        columns = {"function": folded(3), "used": folded(5), "here": folded(3)}
        yield Table(columns, rows, options={"show_lines": True})
    if lines := dict.fromkeys(one.write for one in inspection.functions if one.write):
        yield "\nIf you trust the file, write:\n"
        yield from (Code(f"    {line}") for line in lines)


def _name(function: PythonFunction) -> str:
    place = [function.place] if function.place not in (None, function.name) else []
    carried = ["a pickle in the file"] if function.pickle else []
    declared = [f"{name}={value}" for name, value in function.declared.items()]
    return "\n".join(map(str, [function.name, *place, *carried, *declared]))


def _use_text(use: Use) -> str:
    of = f" in {', '.join(use.of)}" if use.of else ""
    line = f" at {use.line}" if use.line else ""
    arguments, results = ", ".join(use.arguments), ", ".join(use.results) or "?"
    flow = f"\n  {arguments} → {results}" if arguments else ""
    return f"{use.kind}, {use.node}{of}{line}{flow}"


def _called_by(node: NodeDef, use: Use, directory: str | None) -> PythonFunction:
    """Return the function of a script op, with this use; `directory` may hold pickles."""
    token = lookup.token_of(node)
    entry = token_registry.find_present(token)
    if isinstance(entry, CallbackSpec) and not token_registry.is_qualified(token):
        kind, name, _, line = source_location.split_description(entry.description)
        results = tuple(map(_spec_text, entry.static_specs))
        use = dataclasses.replace(use, kind=kind, results=results, line=line)
        return PythonFunction(name, uses=(use,), given_name=entry.user.given_name)
    label, record, problem = decoding.judged(token, node, directory)
    found = PythonFunction(label, uses=(use,))
    if record is not None:
        function, pickled = record.users, record.users.pickled
        if pickled is not None and directory is None:
            problem = pickled_functions.missing(pickled)
        found = PythonFunction(
            function.label,
            function.place,
            function.name,
            None if pickled is None else pickled.sha256,
            _declared(record),
            (_recorded(use, record),),
        )
        if entry is not None:
            problem = None
    if problem is not None:
        found = dataclasses.replace(found, problem=problem.reason, write=problem.line)
    return found


def _recorded(use: Use, record: tokens.Record) -> Use:
    """Return a use with what the record in the graph says of the call."""
    depth, root = 0, record
    while root.of is not None:
        depth, root = depth + 1, root.of
    kind = "tf.py_function" if root.kind == "eager" else "tf.numpy_function"
    kind = "the gradient of " * depth + ("hostcall.callback" if root.callback else kind)
    results = () if depth else tuple(map(_result, record.static))
    return dataclasses.replace(use, kind=kind, results=results, line=root.at)


def _result(written: Any) -> str:
    try:
        return _spec_text(tokens.from_json(written))
    except tokens.UnreadableError:
        return "nonsense"


def _spec_text(spec: Any) -> str:
    if isinstance(spec, tf.TensorSpec):
        return f"{spec.dtype.name}{'' if spec.shape.rank is None else spec.shape}"
    return str(spec)


def _declared(record: tokens.Record) -> dict[str, Any]:
    """Return the declared options that differ from the defaults."""
    declared, default = msgspec.structs.asdict(record.root.declared), tokens.Declared()
    found = {name: value for name, value in declared.items() if value != getattr(default, name)}
    if isinstance(declared["result"], list):
        found["result"] = [_result(one) for one in declared["result"]]
    return found


# A signature that TensorFlow adds by itself.
INIT = "__saved_model_init_op"
_CARRIED_APART = (
    "Pickles lie beside the graph in a SavedModel, and nowhere else: a graph of its own has none."
)


def read_saved_model(path: Path) -> SavedModel:
    """Return the message of a SavedModel, with a graph at least, or raise an InspectionError."""
    if not path.is_dir():
        raise InspectionError(f"{path} is not a directory.")
    try:
        model: SavedModel = concrete_functions.read_saved_model(str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise InspectionError(f"{path} holds no SavedModel that can be read: {reason}") from error
    if not model.meta_graphs:
        raise InspectionError(f"{path} holds a SavedModel without a graph.")
    return model


def inspect_saved_model(path: Path) -> Inspection:
    """Return the functions of a SavedModel, or raise an InspectionError."""
    graphs = read_saved_model(path).meta_graphs
    functions = []
    for graph in graphs:
        tags = f" ({', '.join(graph.meta_info_def.tags)})" if len(graphs) > 1 else ""
        functions += _functions(graph.graph_def, _roots(graph), str(path), tags)
    return Inspection(str(path), "SavedModel", merged(functions))


def inspect_graph(path: Path) -> Inspection:
    """Return the functions of a GraphDef, or of the MetaGraphDef in a .meta file."""
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
    """Return the functions that nodes name; `roots` has the user's names of functions and nodes."""
    reached = reached_from(graph, roots)
    nodes, bodies = {node.name: node for node in graph.node}, Bodies(graph.library)

    def shape_of(function: str, value: str) -> tf.TensorShape:
        try:
            if function:
                return bodies.shape_of(function, value)
            name, _, number = value.partition(":")
            known = nodes[name].attr
            shapes = known[SHAPES].list.shape if SHAPES in known else []
            return tf.TensorShape(shapes[int(number or 0)])
        except (KeyError, IndexError, ValueError):  # no shape, or a malformed one
            return tf.TensorShape(None)

    found: list[PythonFunction] = []
    for function, node in script_op_graphs.nodes_by_function(graph):
        if node.op not in op_kinds.SCRIPT_OPS:
            continue
        of = reached.get(function or node.name) or ([function] if function else ["the graph"])
        inputs = [value for value in node.input if not value.startswith("^")]
        arguments = tuple(
            _spec_text(tf.TensorSpec(shape_of(function, value), tf.as_dtype(dtype)))
            for value, dtype in zip(inputs, node.attr["Tin"].list.type, strict=False)
        )
        use = Use(KINDS[node.op], tuple(f"{name}{tags}" for name in of), node.name, arguments)
        found.append(_called_by(node, use, directory))
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


def reached_from(graph: GraphDef, roots: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the user's names that lead to each function and node of the graph."""
    functions = defs.by_name(graph.library)
    nodes = {node.name: node for node in graph.node}
    reached: dict[str, list[str]] = {}

    def steps(at: str) -> Iterator[str]:
        yield from defs.sources(nodes[at]) if at in nodes else ()
        inside = functions[at].node_def if at in functions else [nodes[at]] * (at in nodes)
        for node in inside:
            yield from defs.called_functions(node, functions)

    for root, names in roots.items():
        for at in reach([root], steps):
            reached[at] = list(dict.fromkeys([*reached.get(at, []), *names]))
    return reached


# The modules that Keras imports by itself, and those where it looks up functions named by strings.
_KERAS = ("keras", "keras_hub", "keras_cv", "keras_nlp")
_PARTS = ("activations", "losses", "metrics", "initializers", "regularizers", "constraints")
_NOTE = (
    "A .keras file holds no graph: Keras builds the model from its classes, and calls the "
    "Python functions that they call, whatever hostcall.allow says. Model.export writes a "
    "SavedModel, which names these functions."
)


def inspect_model(path: Path) -> Inspection:
    """Return the classes and functions of a Keras model that are not Keras's own."""
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


def _is_of_keras(name: str, module: object, is_function: bool) -> bool:
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
def _keras() -> types.ModuleType | None:
    """Return Keras, or None if it is not installed."""
    try:
        return importlib.import_module("keras")
    except ImportError:
        return None


def _missing(module: str) -> str:
    """Return that there is no such module here, or ""."""
    return "" if _permissions.has_module(module) else _permissions.why_missing(module)


def inspect_program(path: Path) -> Inspection:
    """Return the callbacks of an exported program, and check all its files."""
    try:
        from hostcall_mlir.exporting import files  # needs jaxlib

        manifest = files.read(path).manifest
    except (ImportError, ProgramError) as error:
        raise InspectionError(str(error)) from error
    found = tuple(_function(callback, manifest.function) for callback in manifest.callbacks)
    digest = f"The SHA-256 of its manifest, and so of all that it does, is {manifest.sha256}."
    return Inspection(str(path), "exported program", found, (digest,))


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
    write = f"hostcall.load(path, callbacks={{{json.dumps(callback.name)}: function}})"
    if (place := callback.function) is not None:
        module = place.partition(":")[0]
        given_name, problem = None, _missing(module)
        if problem:
            write = _permissions.line_for_directory(module)
        elif (reason := _permissions.why_not(place)) is not None:
            problem, write = reason, _permissions.line_for(place)
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
