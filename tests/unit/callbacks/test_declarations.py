"""hostcall._functions.declarations: what is declared of which callable, and for how long."""

import asyncio
import copy
import functools
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._functions.declarations import _table, declaration_of
from hostcall._functions.options import Options

SPEC = tf.TensorSpec([2], tf.float32)


def count() -> int:
    """Count the declarations, without those that only wait for the garbage collector."""
    gc.collect()
    return len(_table)


def result_of(function: Any) -> Any:
    declared = declaration_of(function)
    return declared and declared.result


def test_declare_returns_the_function() -> None:
    def function() -> None: ...

    assert hostcall.declare(function, result=SPEC) is function
    assert result_of(function) is SPEC


def test_declare_is_a_decorator_too() -> None:
    @hostcall.declare(result=SPEC)
    def function() -> None: ...

    assert result_of(function) is SPEC


def test_what_is_not_declared_has_no_declaration() -> None:
    assert declaration_of(lambda: None) is None
    assert declaration_of(np.cos) is None


def test_the_latest_declaration_holds() -> None:
    def function() -> None: ...

    hostcall.declare(function, result=SPEC)
    hostcall.declare(function, result=[3], pure=True, timeout=2.0)
    assert declaration_of(function) == Options([3], True, 2.0)


@pytest.mark.parametrize("result", ["tracee", "", b"trace", [SPEC, "trace"], {"a": ("x",)}])
def test_an_unknown_string_as_result_is_refused_where_it_is_declared(result: Any) -> None:
    for declare in (hostcall.declare, hostcall.callback):
        with pytest.raises(ValueError, match="says nothing of a result"):
            declare(lambda x: x, result=result)
        with pytest.raises(ValueError, match="says nothing of a result"):
            declare(result=result)


def test_a_callback_cannot_be_traced_for_its_result() -> None:
    with pytest.raises(ValueError, match=r"result='trace' is for hostcall\.declare"):
        hostcall.callback(lambda x: x, result="trace", kind="eager")


class Awaited:
    async def __call__(self, x: Any) -> Any:
        return x

    async def method(self, x: Any) -> Any:
        return x


async def coroutine(x: Any) -> Any:
    return x


async def asynchronous_generator(x: Any) -> Any:
    yield x


@pytest.mark.parametrize(
    "function",
    [
        coroutine,
        asynchronous_generator,
        functools.partial(coroutine, 1),
        Awaited(),
        Awaited().method,
    ],
)
def test_an_async_function_is_refused_where_it_is_declared(function: Any) -> None:
    for declare in (hostcall.declare, hostcall.callback):
        with pytest.raises(TypeError, match=rf"hostcall\.{declare.__name__} wants .*`async`"):
            declare(function, result=SPEC)
        with pytest.raises(TypeError, match="`async`"):
            declare(result=SPEC)(function)


def test_a_function_that_runs_an_async_one_is_as_good_as_any() -> None:
    @functools.wraps(coroutine)
    def run(x: Any) -> Any:
        return asyncio.run(coroutine(x))

    hostcall.declare(run, result=SPEC)
    program = tf.function(lambda x: tf.numpy_function(run, [x], tf.float32), jit_compile=True)
    np.testing.assert_array_equal(program([1.0, 2.0]), [1.0, 2.0])


@pytest.mark.parametrize("function", [3, "sin", SPEC, []])
def test_what_is_not_callable_is_a_type_error(function: Any) -> None:
    with pytest.raises(TypeError, match=r"hostcall\.declare wants a function"):
        hostcall.declare(function, result=SPEC)
    with pytest.raises(TypeError, match=r"hostcall\.declare wants a function"):
        hostcall.declare(result=SPEC)(function)


@pytest.mark.parametrize("timeout", [0, -1, 0.0, float("nan"), "1"])
def test_a_timeout_is_positive(timeout: Any) -> None:
    with pytest.raises(ValueError, match="not a positive time"):
        hostcall.declare(len, timeout=timeout)
    with pytest.raises(ValueError, match="not a positive time"):
        hostcall.declare(timeout=timeout)


