"""hostcall._tf.function_defs: the order of nodes."""

from collections.abc import Mapping, Sequence

import pytest

from hostcall._tf import function_defs, protos


def order(nodes: Mapping[str, Sequence[str]]) -> list[str]:
    function = protos.function_pb2.FunctionDef()
    for name, inputs in nodes.items():
        function.node_def.add(name=name, op="AddV2", input=inputs)
    return [node.name for node in function_defs.program_order(function)]


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
