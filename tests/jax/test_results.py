"""hostcall.jax: the structures of what a function returns, beside those that are declared."""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import hostcall
import hostcall.jax
from tests.support.errors import assert_says
from tests.support.jax.helpers import X, assert_same, each_mode, failure, struct

call = hostcall.jax.call

ARRAY = struct(X.shape)
SQUARE = struct([2, 2])


class Pair(NamedTuple):
    low: Any
    high: Any


def by_call(function: Any, result: Any, x: Any) -> Any:
    return call(function, result, x, pure=True)


def by_callback(function: Any, result: Any, x: Any) -> Any:
    return hostcall.callback(function, result=result, stateful=False)(x)


each_way = pytest.mark.parametrize("way", [by_call, by_callback])


# What functions return, and what is declared. Stock JAX takes all of these.
TAKEN: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "a list for a tuple": (lambda v: [v, 2 * v], (ARRAY, ARRAY)),
    "a tuple for a list": (lambda v: (v, 2 * v), [ARRAY, ARRAY]),
    "a named tuple for a tuple": (lambda v: Pair(v, 2 * v), (ARRAY, ARRAY)),
    "a tuple for a named tuple": (lambda v: (v, 2 * v), Pair(ARRAY, ARRAY)),
    "lists in a dict for tuples": (lambda v: {"a": [v, 2 * v]}, {"a": (ARRAY, ARRAY)}),
    "a dict in a list in a tuple": (lambda v: ([{"a": v}], 2 * v), ({"a": (ARRAY,)}, ARRAY)),
    "a defaultdict for a dict": (lambda v: collections.defaultdict(list, a=v), {"a": ARRAY}),
    "an OrderedDict for a dict": (lambda v: collections.OrderedDict(a=v), {"a": ARRAY}),
    "a dict for an OrderedDict": (lambda v: {"a": v}, collections.OrderedDict(a=ARRAY)),
    "a list for a dict": (lambda v: [v, 2 * v], {"a": ARRAY, "b": ARRAY}),
    "a dict for a tuple": (lambda v: {"a": v, "b": 2 * v}, (ARRAY, ARRAY)),
    "None left out": (lambda v: {"a": v}, {"a": ARRAY, "b": None}),
    "None beside an array": (lambda v: (v, None), ARRAY),
    "an array for a tuple of one": (lambda v: v, (ARRAY,)),
    "an array for a dict of one": (lambda v: v, {"a": ARRAY}),
    "a tuple of one for an array": (lambda v: (v,), ARRAY),
    "a dict of one for an array": (lambda v: {"a": v}, ARRAY),
    "a tuple in a list for an array": (lambda v: [(v,)], ARRAY),
    "a number in a tuple": (lambda v: (v[0],), struct([])),
    "keys that do not compare": (lambda v: {"a": {1: v}}, {"a": {1: ARRAY}}),
}


@each_mode
@each_way
@pytest.mark.parametrize("name", TAKEN)
def test_the_containers_may_differ(name: str, way: Any, mode: Any) -> None:
    function, result = TAKEN[name]
    expected = jax.jit(lambda x: jax.pure_callback(function, result, x))(X)
    got = mode(lambda x: way(function, result, x))(X)
    assert_same(got, expected)
    assert jax.tree.structure(got) == jax.tree.structure(result)


@each_mode
@each_way
@pytest.mark.parametrize(
    ("function", "result"),
    [
        (np.linalg.eigh, (struct([2]), SQUARE)),
        (np.linalg.svd, (SQUARE, struct([2]), SQUARE)),
        (np.linalg.qr, (SQUARE, SQUARE)),
        (np.linalg.slogdet, [struct([]), struct([])]),
    ],
)
def test_functions_of_numpy_return_named_tuples(
    function: Any, result: Any, way: Any, mode: Any
) -> None:
    x = np.array([[2, 1], [1, 3]], np.float32)
    got = mode(lambda x: way(function, result, x))(x)
    assert_same(got, type(result)(function(x)))


@each_way
@pytest.mark.parametrize("build", [collections.OrderedDict, dict], ids=lambda one: one.__name__)
def test_the_values_of_dicts_go_by_their_keys(way: Any, build: Any) -> None:
    # JAX takes the values of an OrderedDict as they were inserted, and would exchange these two.
    def backwards(v: Any) -> Any:
        return collections.OrderedDict(b=v, a=2 * v)

    assert_same(way(backwards, build(a=ARRAY, b=ARRAY), X), build(a=2 * X, b=X))
    assert_same(
        way(lambda v: {"a": 2 * v, "b": v}, build(b=ARRAY, a=ARRAY), X), build(b=X, a=2 * X)
    )


NOTHING: dict[str, Callable[[Any], Any]] = {
    "None": lambda _: None,
    "a tuple": lambda _: (),
    "a list": lambda _: [],
    "a dict": lambda _: {},
    "Nones": lambda _: {"a": None, "b": [None]},
}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("declared", [None, (), [], {}, {"a": None}], ids=str)
@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_nothing(name: str, declared: Any, ordered: bool) -> None:
    seen = []

    def note(named: Any) -> Any:
        seen.append(named["x"])
        return NOTHING[name](named)

    def program(x: Any) -> Any:
        if ordered and declared is not None:
            hostcall.callback(note, result=declared)({"x": x})
        return call(note, declared, {"x": x}, ordered=ordered)

    assert jax.jit(program)(X) == declared
    jax.effects_barrier()
    assert len(seen) == 1 + (ordered and declared is not None)
    assert_same(seen[0], X)


@each_way
@pytest.mark.parametrize(
    ("function", "result"),
    [
        (lambda v: (v, v, v), (ARRAY, ARRAY)),
        (lambda v: (v,), (ARRAY, ARRAY)),
        (lambda v: v, (ARRAY, ARRAY)),
        (lambda v: {"a": v, "b": v}, {"a": ARRAY}),
        (lambda _: None, {"a": ARRAY}),
        (lambda v: {"b": v}, {"a": ARRAY}),
        (lambda v: {"a": {"b": v}, "c": v}, {"a": {"c": ARRAY}, "c": ARRAY}),
    ],
)
def test_other_numbers_and_other_keys_are_errors(function: Any, result: Any, way: Any) -> None:
    raised = failure(jax.jit(lambda x: way(function, result, x)), X)
    assert_says(raised, "ResultError", "is declared. Correct the function or the declaration")


@each_way
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda v: {"a": v[:1], "b": v}, "shape (1,), but its declared shape is (4,)"),
        (lambda v: {"a": np.float64(v), "b": v}, "is double, but expects float"),
    ],
)
def test_shapes_and_dtypes_are_checked(function: Any, text: str, way: Any) -> None:
    raised = failure(jax.jit(lambda x: way(function, (ARRAY, ARRAY), x)), X)
    assert_says(raised, text)
