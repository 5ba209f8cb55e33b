"""hostcall._compiler.ordering: NoOps that only join control edges."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - its script ops are what is waited for
from hostcall._compiler import ordering
from hostcall._tf import function_defs, protos

Nodes = Mapping[str, tuple[str, Sequence[str]]]


def bypassed(nodes: Nodes, returned: Sequence[str] = ()) -> Any:
    """The inputs of the nodes that are left."""
    function = protos.function_pb2.FunctionDef()
    for name, (op, inputs) in nodes.items():
        function.node_def.add(name=name, op=op, input=inputs)
    for name in returned:
        function.control_ret[name] = name
    ordering.bypass(function)
    return {node.name: list(node.input) for node in function.node_def}


CALLS: Nodes = {"a": ("PyFunc", []), "b": ("PyFunc", ["^a"])}
_TWO_USERS: Nodes = {"y": ("Identity", ["x", "^join"]), "z": ("Identity", ["x", "^join"])}
_JOIN: Nodes = {**CALLS, "join": ("NoOp", ["^a", "^b"])}
_FIRST: Nodes = {"first": ("NoOp", ["^a", "^b"])}
_SECOND: Nodes = {"second": ("NoOp", ["^first"])}
_LAST: Nodes = {"y": ("Identity", ["x", "^second"])}

BYPASSED: dict[str, tuple[Nodes, dict[str, list[str]]]] = {
    "users wait for what it waits for": (
        {**_JOIN, "y": ("AddV2", ["x", "x", "^join"])},
        {"a": [], "b": ["^a"], "y": ["x", "x", "^a", "^b"]},
    ),
    "of an edge that is there already no second one is made": (
        {**CALLS, "join": ("NoOp", ["^b"]), "y": ("Identity", ["x", "^join", "^b"])},
        {"a": [], "b": ["^a"], "y": ["x", "^b"]},
    ),
    "that of another": (
        {**CALLS, **_FIRST, **_SECOND, **_LAST},
        {"a": [], "b": ["^a"], "y": ["x", "^a", "^b"]},
    ),
    "that of a later one": (
        {**CALLS, **_SECOND, **_FIRST, **_LAST},
        {"a": [], "b": ["^a"], "y": ["x", "^a", "^b"]},
    ),
    "one that waits for nothing": (
        {"n": ("NoOp", []), "y": ("Identity", ["x", "^n"])},
        {"y": ["x"]},
    ),
    "several users of one call": (
        {"a": ("PyFunc", []), "join": ("NoOp", ["^a"]), **_TWO_USERS},
        {"a": [], "y": ["x", "^a"], "z": ["x", "^a"]},
    ),
}


@pytest.mark.parametrize(("nodes", "left"), BYPASSED.values(), ids=BYPASSED.keys())
def test_what_is_bypassed(nodes: Nodes, left: dict[str, list[str]]) -> None:
    assert bypassed(nodes) == left


@pytest.mark.parametrize(
    ("nodes", "returned"),
    [
        pytest.param({**_JOIN, **_TWO_USERS}, [], id="one with several of both"),
        pytest.param(
            {**_JOIN, "y": ("Identity", ["x", "^join"])}, ["join"], id="one that callers wait for"
        ),
    ],
)
def test_what_stays(nodes: Nodes, returned: list[str]) -> None:
    assert bypassed(nodes, returned) == {name: list(inputs) for name, (_, inputs) in nodes.items()}


def test_no_function_that_is_compiled_has_one() -> None:
    v = tf.Variable([1.0, 2.0])

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        v.assign_add(x)
        with tf.control_dependencies([tf.group(tf.numpy_function(lambda: None, [], []))]):
            return x + v

    concrete = function.get_concrete_function(tf.zeros([2]))
    assert any(node.op == "NoOp" for node in concrete.function_def.node_def)
    library = function_defs.library_of(concrete, concrete.graph.as_graph_def())
    new, _ = ordering.order_side_effects(library, concrete.function_def.signature.name)
    assert not any(node.op == "NoOp" for f in new.function for node in f.node_def)


def test_effects_on_variables_keep_their_order() -> None:
    """What stands between them in a FunctionDef is a NoOp."""

    def program() -> list[Any]:
        v, seen = tf.Variable(1.0), []

        def note(x: Any) -> Any:
            seen.append(float(x))
            return x * np.float32(2)

        def run() -> tf.Tensor:
            first = tf.ensure_shape(tf.numpy_function(note, [v.read_value()], tf.float32), [])
            with tf.control_dependencies([tf.group(v.assign(first + 1.0))]):
                second = tf.ensure_shape(tf.numpy_function(note, [v.read_value()], tf.float32), [])
            with tf.control_dependencies([tf.group(v.assign(second * 10.0))]):
                return v.read_value() + first

        return [run, v, seen]

    results = []
    for compiled in (False, True):
        run, v, seen = program()
        result = tf.function(run, jit_compile=compiled)()
        results.append((float(result), float(v), seen))
    assert results[0] == results[1] == (62.0, 60.0, [1.0, 3.0])