class Model:
    def method(self) -> None: ...

    def other(self) -> None: ...

    @classmethod
    def of_the_class(cls) -> None: ...

    @staticmethod
    def static() -> None: ...

    def __call__(self) -> None: ...


def test_a_bound_method_is_known_again() -> None:
    model, stranger = Model(), Model()
    hostcall.declare(model.method, result=SPEC)
    assert result_of(model.method) is SPEC
    assert result_of(model.other) is None
    assert result_of(stranger.method) is None
    assert result_of(model) is None


def test_a_method_lives_as_long_as_its_object() -> None:
    model = Model()
    before = count()
    hostcall.declare(model.method, result=SPEC)
    gc.collect()
    assert result_of(model.method) is SPEC
    del model
    assert count() == before


@pytest.mark.parametrize(
    "function",
    [Model.of_the_class, Model.static, Model(), Model, functools.partial(min, 3), len, np.sin],
    ids=["class method", "static method", "object", "class", "partial", "builtin", "ufunc"],
)
def test_every_kind_of_callable(function: Any) -> None:
    hostcall.declare(function, result=SPEC)
    assert result_of(function) is SPEC
    hostcall.declare(function, result=None)  # those of Python and NumPy live on


def test_functions_are_held_weakly() -> None:
    def function() -> None: ...

    reference = weakref.ref(function)
    hostcall.declare(function, result=SPEC)
    del function
    gc.collect()
    assert reference() is None


class Ruled:
    """Its rule is a method, too."""

    def method(self) -> None: ...

    def rule(self, *specs: Any) -> Any: ...


def with_a_rule_that_refers_to_it() -> Any:
    def function() -> None: ...

    return hostcall.declare(function, result=lambda: function)


def test_a_rule_may_refer_to_its_function() -> None:
    function, ruled = with_a_rule_that_refers_to_it(), Ruled()
    hostcall.declare(ruled.method, result=ruled.rule)
    references = weakref.ref(function), weakref.ref(ruled)
    del function, ruled
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_a_copy_of_the_attributes_is_no_declaration() -> None:
    def function() -> None: ...

    hostcall.declare(function, result=SPEC)
    wrapper = functools.wraps(function)(lambda: None)
    assert result_of(wrapper) is None
    hostcall.declare(wrapper, result=[3])
    assert result_of(function) is SPEC
    assert result_of(wrapper) == [3]


def test_objects_with_declarations_can_be_pickled_and_copied() -> None:
    model = Model()
    hostcall.declare(model.method, result=lambda: SPEC)
    hostcall.declare(model, result=SPEC)
    for twin in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):
        assert result_of(twin) is None
        assert result_of(twin.method) is None
        hostcall.declare(twin, result=[3])
    assert result_of(model) is SPEC


def test_many_declarations_leave_nothing() -> None:
    before = count()
    for _ in range(10_000):
        # Memory is used again, and so are ids: none of them may find another one's declaration.
        assert result_of(hostcall.declare(lambda: None, result=SPEC)) is SPEC
        assert declaration_of(lambda: None) is None
    assert count() == before


class AllAlike:
    """Callables that are equal, and of which some cannot be hashed."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __call__(self) -> None: ...


def test_equal_callables_are_told_apart() -> None:
    one, other = AllAlike(), AllAlike()
    hostcall.declare(one, result=SPEC)
    assert result_of(one) is SPEC
    assert result_of(other) is None


class Slotted:
    __slots__ = ()

    def __call__(self) -> None: ...


def test_a_callable_that_cannot_be_held_weakly() -> None:
    slotted = Slotted()
    with pytest.raises(TypeError):
        weakref.ref(slotted)
    hostcall.declare(slotted, result=SPEC)
    assert result_of(slotted) is SPEC
