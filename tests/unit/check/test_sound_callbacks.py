"""Nothing is found in sound callbacks, and what should be tried is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hostcall
from tests.support import process_pools
from tests.support.check.sound import SOUND


@pytest.fixture(scope="module", autouse=True)
def _end_pools() -> Iterator[None]:
    yield
    process_pools.end_pools()


@pytest.mark.parametrize("name", SOUND)
def test_nothing_is_found(name: str) -> None:
    sound = SOUND[name]
    report = hostcall.check(sound.make(), *sound.args, **sound.options)
    assert report.ok
    assert {*sound.passed} <= {*report.passed}
    assert [one.why for one in report.not_checked if "itself has failed" in one.why] == []


def test_there_are_twenty_of_them() -> None:
    assert len(SOUND) >= 20
