"""hostcall._tf.graph.function_edits: where new nodes stand, and what takes changed values."""

import itertools

import pytest

from hostcall._tf.graph import function_edits, protos
from hostcall._tf.graph.function_edits import FunctionEdits
from hostcall._tf.types import FunctionDef, NodeDef


def node(name: str, *inputs: str) -> NodeDef:
    made: NodeDef = protos.node_def_pb2.NodeDef(name=name, op="Neg", input=inputs)
    return made


def chain(*names: str) -> FunctionDef:
    """Return a function whose nodes take each other's results."""
    made: FunctionDef = protos.function_pb2.FunctionDef()
    for before, name in itertools.pairwise(["x", *names]):
        made.node_def.append(node(name, f"{before}:y:0"))
    made.ret["result"] = f"{names[-1]}:y:0"
    return made


@pytest.mark.parametrize("most_in_place", [0, 100], ids=["anew", "in_place"])
def test_nodes_are_added_beside_others(most_in_place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes in front of one take changed values; those behind it take them as they were."""
    monkeypatch.setattr(function_edits, "MOST_IN_PLACE", most_in_place)
    function = chain("a", "b", "c")
    edits = FunctionEdits(function)
    edits.before("b", [node("b1"), node("b2", "a:y:0")])
    edits.after("a", [node("a1", "a:y:0"), node("a2")])
    edits.after("nowhere", [node("n")])
    edits.at_end([node("z", "c:y:0")])
    edits.change("a:y:0", "a1:y:0")
    edits.change("c:y:0", "z:y:0")
    assert edits.write()
    assert [one.name for one in function.node_def] == ["a", "a1", "a2", "b1", "b2", "b", "c", "z"]
    taken = {one.name: [*one.input] for one in function.node_def}
    assert taken["b2"] == taken["b"] == ["a1:y:0"]
    assert taken["a1"] == ["a:y:0"]
    assert taken["z"] == ["c:y:0"]
    assert function.ret["result"] == "z:y:0"


@pytest.mark.parametrize("most_in_place", [0, 100], ids=["anew", "in_place"])
def test_dead_nodes_are_removed(most_in_place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_edits, "MOST_IN_PLACE", most_in_place)
    function = chain("a", "b", "c", "d")
    function.ret["result"] = "b:y:0"
    function_edits.drop_dead_nodes(function, {})
    assert [one.name for one in function.node_def] == ["a", "b"]


def test_nothing_is_written_without_edits() -> None:
    function = chain("a")
    assert not FunctionEdits(function).write()
    assert function == chain("a")
