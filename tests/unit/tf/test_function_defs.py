"""hostcall._tf.graph.function_defs: the order of nodes."""

from collections.abc import Mapping, Sequence

import pytest

from hostcall._tf.graph import function_defs, protos


def order(nodes: Mapping[str, Sequence[str]]) -> list[str]:
    made = protos.function_pb2.FunctionDef()
    for name, inputs in nodes.items():
        made.node_def.add(name=name, op="AddV2", input=inputs)
    return [node.name for node in function_defs.program_order(made)]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({}, ""),
        ({"a": ["x"], "b": ["a:z:0", "x"], "c": ["^a"]}, "abc"),
        ({"b": ["a:z:0"], "a": ["x"], "c": []}, "abc"),
        ({"c": ["^b"], "b": ["^a"], "a": []}, "abc"),
        ({"a": ["b"], "c": ["^a"], "d": [], "b": []}, "dbac"),
        ({"a": [], "b": ["later"]}, "ab"),  # an argument
    ],
)
def test_program_order(nodes: Mapping[str, Sequence[str]], expected: str) -> None:
    """All edges are respected; otherwise it is the order of creation."""
    assert "".join(order(nodes)) == expected


def test_program_order_of_a_loop_of_version_1() -> None:
    """It leads back to where it begins, and all of its nodes are there."""
    nodes = {
        "exit": ("Exit", ["switch:output_false:0"]),
        "merge": ("Merge", ["enter:output:0", "next:output:0"]),
        "switch": ("Switch", ["merge:output:0", "condition:y:0"]),
        "enter": ("Enter", ["x"]),
        "next": ("NextIteration", ["body:z:0"]),
        "body": ("Mul", ["switch:output_true:0", "switch:output_true:0"]),
        "condition": ("LoopCond", ["merge:output:0"]),
    }
    function = protos.function_pb2.FunctionDef()
    for name, (op, inputs) in nodes.items():
        function.node_def.add(name=name, op=op, input=inputs)
    ordered = function_defs.program_order(function)
    assert " ".join(node.name for node in ordered) == "enter merge condition switch exit body next"
    for i, before in enumerate(function_defs.predecessors(ordered)):
        assert all(j < i for j in before)


def test_no_order_loses_nodes() -> None:
    with pytest.raises(RuntimeError, match=r"the nodes 'b', 'c', 'd' of a function wait for each"):
        order({"a": [], "b": ["c"], "c": ["b", "a"], "d": ["^c"]})
