"""The function that a script op calls, read from the op's token."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from hostcall._callbacks import lookup
from hostcall._callbacks.callback_spec import CallbackSpec
from hostcall._explain.callback_facts import KINDS, SHAPES, Body
from hostcall._functions import source_location
from hostcall._inspect.inspection import PythonFunction, Use
from hostcall._saving import checking, pickled_functions, tokens
from hostcall._saving.tokens import Problem
from hostcall._tf import op_kinds, token_registry
from hostcall._tf.types import GraphDef, NodeDef


class Shapes:
    """The shapes of the values of a graph."""

    def __init__(self, graph: GraphDef) -> None:
        self._nodes = {node.name: node for node in graph.node}
        self._functions = {f.signature.name: f for f in graph.library.function}
        self._bodies: dict[str, Body] = {}

    def of(self, function: str, value: str) -> tf.TensorShape:
        """Return the shape of a value, by its name in a function ("" for the graph)."""
        try:
            if function:
                if function not in self._bodies:
                    self._bodies[function] = Body(self._functions[function], self._functions)
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

    @property
    def arguments(self) -> tuple[str, ...]:
        """The dtypes and shapes of the inputs."""
        inputs = [value for value in self.node.input if not value.startswith("^")]
        dtypes = self.node.attr["Tin"].list.type
        return tuple(
            _text(tf.TensorSpec(self.shapes.of(self.function, value), tf.as_dtype(dtype)))
            for value, dtype in zip(inputs, dtypes, strict=False)
        )


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
        yield _of_this_process(entry, place)
        return
    label, record, problem = checking.judged(token, place.node, directory)
    if record is None:
        use = Use(KINDS[place.node.op], place.of, place.node.name, place.arguments)
        yield _with_problem(PythonFunction(label, uses=(use,)), problem)
        return
    function = record.users
    if function.pickled is not None and directory is None:
        problem = pickled_functions.missing(function.pickled)
    found = PythonFunction(
        function.label,
        function.place,
        function.name,
        None if function.pickled is None else function.pickled.sha256,
        _declared(record),
        (_use(record, place),),
    )
    yield _with_problem(found, None if entry is not None else problem)


def _of_this_process(spec: CallbackSpec, place: Place) -> PythonFunction:
    kind, name, _, line = source_location.split_description(spec.description)
    results = tuple(map(_text, spec.static_specs))
    use = Use(kind, place.of, place.node.name, place.arguments, results, line)
    return PythonFunction(name, uses=(use,), given_name=spec.user.given_name)


def _with_problem(function: PythonFunction, problem: Problem | None) -> PythonFunction:
    if problem is None:
        return function
    return dataclasses.replace(function, problem=problem.reason, write=problem.line)


def _use(record: tokens.Record, place: Place) -> Use:
    depth, root = 0, record
    while root.of is not None:
        depth, root = depth + 1, root.of
    kind = "the gradient of " * depth + ("hostcall.callback" if root.callback else _kind(root))
    results = tuple(map(_result, record.static)) if record.of is None else ()
    return Use(kind, place.of, place.node.name, place.arguments, results, root.at)


def _kind(record: tokens.Record) -> str:
    return "tf.py_function" if record.kind == "eager" else "tf.numpy_function"


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
    declared, default = record.declared, tokens.Declared()
    found = {
        name: getattr(declared, name)
        for name in declared.__struct_fields__
        if getattr(declared, name) != getattr(default, name)
    }
    if isinstance(declared.result, list):
        found["result"] = [_result(one) for one in declared.result]
    return found
