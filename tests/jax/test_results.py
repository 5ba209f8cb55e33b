"""hostcall.jax: the structures of what a function returns, beside those that are declared."""

import collections
import concurrent.futures
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import hostcall
import hostcall.jax
from tests.support.errors import assert_says
from tests.support.jax.flavours import each_flavour
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


@pytest.mark.pairwise
@each_mode
@each_way
@pytest.mark.parametrize("name", TAKEN)
def test_the_containers_may_differ(name: str, way: Any, mode: Any) -> None:
    function, result = TAKEN[name]
    expected = jax.jit(lambda x: jax.pure_callback(function, result, x))(X)
    got = mode(lambda x: way(function, result, x))(X)
    assert_same(got, expected)
    assert jax.tree.structure(got) == jax.tree.structure(result)


@pytest.mark.pairwise
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


@pytest.mark.pairwise
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
    assert_says(
        raised,
        "is declared. This is ",
        "Write:\n    return {" if isinstance(result, dict) else "return (",
    )


@each_way
@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda v: {"a": v[:1], "b": v}, "shape (1,), but its declared shape is (4,)"),
        (lambda v: {"a": np.float16(v), "b": v}, "is half, but expects float"),
    ],
)
def test_shapes_and_dtypes_are_checked(function: Any, text: str, way: Any) -> None:
    raised = failure(jax.jit(lambda x: way(function, (ARRAY, ARRAY), x)), X)
    assert_says(raised, text)


# What functions return of 64 bits, and the dtype that is declared.
WIDE: dict[str, tuple[Any, Any]] = {
    "float": (0.1, np.float32),
    "int": (-42, np.int32),
    "complex": (0.1 - 2j, np.complex64),
    "float64": (np.float64(0.1), np.float32),
    "int64": (np.int64(-7), np.int32),
    "uint64": (np.uint64(2**32 - 1), np.uint32),
    "array of float64": (np.linspace(0, 1, 7), np.float32),
    "array of int64": (np.arange(-3, 3), np.int32),
    "array of uint64": (np.arange(3, dtype=np.uint64), np.uint32),
    "array of complex128": (np.linspace(0, 1j, 5), np.complex64),
    "strided array": (np.arange(12.0).reshape(3, 4).T[::2], np.float32),
    "empty array": (np.zeros((2, 0)), np.float32),
}


@pytest.mark.pairwise
@each_mode
@each_flavour
@pytest.mark.parametrize("name", WIDE)
def test_numbers_of_64_bits_become_those_that_jax_has(name: str, flavour: Any, mode: Any) -> None:
    value, dtype = WIDE[name]
    declared = struct(np.shape(value), dtype)

    def program(call: Any, x: Any) -> Any:
        lone = [call(function, declared, x) for function in (lambda _: value, lambda _: [value])]
        return lone, call(lambda x: {"b": value, "a": x}, {"a": ARRAY, "b": declared}, x)

    expected = program(jax.pure_callback, X)
    assert_same(mode(functools.partial(program, flavour))(X), expected)


@pytest.mark.parametrize("name", WIDE)
def test_where_jax_has_64_bits_nothing_is_converted(name: str) -> None:
    value, dtype = WIDE[name]
    array = np.asarray(value)
    with jax.enable_x64(True):
        same = jax.jit(lambda: call(lambda: value, struct(array.shape, array.dtype)))()
        assert_same(np.asarray(same), array)
        raised = failure(jax.jit(lambda: call(lambda: value, struct(array.shape, dtype))))
    assert_says(raised, "0-th value returned by <lambda> is", "but expects")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, np.float32),
        (1, bool),
        (True, np.int32),
        (1.0, np.int32),
        (1.0, np.complex64),
        (1.0, np.float16),
        (1j, np.float32),
    ],
    ids=repr,
)
def test_numbers_of_another_kind_are_errors(value: Any, dtype: Any) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.block_until_ready(jax.pure_callback(lambda: value, struct([], dtype)))
    raised = failure(lambda: call(lambda: value, struct([], dtype)))
    assert_says(raised, "0-th value returned by <lambda> is", "but expects")


@each_way
@pytest.mark.parametrize("value", [2**31, np.array([0, -(2**31) - 1])], ids=repr)
def test_an_integer_that_does_not_fit_is_an_error(value: Any, way: Any) -> None:
    raised = failure(
        jax.jit(lambda x: way(lambda _: value, struct(np.shape(value), np.int32), x)), X
    )
    assert_says(
        raised, "an integer that does not fit int32", '"jax_enable_x64", True', "declare int64"
    )


CALLS: dict[str, dict[str, Any]] = {
    "memo": {"memo": True, "stateful": False},
    "timeout": {"timeout": 60.0},
    "concurrent": {"concurrent": True, "stateful": False},
    "executor": {"executor": concurrent.futures.ThreadPoolExecutor(1)},
    "memory": {"memory": "device"},
    "borrow": {"borrow": True},
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_each_kind_take_containers_and_numbers(name: str) -> None:
    def total(x: Any) -> Any:
        return {"sum": float(np.sum(x))}

    def both(x: Any) -> Any:
        return [float(np.sum(x)), np.array(x, np.float64)]

    lone = hostcall.callback(total, result=struct([]), **CALLS[name])
    several = hostcall.callback(both, result=(struct([]), ARRAY), **CALLS[name])
    program = jax.jit(lambda x: (lone(x), several(x)))
    expected = np.float32(X.sum())
    for _ in range(2):
        assert_same(program(X), (expected, (expected, X)))


def test_recorded_calls_take_containers_and_numbers(tmp_path: Any) -> None:
    @jax.jit
    def program(x: Any) -> Any:
        return [
            call(lambda v: {"a": [float(np.sum(v))]}, struct([]), x),
            call(lambda v: (np.array(v, np.float64), 2), (ARRAY, struct([], np.int32)), x),
        ]

    file = str(tmp_path / "recording")
    with hostcall.record(file):
        first = program(X)
    with hostcall.replay(file):
        second = program(X)
    assert_same(first, [np.float32(X.sum()), (X, np.int32(2))])
    assert_same(second, first)
