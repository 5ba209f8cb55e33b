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


def function_of(nodes: Nodes, returned: Sequence[str] = ()) -> Any:
    """A FunctionDef of nodes: their names, with ops and inputs."""
    function = protos.function_pb2.FunctionDef()
    for name, (op, inputs) in nodes.items():
        function.node_def.add(name=name, op=op, input=inputs)
    for name in returned:
        function.control_ret[name] = name
    return function


def bypassed(nodes: Nodes, returned: Sequence[str] = ()) -> Any:
    """The inputs of the nodes that are left."""
    function = function_of(nodes, returned)
    ordering.bypass(function)
    return {node.name: list(node.input) for node in function.node_def}


CALLS: Nodes = {"a": ("PyFunc", []), "b": ("PyFunc", ["^a"])}


def test_users_wait_for_what_it_waits_for() -> None:
    nodes = {**CALLS, "join": ("NoOp", ["^a", "^b"]), "y": ("AddV2", ["x", "x", "^join"])}
    assert bypassed(nodes) == {"a": [], "b": ["^a"], "y": ["x", "x", "^a", "^b"]}


def test_of_an_edge_that_is_there_already_no_second_one_is_made() -> None:
    nodes = {**CALLS, "join": ("NoOp", ["^b"]), "y": ("Identity", ["x", "^join", "^b"])}
    assert bypassed(nodes)["y"] == ["x", "^b"]


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_that_of_another(names: tuple[str, str]) -> None:
    """Whichever of them is the first in the function."""
    of = {
        "first": ("NoOp", ["^a", "^b"]),
        "second": ("NoOp", ["^first"]),
    }
    nodes = {**CALLS, **{name: of[name] for name in names}, "y": ("Identity", ["x", "^second"])}
    assert bypassed(nodes) == {"a": [], "b": ["^a"], "y": ["x", "^a", "^b"]}


def test_one_that_waits_for_nothing() -> None:
    assert bypassed({"n": ("NoOp", []), "y": ("Identity", ["x", "^n"])}) == {"y": ["x"]}


def test_several_users_of_one_call() -> None:
    nodes = {
        "a": ("PyFunc", []),
        "join": ("NoOp", ["^a"]),
        "y": ("Identity", ["x", "^join"]),
        "z": ("Identity", ["x", "^join"]),
    }
    assert bypassed(nodes) == {"a": [], "y": ["x", "^a"], "z": ["x", "^a"]}


def test_one_with_several_of_both_stays() -> None:
    nodes = {
        **CALLS,
        "join": ("NoOp", ["^a", "^b"]),
        "y": ("Identity", ["x", "^join"]),
        "z": ("Identity", ["x", "^join"]),
    }
    assert bypassed(nodes) == {name: list(inputs) for name, (_, inputs) in nodes.items()}


def test_one_that_callers_wait_for_stays() -> None:
    nodes = {**CALLS, "join": ("NoOp", ["^a", "^b"]), "y": ("Identity", ["x", "^join"])}
    assert bypassed(nodes, ["join"]) == {name: list(inputs) for name, (_, inputs) in nodes.items()}


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
