"""hostcall_mlir.program.structures: values of Python's, and the flat lists that programs have."""

import collections
import itertools
import reprlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostcall_mlir.program.structures import StructureError, flatten, pack, problem_of, structure_of
from hostcall_runtime import _trees
from hostcall_runtime._errors import NotExportableError

Pair = collections.namedtuple("Pair", ["one", "other"])
CLASSES = {f"{Pair.__module__}:Pair": Pair}

values = st.recursive(
    st.none() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.tuples(inner, inner).map(lambda pair: Pair(*pair))
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(values)
def test_value_comes_back_from_its_structure_and_leaves(value: Any) -> None:
    numbers = itertools.count()
    number = lambda leaf: None if leaf is None else next(numbers)  # noqa: E731
    structure = structure_of(_trees.map_leaves(number, value), "it")
    leaves = [leaf for leaf in _trees.leaves(value) if leaf is not None]
    assert problem_of(structure, len(leaves)) is None
    packed = pack(structure, leaves, CLASSES)
    assert packed == value
    assert type(packed) is type(value)
    assert flatten(structure, value, "it") == leaves


@pytest.mark.parametrize("value", [(1, 2), [1, 2], Pair(1, 2)])
@pytest.mark.parametrize(
    "structure", [{"tuple": [0, 1]}, {"list": [0, 1]}, {"namedtuple": "m:P", "items": [0, 1]}]
)
def test_any_sequence_does_for_any_other(structure: Any, value: Any) -> None:
    assert flatten(structure, value, "it") == [1, 2]


@pytest.mark.parametrize(
    ("structure", "value", "text"),
    [
        ({"tuple": [0, 1]}, (1,), "it should be (array, array), and there is a tuple of 1 where"),
        ({"tuple": [0, 1]}, 5, "there is an int where a tuple of 2 is expected."),
        ({"dict": {"a": 0}}, {"b": 1}, "a dict of the keys ['b'] where a dict of the keys ['a']"),
        ({"dict": {"a": 0}}, [1], "a list where a dict of the keys ['a'] is expected."),
        (None, 5, "it should be None, and there is an int where None is expected."),
        ({"list": [{"tuple": [0]}]}, [5], "an int where a tuple of 1 is expected at [0]."),
        ({"tuple": [{"dict": {"a": {"list": [0]}}}]}, ({"a": 1},), "is expected at [0]['a']."),
    ],
)
def test_another_structure_is_an_error_that_says_where(
    structure: Any, value: Any, text: str
) -> None:
    with pytest.raises(StructureError) as raised:
        flatten(structure, value, "it")
    assert text in str(raised.value)


def test_dict_with_other_keys_than_strings_has_no_structure() -> None:
    with pytest.raises(NotExportableError, match="keys that are not strings"):
        structure_of({1: 2}, "it")


@pytest.mark.parametrize(
    "structure",
    [
        *(True, 1.5, "tuple", [0], {}, {"tuple": 0}, {"tuple": [0], "list": [0]}, {"set": [0]}),
        *({"dict": [0]}, {"namedtuple": "m:P"}, {"namedtuple": 5, "items": [0]}),
        {"tuple": [{"tuple": ["x"]}]},
    ],
)
def test_what_is_no_structure_is_told(structure: Any) -> None:
    assert problem_of(structure, 1) == f"{reprlib.repr(structure)} is not a structure"


def test_structure_deeper_than_python_goes_is_told() -> None:
    structure: Any = 0
    for _ in range(3000):
        structure = {"tuple": [structure]}
    assert "is not a structure" in str(problem_of(structure, 1))
