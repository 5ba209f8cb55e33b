"""What the runtime reads the function of a call off: targets of all sorts of classes."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import Buffer, Outcome, call, runtime


class Base:
    __slots__ = ("__weakref__", "description", "id", "title")

    def __init__(self) -> None:
        self.title, self.description = "callback", "a test"
        self.id: int = runtime.register(self, f"{id(self)}")
        weakref.finalize(self, runtime.unregister, self.id).atexit = False


class Slotted(Base):
    __slots__ = ("other", "host_function")  # noqa: RUF023 - which is not the first slot

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.other = pytest.fail
        self.host_function = function


class InDict(Base):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.host_function = function


class OfSlotted(Slotted):
    """Has the slot, and a dict."""


class Property(Slotted):
    """Has the slot of its base, and hides it."""

    @property
    def host_function(self) -> Any:
        return vars(Slotted)["host_function"].__get__(self)

    @host_function.setter
    def host_function(self, function: Callable[..., Any]) -> None:
        vars(Slotted)["host_function"].__set__(self, lambda x: function(x) + 1)


class Looked(Slotted):
    """Looks attributes up in a way of its own."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return (lambda x: found(x) + 1) if name == "host_function" else found


class Class(Base):
    """Has the function in its class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        type(self).host_function = staticmethod(function)  # type: ignore[attr-defined]


def called(target: Base, value: float = 1) -> Outcome:
    return call(target.id, [Buffer.of(np.float32(value))], [Buffer.result(())])


CLASSES = {Slotted: 2, InDict: 2, OfSlotted: 2, Property: 3, Looked: 3, Class: 2}


@pytest.mark.parametrize("of", CLASSES, ids=lambda of: str(of.__name__))
def test_the_function_is_the_attribute_whatever_the_class(of: Any) -> None:
    target = of(lambda x: x * np.float32(2))
    for _ in range(3):
        assert called(target).array() == CLASSES[of]


def test_targets_of_several_classes_take_turns() -> None:
    targets = {of(lambda x: x * np.float32(2)): result for of, result in CLASSES.items()}
    for _ in range(3):
        for target, result in targets.items():
            assert called(target).array() == result


def test_a_function_that_is_exchanged_is_called_from_then_on() -> None:
    target = Slotted(lambda x: x)
    assert called(target).array() == 1
    target.host_function = lambda x: x + np.float32(1)
    assert called(target).array() == 2


def test_a_slot_that_is_empty_is_an_error() -> None:
    target = Slotted(lambda x: x)
    assert called(target).code == 0
    del target.host_function
    done = called(target)
    assert done.code != 0
    assert "host_function" in done.message


def test_the_class_of_targets_that_are_gone_may_go() -> None:
    for number in range(3):

        class Passing(Slotted):
            __slots__ = tuple(f"slot{i}" for i in range(number))

        target = Passing(lambda x, n=number: x + np.float32(n))
        assert called(target).array() == 1 + number
        del target, Passing


def test_a_function_that_lets_go_of_itself() -> None:
    def function(x: Any) -> Any:
        target.host_function = None  # type: ignore[assignment]
        return x

    target = Slotted(function)
    alive = weakref.ref(function)
    del function
    assert called(target, 5).array() == 5
    assert alive() is None
