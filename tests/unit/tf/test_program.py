"""hostcall._tf.graph.program: functions as objects, read from messages and written back."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hostcall._tf import concrete_functions
from hostcall._tf.graph import function_defs as defs
from hostcall._tf.graph import protos
from hostcall._tf.graph.program import Function, Node, ProgramModel
from tests.support.e2e import written_back

X = tf.TensorSpec([3], tf.float32)


def library_of(function: Callable[..., Any]) -> Any:
    concrete = tf.function(function).get_concrete_function(X)
    return concrete_functions.library_of(concrete, concrete.graph.as_graph_def())


def loop(x: tf.Tensor) -> tf.Tensor:
    return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 2.0), [0, x])[1]


def branch(x: tf.Tensor) -> tf.Tensor:
    return tf.cond(tf.reduce_sum(x) > 0.0, lambda: tf.sin(x), lambda: tf.unique(x)[0])


def effects(x: tf.Tensor) -> tf.Tensor:
    tf.print("the value is", x)
    with tf.control_dependencies([tf.debugging.check_numerics(x, "a number")]):
        return tf.identity(x)


def calls(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    inner = tf.function(lambda y: (tf.numpy_function(np.sort, [y], tf.float32), y + 1.0))
    first, second = inner(x)
    return inner(first)[0], second


def variable(x: tf.Tensor) -> tf.Tensor:
    state.assign_add(x)
    return state * tf.constant([1.0, 2.0, 3.0])


def strings(x: tf.Tensor) -> tf.Tensor:
    return tf.strings.join([tf.constant(["a", "\0ä", ""]), tf.strings.as_string(x)])


def nothing(x: tf.Tensor) -> None:
    """Return nothing."""


state = tf.Variable([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    "function", [loop, branch, effects, calls, variable, strings, nothing], ids=lambda f: f.__name__
)
def test_what_is_read_is_written_back_byte_for_byte(function: Callable[..., Any]) -> None:
    written_back.check(library_of(function))


def test_what_is_not_asked_for_is_not_read() -> None:
    (read,) = ProgramModel([library_of(effects).function[0]]).values()
    assert read.write() is read.proto
    assert "nodes" not in vars(read)


def made(*nodes: str, returns: str = "", controls: str = "") -> Function:
    """Make a function of an argument x, from nodes like "b Sin a ^c": the name, the op, inputs."""
    proto = protos.function_pb2.FunctionDef()
    proto.signature.name = "made"
    proto.signature.input_arg.add(name="x", type=defs.FLOAT)
    for text in nodes:
        name, op, *inputs = text.split()
        node = proto.node_def.add(name=name, op=op)
        node.input[:] = [i if i[0] == "^" or i == "x" else f"{i}:{RESULTS[i[0]]}" for i in inputs]
        node.attr["dtype" if op == "Const" else "T"].type = defs.FLOAT
    for name in returns.split():
        proto.signature.output_arg.add(name=name, type=defs.FLOAT)
        proto.ret[name] = f"{name}:{RESULTS[name[0]]}"
    for name in controls.split():
        proto.signature.control_output.append(name)
        proto.control_ret[name] = name
    return ProgramModel([proto])["made"]


# The results of the nodes of `made`, by the first letters of their names.
RESULTS = {"a": "y:0", "b": "y:0", "c": "output:0", "d": "y:0", "s": "z:0"}


def lines(function: Function) -> list[str]:
    """Return the lines of a function as text, without attributes, each without spaces around it."""
    for node in function.nodes:
        node.attr.clear() if node.op != "Const" else None
    return [line.strip() for line in str(function).splitlines()]


def named(function: Function, *names: str) -> list[Node]:
    return [node for node in function.nodes if node.name in names]


def test_a_function_as_text() -> None:
    function = made("a Sin x", "c Const", "s AddV2 a c ^b", "b Cos x", returns="s", controls="b")
    assert str(function).splitlines() == [
        "@made(%x: float32) -> (s: %s) [^b]",
        "  %a = Sin(%x) {T: float32}",
        "  %c = Const() {dtype: float32}",
        "  %s = AddV2(%a, %c) {T: float32} [^b]",
        "  %b = Cos(%x) {T: float32}",
    ]


def test_results_and_attributes_as_text() -> None:
    program = ProgramModel(
        library_of(lambda x: tf.unique(tf.constant([[1.0, 2.0]] * 5)[0])[1]).function
    )
    text = str(program)
    assert "Const() {dtype: float32, value: float32(5, 2)}" in text
    assert "Const() {dtype: int32, value: [1]}" in text
    assert "{T: float32, out_idx: int32}" in text
    assert "Unique:1)" in text
    assert text == str(ProgramModel([f.write() for f in program.values()]))


def test_users_follow_replaced_values() -> None:
    function = made("a Sin x", "b Cos x", "s AddV2 a a", "d Neg a", returns="a s")
    a, b = (node.results[0] for node in named(function, "a", "b"))
    function.replace_uses(a, b)
    assert not a.users
    assert [node.name for node in b.users] == ["s", "d"]
    assert lines(function)[0] == "@made(%x: float32) -> (a: %b, s: %s)"
    assert [*function.write().node_def[2].input] == ["b:y:0", "b:y:0"]
    assert function.write().ret["a"] == "b:y:0"


def test_nodes_wait_for_another_one() -> None:
    function = made("a Sin x", "b Cos x", "d Neg x ^a ^b", controls="a")
    a, b = named(function, "a", "b")
    function.replace_waits([a], b)
    assert not a.waiters
    assert lines(function)[0] == "@made(%x: float32) -> () [^b]"
    assert [*function.write().node_def[2].input] == ["x", "^b"]


def test_erased_nodes_use_nothing_any_more() -> None:
    function = made("a Sin x", "b Cos a ^d", "d Neg x", returns="a")
    a, b, d = function.nodes
    function.erase({b})
    assert not a.results[0].users
    assert not d.waiters
    assert [node.name for node in function.write().node_def] == ["a", "d"]


def test_live_nodes() -> None:
    function = made("a Sin x", "b Cos a", "d Neg x ^b", "c Const", "s AddV2 x x", returns="d")
    assert {node.name for node in function.live()} - {"x"} == {"a", "b", "d"}
    function.drop_dead_nodes()
    assert [node.name for node in function.nodes] == ["a", "b", "d"]


def test_the_order_respects_all_edges() -> None:
    function = made("b Cos a", "a Sin x ^d", "c Const", "d Neg x", returns="b")
    assert [node.name for node in function.in_order()] == ["c", "d", "a", "b"]
    assert [node.name for node in function.nodes] == ["b", "a", "c", "d"]


def test_new_nodes_stand_before_others() -> None:
    function = made("a Sin x", "b Cos a", returns="b")
    a, b = function.nodes
    new = function.add("d", "Neg", a.results, [a], before=b, like=a)
    b.operands = new.results
    assert lines(function)[1:] == ["%a = Sin(%x)", "%d = Neg(%a) [^a]", "%b = Cos(%d)"]
    assert [node.name for node in function.write().node_def] == ["a", "d", "b"]
    assert function.nodes[0].proto.attr is not new.attr


def test_a_part_is_cut_out() -> None:
    function = made("a Sin x", "c Const ^a", "s AddV2 a c ^a", "d Neg s", returns="d")
    part, taken, controls = function.cut("part", named(function, "s"), named(function, "c"))
    part.add_result("out", named(part, "s")[0].results[0])
    call = function.add("call", "Neg", taken, controls)
    function.replace_uses(part.results["out"], call.value("y:0"))
    assert [str(value) for value in taken] == ["%a"]
    assert [node.name for node in controls] == ["a"]
    assert lines(part) == [
        "@part(%hostcall_arg_0: float32) -> (out: %s)",
        "%c = Const() {dtype: float32}",
        "%s = AddV2(%hostcall_arg_0, %c)",
    ]
    assert [node.name for node in function.nodes] == ["a", "c", "d", "call"]
    assert [str(value) for value in named(function, "d")[0].operands] == ["%call"]
