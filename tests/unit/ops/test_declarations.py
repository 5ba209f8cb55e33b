"""hostcall._functions.declarations: what is declared of which callable, and for how long."""

import asyncio
import copy
import dataclasses
import functools
import gc
import inspect
import pickle
import weakref
from typing import Any

import msgspec
import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall._functions.declarations import _table, declaration_of
from hostcall._functions.options import CallbackOptions, DeclareOptions, Options, SharedOptions
from hostcall._saved.tokens import Declared

SPEC = tf.TensorSpec([2], tf.float32)


def count() -> int:
    """Count the declarations, without those that only wait for the garbage collector."""
    gc.collect()
    return len(_table)


def result_of(function: Any) -> Any:
    declared = declaration_of(function)
    return declared and declared.result


def test_the_latest_declaration_holds() -> None:
    def function() -> None: ...

    assert declaration_of(function) is None
    assert hostcall.declare(function, result=SPEC) is function
    assert result_of(function) is SPEC
    assert hostcall.declare(result=[3], pure=True, timeout=2.0)(function) is function
    assert declaration_of(function) == Options([3], True, 2.0)


@pytest.mark.parametrize("result", ["tracee", "", b"trace", [SPEC, "trace"], {"a": ("x",)}])
@pytest.mark.parametrize("declare", [hostcall.declare, hostcall.callback])
def test_an_unknown_string_as_result_is_refused(declare: Any, result: Any) -> None:
    for functions in ([], [lambda x: x]):
        with pytest.raises(ValueError, match="says nothing of a result"):
            declare(*functions, result=result)
    with pytest.raises(ValueError, match=r"result='trace' is for hostcall\.declare"):
        hostcall.callback(lambda x: x, result="trace", kind="eager")


class Awaited:
    async def __call__(self, x: Any) -> Any:
        return x

    async def method(self, x: Any) -> Any:
        return x


async def coroutine(x: Any) -> Any:
    return x


async def generator(x: Any) -> Any:
    yield x


@pytest.mark.parametrize(
    "function", [coroutine, generator, functools.partial(coroutine, 1), Awaited(), Awaited().method]
)
def test_an_async_function_is_refused_where_it_is_declared(function: Any) -> None:
    for declare in (hostcall.declare, hostcall.callback):
        with pytest.raises(TypeError, match=rf"hostcall\.{declare.__name__} wants .*`async`"):
            declare(function, result=SPEC)
        with pytest.raises(TypeError, match="`async`"):
            declare(result=SPEC)(function)
    hostcall.declare(functools.wraps(coroutine)(lambda x: asyncio.run(coroutine(x))), result=SPEC)


@pytest.mark.parametrize("declare", [hostcall.declare, hostcall.callback])
@pytest.mark.parametrize("function", [3, "sin", SPEC, [], [len]])
def test_what_is_not_callable_is_a_type_error(function: Any, declare: Any) -> None:
    for call in (declare, lambda function, result: declare(result=result)(function)):
        with pytest.raises(TypeError, match=rf"hostcall\.{declare.__name__} wants a function"):
            call(function, result=SPEC)


@pytest.mark.parametrize("timeout", [0, -1, 0.0, float("nan"), "1"])
def test_a_timeout_is_positive(timeout: Any) -> None:
    with pytest.raises(ValueError, match="not a positive time"):
        hostcall.declare(len, timeout=timeout)
    with pytest.raises(ValueError, match="not a positive time"):
        hostcall.declare(timeout=timeout)


class Model:
    def method(self) -> None: ...

    def other(self) -> None: ...

    def rule(self, *specs: Any) -> Any: ...

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


class Slotted:
    """Callables that cannot be held weakly."""

    __slots__ = ()

    def __call__(self) -> None: ...


KINDS = [Model.of_the_class, Model.static, Model(), Model, Slotted()]
KINDS += [functools.partial(min, 3), len, np.sin]


@pytest.mark.parametrize("function", KINDS)
def test_every_kind_of_callable(function: Any) -> None:
    hostcall.declare(function, result=SPEC)
    assert result_of(function) is SPEC
    hostcall.declare(function, result=None)  # those of Python and NumPy live on


def test_declarations_keep_nothing_alive() -> None:
    """What is declared and what a rule refers to die with their last other reference."""

    def function() -> None: ...

    model, ruled, before = Model(), Model(), count()
    hostcall.declare(function, result=lambda function=function: function)
    hostcall.declare(model.method, result=SPEC)
    hostcall.declare(ruled.method, result=ruled.rule)
    gc.collect()
    assert result_of(model.method) is SPEC
    references = [weakref.ref(one) for one in (function, model, ruled)]
    del function, model, ruled
    assert count() == before
    assert [reference() for reference in references] == [None] * 3


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


# The options of calls, and what follows from them.

WAYS = [
    (hostcall.declare, {*DeclareOptions.__annotations__}),
    (hostcall.callback, {*CallbackOptions.__annotations__}),
]


def test_every_field_is_an_option_that_can_be_declared() -> None:
    fields = {field.name for field in dataclasses.fields(Options) if field.init}
    assert {*DeclareOptions.__annotations__} == fields
    assert SharedOptions.__annotations__.items() <= CallbackOptions.__annotations__.items()


@pytest.mark.parametrize(("function", "options"), WAYS)
def test_signatures_and_docstrings_have_the_options(function: Any, options: set[str]) -> None:
    parameters = inspect.signature(function).parameters
    lines = str(inspect.getdoc(function)).splitlines()
    for name in options:
        assert parameters[name].default == getattr(Options, name), name
        assert sum(line.startswith(f"  {name}: ") for line in lines) == 1, name
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    assert max(map(len, lines)) <= 100


def test_an_option_of_another_name_is_a_type_error() -> None:
    with pytest.raises(
        TypeError, match=r"^declare\(\) got an unexpected .* 'retrys'. Did you mean 'retries'\?$"
    ):
        hostcall.declare(len, retrys=2)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"^callback\(\) got an unexpected .* 'route'$"):
        hostcall.callback(len, result=SPEC, route="partition")  # type: ignore[call-overload]


def test_saved_graphs_record_the_options_that_say_so() -> None:
    saved = {f.name for f in dataclasses.fields(Options) if f.metadata.get("saved")}
    assert {*Declared.__struct_fields__} == saved | {"result", "shape_function"}
    assert msgspec.json.encode(Declared(timeout=2.0, memo=3)) == b'{"timeout":2.0,"memo":3}'


@pytest.mark.parametrize(
    "options",
    [
        {"executor": lambda: None, "borrow": True},
        {"wait": False, "pure": True},
        {"wait": False, "memory": "device"},
        {"memory": "device", "timeout": 1.0},
        {"memo": 3, "out": True},
    ],
)
def test_options_that_exclude_each_other_are_both_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Remove (\w+)= or .*\.$") as raised:
        hostcall.declare(len, **options)
    assert all(f"{name}=" in str(raised.value) for name in options)
