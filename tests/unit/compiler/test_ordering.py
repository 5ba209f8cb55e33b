"""The order of side effects: names that last, and NoOps that only join control edges."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - its script ops are what is ordered
from hostcall._compiler.one_program import ordering
from hostcall._tf import concrete_functions
from hostcall._tf.graph import attributes, function_defs, protos
from tests.support.helpers import gradient_of

X = tf.constant([1.0, 2.0])


def eager(name: str, x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.py_function(lambda x: x, [x], tf.float32, name=name), x.shape)


class Ordered:
    """The outcome of `order_side_effects` for a function of one tensor."""

    def __init__(self, function: Callable[[tf.Tensor], Any]) -> None:
        concrete = tf.function(function).get_concrete_function(X)
        library = concrete_functions.library_of(concrete, concrete.graph.as_graph_def())
        self.serialized = library.SerializeToString()
        self.entry = concrete.function_def.signature.name
        ordered, self.name = ordering.order_side_effects(library, self.entry)
        self.new = {function.signature.name: function for function in ordered.function}
        self.nodes = [node for function in self.new.values() for node in function.node_def]


def test_the_names_are_the_same_for_the_same_input() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        @tf.function
        def inner(x: tf.Tensor) -> tf.Tensor:
            for _ in tf.range(2):
                x = eager("eager", x)
            return x

        return inner(x) + tf.cond(x[0] > 0.0, lambda: inner(x), lambda: x)

    # Kernels are created again and again, and a name may stand for one function only. A message's
    # maps have no order that lasts: more entries are enough to change that of the others.
    outcome = Ordered(program)
    for size in range(64):
        again = ordering.order_side_effects(_padded(outcome.serialized, size), outcome.entry)
        assert again[1] == outcome.name
        functions = {f.signature.name: _unpadded(f) for f in again[0].function}
        assert functions == outcome.new


def test_called_functions_have_an_order_that_lasts() -> None:
    value, name_of = protos.attr_value_pb2.AttrValue, protos.attr_value_pb2.NameAttrList
    functions = [(name, value(func=name_of(name=name))) for name in ("cond", "body")]
    found = [
        function_defs.callees(SimpleNamespace(op="While", attr=dict(order)))
        for order in (functions, functions[::-1])
    ]
    assert found[0] == found[1] != []


def _padded(serialized: bytes, size: int) -> Any:
    library = protos.function_pb2.FunctionDefLibrary.FromString(serialized)
    for function in library.function:
        for node in function.node_def:
            for i in range(size):
                node.attr[f"_padding_{i}"].i = i
    return protos.function_pb2.FunctionDefLibrary.FromString(library.SerializeToString())


def _unpadded(function: Any) -> Any:
    for node in function.node_def:
        for name in [name for name in node.attr if name.startswith("_padding_")]:
            del node.attr[name]
    return function


def _recordings(function: Callable[[tf.Tensor], Any]) -> dict[str, int]:
    nodes = [node for node in Ordered(function).nodes if node.op == "EagerPyFunc"]
    return {node.name: node.attr[attributes.RECORD].i for node in nodes}


def test_a_call_is_recorded_only_where_a_gradient_asks_for_it() -> None:
    def forward(x: tf.Tensor) -> tf.Tensor:
        return eager("wanted", x) + eager("wanted_too", 2.0 * x)

    def step(x: tf.Tensor) -> Any:
        unwanted = eager("unwanted", x)
        return gradient_of(forward, x), unwanted

    recorded = _recordings(step)
    assert recorded["unwanted"] == 0
    assert recorded["wanted"] == recorded["wanted_too"] != 0
    assert _recordings(forward) == {"wanted": 0, "wanted_too": 0}


# The names of nodes, and their inputs.
Nodes = Mapping[str, str]


def bypassed(nodes: Nodes, returned: Sequence[str] = ()) -> Any:
    """The inputs of the nodes that are left, of script ops, NoOps and others."""
    function = protos.function_pb2.FunctionDef()
    for name, inputs in nodes.items():
        op = "PyFunc" if name in "ab" else "NoOp" if name in "mn" else "AddN"
        function.node_def.add(name=name, op=op, input=inputs.split())
    for name in returned:
        function.control_ret[name] = name
    ordering.bypass(function)
    return {node.name: " ".join(node.input) for node in function.node_def}


CALLS = {"a": "", "b": "^a"}
JOIN = {**CALLS, "n": "^a ^b"}
BOTH = {**CALLS, "y": "x ^a ^b"}
BYPASSED: dict[str, tuple[Nodes, Nodes]] = {
    "users wait for what it waits for": ({**JOIN, "y": "x ^n"}, BOTH),
    "of an edge that is there already no second one is made": (
        {**CALLS, "n": "^b", "y": "x ^n ^b"},
        {**CALLS, "y": "x ^b"},
    ),
    "that of another": ({**JOIN, "m": "^n", "y": "x ^m"}, BOTH),
    "that of a later one": ({**CALLS, "m": "^n", "n": "^a ^b", "y": "x ^m"}, BOTH),
    "one that waits for nothing": ({"n": "", "y": "x ^n"}, {"y": "x"}),
    "several users of one call": (
        {"a": "", "n": "^a", "y": "x ^n", "z": "x ^n"},
        {"a": "", "y": "x ^a", "z": "x ^a"},
    ),
}


@pytest.mark.parametrize(("nodes", "left"), BYPASSED.values(), ids=BYPASSED.keys())
def test_what_is_bypassed(nodes: Nodes, left: Nodes) -> None:
    assert bypassed(nodes) == left


@pytest.mark.parametrize(
    ("nodes", "returned"),
    [({**JOIN, "y": "x ^n", "z": "x ^n"}, []), ({**JOIN, "y": "x ^n"}, ["n"])],
    ids=["one with several of both", "one that callers wait for"],
)
def test_what_stays(nodes: Nodes, returned: list[str]) -> None:
    assert bypassed(nodes, returned) == nodes
