"""hostcall._compiler.ordering: token chains, and NoOps that only join control edges."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall  # noqa: F401 - its script ops are what is ordered
from hostcall._compiler import ordering
from hostcall._tf import attributes, protos

START = "_xla_token_arg_node"
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
SCRIPT_OPS = ("PyFunc", "EagerPyFunc")

X = tf.constant([1.0, 2.0])


def say(name: str) -> None:
    tf.numpy_function(lambda: None, [], [], name=name)


def eager(name: str, x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.py_function(lambda x: x, [x], tf.float32, name=name), x.shape)


class Ordered:
    """The outcome of `order_side_effects` for a traced function."""

    def __init__(self, concrete: Any) -> None:
        library = protos.function_pb2.FunctionDefLibrary()
        library.function.append(concrete.function_def)
        library.function.extend(concrete.graph.as_graph_def().library.function)
        self.serialized = library.SerializeToString()
        self.entry = concrete.function_def.signature.name
        ordered, self.name = ordering.order_side_effects(library, self.entry)
        self.bytes = ordered.SerializeToString(deterministic=True)
        self.old = {function.signature.name: function for function in library.function}
        self.new = {function.signature.name: function for function in ordered.function}

    def nodes(self, name: str) -> dict[str, Any]:
        return {node.name: node for node in {**self.old, **self.new}[name].node_def}

    def chain(self, name: str, path: str = "") -> list[str]:
        """The tokens of a unit in order; asserts that each takes the one before it."""
        links = dict(self._links(name, path))
        order, last = [], START
        while last in links.values():
            (token,) = [token for token, source in links.items() if source == last]
            order.append(token)
            last = token
        assert sorted(order) == sorted(links)
        return order

    def _links(self, name: str, path: str) -> list[tuple[str, str]]:
        links = []
        for node in self.nodes(name).values():
            if "_xla_token_input_nodes" in node.attr:
                (source,) = node.attr["_xla_token_input_nodes"].list.s
                token = node.attr["_xla_original_oc_node_name"].s.decode()
                assert token == f"{path}{node.name}"
                links.append((token, source.decode()))
            elif (called := called_by(node)) in self.new:
                assert "_noinline" not in self.new[called].attr
                links += self._links(called, f"{path}{node.name}/")
        return links


def called_by(node: Any) -> str:
    return str(node.attr["f"].func.name) if node.op in CALLS else str(node.op)


def bare(chain: list[str]) -> list[str]:
    """Without the name scopes."""
    return [token.split("/")[-1] for token in chain]


def ordered(function: Callable[..., Any], *args: Any) -> Ordered:
    return Ordered(tf.function(function).get_concrete_function(*args))


def test_script_ops_are_chained_in_program_order() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        say("c")
        y = eager("a", x)
        say("b")
        return y

    outcome = ordered(program, X)
    assert outcome.chain(outcome.name) == ["c", "a", "b"]


def test_other_ops_keep_as_they_are() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        x = tf.sin(x) * 2.0
        x = tf.numpy_function(lambda x: x, [x], tf.float32, stateful=False, name="stateless")
        say("stateful")
        return x + 1.0

    outcome = ordered(program, X)
    ordering.bypass(outcome.old[outcome.entry])
    before, after = outcome.nodes(outcome.entry), outcome.nodes(outcome.name)
    assert after.keys() >= before.keys()
    changed = [name for name in before if after[name] != before[name]]
    assert changed == ["stateful"]
    signatures = outcome.old[outcome.entry].signature, outcome.new[outcome.name].signature
    for field in ("input_arg", "output_arg"):
        assert list(getattr(signatures[0], field)) == list(getattr(signatures[1], field))
    assert outcome.old[outcome.entry].ret == outcome.new[outcome.name].ret


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
    outcome = ordered(program, X)
    for size in range(64):
        again = ordering.order_side_effects(_padded(outcome.serialized, size), outcome.entry)
        assert again[1] == outcome.name
        functions = again[0].function
        assert {function.signature.name: _unpadded(function) for function in functions} == (
            outcome.new
        )


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


def test_new_functions_have_new_names_and_all_that_they_call() -> None:
    @tf.function
    def without(x: tf.Tensor) -> tf.Tensor:
        return tf.cond(x[0] > 0.0, lambda: x, lambda: -x)

    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        return without(eager("eager", x))

    def program(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(2):
            x = without(inner(x))
        return x

    outcome = ordered(program, X)
    assert not set(outcome.new) & set(outcome.old)
    known = set(outcome.new) | set(outcome.old)
    for function in outcome.new.values():
        for node in function.node_def:
            for value in node.attr.values():
                names = [value.func.name] if value.HasField("func") else []
                assert {*names, *(func.name for func in value.list.func)} <= known
    # Functions without effects are shared with the old functions.
    assert not [name for name in outcome.new if "without" in name]


def test_a_loop_is_a_link_and_its_functions_have_chains_of_their_own() -> None:
    def program(x: tf.Tensor) -> Any:
        def condition(i: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
            say("condition")
            return i < 3

        def body(i: tf.Tensor, x: tf.Tensor) -> Any:
            say("body_1")
            return i + 1, eager("body_2", x)

        say("before")
        result = tf.while_loop(condition, body, [0, x], name="loop")
        say("after")
        return result

    outcome = ordered(program, X)
    # The condition is computed before the loop and at the end of each iteration.
    assert bare(outcome.chain(outcome.name)) == ["before", "condition", "loop", "after"]
    loop = outcome.nodes(outcome.name)["loop"]
    assert not outcome.chain(loop.attr["cond"].func.name)
    assert bare(outcome.chain(loop.attr["body"].func.name)) == ["body_1", "body_2", "condition"]


def test_a_loop_without_script_ops_is_no_link() -> None:
    def program(x: tf.Tensor) -> tf.Tensor:
        say("before")
        for _ in tf.range(3):
            x = x * 2.0
        say("after")
        return x

    outcome = ordered(program, X)
    assert outcome.chain(outcome.name) == ["before", "after"]
    assert list(outcome.new) == [outcome.name]


def test_branches_have_chains_of_their_own() -> None:
    def program(x: tf.Tensor, i: tf.Tensor) -> Any:
        def no() -> tf.Tensor:
            say("no_1")
            return eager("no_2", x)

        y = tf.cond(x[0] > 0.0, lambda: eager("yes", x), no)
        branches = [lambda: eager("zero", x), lambda: x, lambda: eager("two", x)]
        return y, tf.switch_case(i, branches)

    outcome = ordered(program, X, tf.constant(0))
    assert len(outcome.chain(outcome.name)) == 2
    nodes = {node.op: node for node in outcome.nodes(outcome.name).values()}
    choice = nodes.get("If") or nodes["StatelessIf"]
    assert bare(outcome.chain(choice.attr["then_branch"].func.name)) == ["yes"]
    assert bare(outcome.chain(choice.attr["else_branch"].func.name)) == ["no_1", "no_2"]
    case = nodes.get("Case") or nodes["StatelessCase"]
    chains = [bare(outcome.chain(func.name)) for func in case.attr["branches"].list.func]
    assert chains == [["zero"], [], ["two"]]


@pytest.mark.parametrize("inlined", [True, False])
def test_each_call_of_a_function_is_a_piece_of_the_callers_chain(inlined: bool) -> None:
    options = {"experimental_attributes": {"_noinline": not inlined}}

    @tf.function(**options)
    def deep(x: tf.Tensor) -> tf.Tensor:
        return eager("deep", x)

    @tf.function(**options)
    def inner(x: tf.Tensor) -> tf.Tensor:
        say("inner")
        return deep(x)

    def program(x: tf.Tensor) -> tf.Tensor:
        x = inner(x)
        say("between")
        return inner(x) + deep(x)

    outcome = ordered(program, X)
    first, second, third = [
        node.name for node in outcome.nodes(outcome.name).values() if node.op in CALLS
    ]
    (inside,) = [
        node.name
        for node in outcome.nodes(called_by(outcome.nodes(outcome.name)[first])).values()
        if node.op in CALLS
    ]
    assert outcome.chain(outcome.name) == [
        f"{first}/inner",
        f"{first}/{inside}/deep",
        "between",
        f"{second}/inner",
        f"{second}/{inside}/deep",
        f"{third}/deep",
    ]


def test_edges_come_before_the_order_of_creation() -> None:
    definition = protos.function_pb2.FunctionDef()
    definition.signature.name = "program"
    edges = {"d": ["^b"], "a": ["^c"], "c": [], "b": ["^a"], "e": []}
    for name, inputs in edges.items():
        definition.node_def.add(name=name, op="PyFunc", input=inputs)
    library = protos.function_pb2.FunctionDefLibrary(function=[definition])
    answer, name = ordering.order_side_effects(library, "program")
    (function,) = answer.function
    assert function.signature.name == name
    source = {
        node.attr["_xla_original_oc_node_name"].s.decode(): list(
            node.attr["_xla_token_input_nodes"].list.s
        )
        for node in function.node_def
    }
    assert source == {"c": [START.encode()], "a": [b"c"], "b": [b"a"], "d": [b"b"], "e": [b"d"]}


def _recordings(concrete: Any) -> dict[str, int]:
    outcome = Ordered(concrete)
    return {
        node.name: node.attr[attributes.RECORD].i
        for function in outcome.new.values()
        for node in function.node_def
        if node.op == "EagerPyFunc"
    }


def test_a_call_is_recorded_only_where_a_gradient_asks_for_it() -> None:
    def forward(x: tf.Tensor) -> tf.Tensor:
        return eager("wanted", x) + eager("wanted_too", 2.0 * x)

    def step(x: tf.Tensor) -> Any:
        unwanted = eager("unwanted", x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = forward(x)
        return tape.gradient(y, x), unwanted

    recorded = _recordings(tf.function(step).get_concrete_function(X))
    assert recorded["unwanted"] == 0
    assert recorded["wanted"] == recorded["wanted_too"] != 0
    assert _recordings(tf.function(forward).get_concrete_function(X)) == {
        "wanted": 0,
        "wanted_too": 0,
    }


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


_SCRIPT_OPS: Nodes = {"a": ("PyFunc", []), "b": ("PyFunc", ["^a"])}
_TWO_USERS: Nodes = {"y": ("Identity", ["x", "^join"]), "z": ("Identity", ["x", "^join"])}
_JOIN: Nodes = {**_SCRIPT_OPS, "join": ("NoOp", ["^a", "^b"])}
_FIRST: Nodes = {"first": ("NoOp", ["^a", "^b"])}
_SECOND: Nodes = {"second": ("NoOp", ["^first"])}
_LAST: Nodes = {"y": ("Identity", ["x", "^second"])}

BYPASSED: dict[str, tuple[Nodes, dict[str, list[str]]]] = {
    "users wait for what it waits for": (
        {**_JOIN, "y": ("AddV2", ["x", "x", "^join"])},
        {"a": [], "b": ["^a"], "y": ["x", "x", "^a", "^b"]},
    ),
    "of an edge that is there already no second one is made": (
        {**_SCRIPT_OPS, "join": ("NoOp", ["^b"]), "y": ("Identity", ["x", "^join", "^b"])},
        {"a": [], "b": ["^a"], "y": ["x", "^b"]},
    ),
    "that of another": (
        {**_SCRIPT_OPS, **_FIRST, **_SECOND, **_LAST},
        {"a": [], "b": ["^a"], "y": ["x", "^a", "^b"]},
    ),
    "that of a later one": (
        {**_SCRIPT_OPS, **_SECOND, **_FIRST, **_LAST},
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
    new = Ordered(concrete).new
    assert not any(node.op == "NoOp" for f in new.values() for node in f.node_def)


def test_effects_on_variables_keep_their_order() -> None:
    """Keep the order of effects that are connected only by a NoOp in a FunctionDef."""

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
