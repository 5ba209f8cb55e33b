"""hostcall_runtime._trees: leaves of structures, in the order of the frameworks."""

import collections
from typing import Any

import pytest

from hostcall_runtime import _trees

Pair = collections.namedtuple("Pair", ["one", "other"])
TREE = [{"b": 1, "a": (2, None)}, Pair(3, []), collections.OrderedDict(z=4)]


def test_leaves_of_a_dict_come_in_the_order_of_its_keys() -> None:
    assert _trees.leaves(TREE) == [2, None, 1, 3, 4]
    assert _trees.leaves({1: "one", "a": "text"}) == ["one", "text"]
    assert _trees.items({"b": 1, "a": 2}) == [("a", 2), ("b", 1)]
    assert _trees.items(5) is None


def test_other_leaves_lie_where_the_first_did() -> None:
    packed = _trees.pack(TREE, "abcde")
    assert packed == [{"b": "c", "a": ("a", "b")}, Pair("d", []), {"z": "e"}]
    assert [*packed[0]] == ["b", "a"]
    assert type(packed[2]) is collections.OrderedDict


def test_a_part_may_be_a_leaf() -> None:
    assert _trees.leaves(TREE, lambda part: isinstance(part, dict)) == [TREE[0], 3, TREE[2]]


@pytest.mark.parametrize(
    "other", [(1, {"a": 2}), [1, {"b": 2}], [1, 2, {"a": 3}], [1, {"a": [2]}], [{"a": 2}, 1]]
)
def test_forms_tell_structures_apart(other: Any) -> None:
    assert _trees.form([1, {"a": 2}]) == _trees.form([5, {"a": None}])
    assert _trees.form([1, {"a": 2}]) != _trees.form(other)
    assert _trees.form([1], type) != _trees.form(["text"], type)
