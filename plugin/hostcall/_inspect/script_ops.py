"""The function that a script op calls, read from the op's token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
import tensorflow as tf

from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._explain.callback_facts import KINDS, SHAPES, Bodies
from hostcall._functions import source_location
from hostcall._inspect.inspection import PythonFunction, Use
from hostcall._saving import checking, pickled_functions, tokens
from hostcall._tf import op_kinds, token_registry
from hostcall._tf.types import GraphDef, NodeDef


class Shapes:
    """The shapes of the values of a graph."""

    def __init__(self, graph: GraphDef) -> None:
        self._nodes = {node.name: node for node in graph.node}
        self._bodies = Bodies(graph.library)

    def of(self, function: str, value: str) -> tf.TensorShape:
        """Return the shape of a value, by its name in a function ("" for the graph)."""
        try:
            if function:
                return self._bodies[function].shape_of(value)
            name, _, number = value.partition(":")
            known = self._nodes[name].attr
            shapes = known[SHAPES].list.shape if SHAPES in known else []
            return tf.TensorShape(shapes[int(number or 0)])
        except (KeyError, IndexError, ValueError):  # no shape, or a malformed one
            return tf.TensorShape(None)


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a script op.

    Attributes:
      of: the user's names that lead there.
      function: the name of the function that it is in; "" for the graph.
      node: its NodeDef.
      shapes: the shapes of the graph.
    """

    of: tuple[str, ...]
    function: str
    node: NodeDef
    shapes: Shapes

    def use(self, kind: str, results: tuple[str, ...] = (), line: str = "") -> Use:
        """Return the use of a function by the op, with the dtypes and shapes of its inputs."""
        inputs = [value for value in self.node.input if not value.startswith("^")]
        arguments = tuple(
            _text(tf.TensorSpec(self.shapes.of(self.function, value), tf.as_dtype(dtype)))
            for value, dtype in zip(inputs, self.node.attr["Tin"].list.type, strict=False)
        )
        return Use(kind, self.of, self.node.name, arguments, results, line)


def functions_of(place: Place, directory: str | None) -> Iterator[PythonFunction]:
    """Yield the function that a script op calls, with this one use; nothing for any other op.

    Args:
      place: the place of the op.
      directory: the directory of the SavedModel, with the pickles; or None.
    """
    if place.node.op not in op_kinds.SCRIPT_OPS:
        return
    token = lookup.token_of(place.node)
    entry = token_registry.find_present(token)
    if isinstance(entry, CallbackSpec) and not token_registry.is_qualified(token):
        kind, name, _, line = source_location.split_description(entry.description)
        use = place.use(kind, tuple(map(_text, entry.static_specs)), line)
        yield PythonFunction(name, uses=(use,), given_name=entry.user.given_name)
        return
    label, record, problem = checking.judged(token, place.node, directory)
    found = PythonFunction(label, uses=(place.use(KINDS[place.node.op]),))
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
            (_use(record, place),),
        )
        if entry is not None:
            problem = None
    if problem is not None:
        found = dataclasses.replace(found, problem=problem.reason, write=problem.line)
    yield found


def _use(record: tokens.Record, place: Place) -> Use:
    depth, root = 0, record
    while root.of is not None:
        depth, root = depth + 1, root.of
    kind = "tf.py_function" if root.kind == "eager" else "tf.numpy_function"
    kind = "the gradient of " * depth + ("hostcall.callback" if root.callback else kind)
    return place.use(kind, () if depth else tuple(map(_result, record.static)), root.at)


def _result(written: Any) -> str:
    try:
        return _text(tokens.read(written))
    except tokens.UnreadableError:
        return "nonsense"


def _text(spec: Any) -> str:
    if isinstance(spec, tf.TensorSpec):
        return f"{spec.dtype.name}{'' if spec.shape.rank is None else spec.shape}"
    return str(spec)


def _declared(record: tokens.Record) -> dict[str, Any]:
    """Return the declared options that differ from the defaults."""
    while record.of is not None:
        record = record.of
    declared, default = msgspec.structs.asdict(record.declared), tokens.Declared()
    found = {name: value for name, value in declared.items() if value != getattr(default, name)}
    if isinstance(record.declared.result, list):
        found["result"] = [_result(one) for one in record.declared.result]
    return found
