"""Tests of the places of programs under way (hostcall_runtime/_locks.py)."""

import functools
import threading
from contextlib import ExitStack

import pytest

from hostcall_runtime._locks import Places
from hostcall_runtime._threads import ThreadCall
from tests.support.threads import PATIENCE, in_threads


def outcome(places: Places) -> str:
    """Take a place for a moment, or be told that nobody would leave one."""
    try:
        with places.taken():
            return "taken"
    except RuntimeError:
        return "told"


def test_threads_wait_for_a_place() -> None:
    places, most = Places(2), list[int]()
    under_way: list[int] = []

    def work(number: int) -> None:
        for _ in range(100):
            with places.taken():
                under_way.append(number)
                most.append(len(under_way))
                under_way.remove(number)

    in_threads(8, work)
    assert max(most) <= 2


def test_who_would_wait_for_itself_is_told() -> None:
    places = Places(3)
    with ExitStack() as taken:
        for _ in range(3):
            taken.enter_context(places.taken())
        with pytest.raises(RuntimeError, match="each waits for one more"), places.taken():
            pass
    assert outcome(places) == "taken"


def test_the_last_of_those_that_wait_for_each_other_is_told() -> None:
    places = Places(4)
    both = threading.Barrier(2)
    outcomes: list[str] = []

    def work(_: int) -> None:
        with places.taken(), places.taken():
            both.wait(PATIENCE)
            outcomes.append(outcome(places))

    in_threads(2, work)
    assert sorted(outcomes) == ["taken", "told"]


def test_a_call_on_another_thread_is_inside_of_the_one_that_waits_for_it() -> None:
    places = Places(1)
    with places.taken():
        assert ThreadCall(functools.partial(outcome, places)).result(PATIENCE) == "told"
    assert ThreadCall(functools.partial(outcome, places)).result(PATIENCE) == "taken"


def test_a_place_is_left_when_the_work_fails() -> None:
    places = Places(1)
    for _ in range(2):
        with pytest.raises(KeyError), places.taken():
            raise KeyError
