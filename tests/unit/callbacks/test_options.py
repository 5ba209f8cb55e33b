"""hostcall._functions.options: the options of calls, and what follows from them."""

import dataclasses
import inspect
from typing import Any

import msgspec
import pytest
import tensorflow as tf

import hostcall
from hostcall._functions.options import CallbackOptions, DeclareOptions, Options, SharedOptions
from hostcall._saving.tokens import Declared

SPEC = tf.TensorSpec([2], tf.float32)
WAYS = [
    (hostcall.declare, {*DeclareOptions.__annotations__}),
    (hostcall.callback, {*CallbackOptions.__annotations__}),
]


def test_every_field_is_an_option_that_can_be_declared() -> None:
    fields = {field.name for field in dataclasses.fields(Options) if field.init}
    assert {*DeclareOptions.__annotations__} == fields
    assert SharedOptions.__annotations__.items() <= CallbackOptions.__annotations__.items()


@pytest.mark.parametrize(("function", "options"), WAYS)
def test_public_signatures_have_the_options_and_their_defaults(
    function: Any, options: set[str]
) -> None:
    parameters = inspect.signature(function).parameters
    for name in options:
        assert parameters[name].default == getattr(Options, name), name
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())


@pytest.mark.parametrize(("function", "options"), WAYS)
def test_docstrings_have_an_entry_for_each_option(function: Any, options: set[str]) -> None:
    lines = str(inspect.getdoc(function)).splitlines()
    for name in options:
        assert sum(line.startswith(f"  {name}: ") for line in lines) == 1, name
    assert max(map(len, lines)) <= 100


def test_an_option_of_another_name_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"^declare\(\) got an unexpected .* 'retrys'$"):
        hostcall.declare(len, retrys=2)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"^callback\(\) got an unexpected .* 'route'$"):
        hostcall.callback(len, result=SPEC, route="partition")  # type: ignore[call-arg]


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
    with pytest.raises(ValueError, match=r"Take (\w+)= or .* away\.$") as raised:
        hostcall.declare(len, **options)
    assert all(f"{name}=" in str(raised.value) for name in options)
