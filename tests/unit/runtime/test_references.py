"""Whether an object has other users, which Python's counts say differently in each version."""

import itertools

import pytest

from hostcall_runtime import _references


class Thing:
    pass


def test_an_object_that_only_the_list_holds_is_alone() -> None:
    assert _references.last_is_alone([Thing()])


def test_an_object_that_a_variable_holds_is_not_alone() -> None:
    held: list[object] = [Thing()]
    kept = held[0]
    assert not _references.last_is_alone(held)
    del kept
    assert _references.last_is_alone(held)


def test_an_object_that_another_container_holds_is_not_alone() -> None:
    held: list[object] = [Thing()]
    others = {"kept": held[-1]}
    assert not _references.last_is_alone(held)
    others.clear()
    assert _references.last_is_alone(held)


@pytest.mark.parametrize("number", [2, 3])
def test_an_object_that_is_several_times_in_the_list_is_not_alone(number: int) -> None:
    held: list[object] = list(itertools.repeat(Thing(), number))
    assert not _references.last_is_alone(held)
    del held[1:]
    assert _references.last_is_alone(held)


def test_the_last_object_is_asked_for() -> None:
    kept = Thing()
    assert _references.last_is_alone([kept, Thing()])
    assert not _references.last_is_alone([Thing(), kept])
