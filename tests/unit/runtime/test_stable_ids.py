"""Callback ids that are the same in every process, where programs outlive theirs."""

from __future__ import annotations

import pytest

from hostcall_runtime import _registry
from hostcall_runtime._interception import Site

_numbers = iter(range(1_000_000))
KEPT = 1 << 62


def registered(description: str, *identity: object) -> tuple[_registry.Target, int]:
    """A target of that description, and its id."""
    target = _registry.Target(lambda: None, "a test")
    target.site = Site("function", description)
    name = f"test_stable_ids/{next(_numbers)}"
    return target, _registry.register(target, name, identity=identity)


@pytest.fixture
def outliving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs outlive the process."""
    monkeypatch.setattr(_registry, "caches", [lambda: True])


@pytest.mark.usefixtures("outliving")
def test_ids_depend_on_the_callback_alone() -> None:
    ids = [_registry.wanted_id("name", where, "NO") for where in ("a.py:1", "a.py:2", "a.py:1")]
    assert ids[0] == ids[2] != ids[1]
    assert all(0 < wanted < KEPT for wanted in ids)
    # As in each process: other ids would find no program that was kept before.
    assert _registry.wanted_id("f", "a.py:1") == 1376043967840819593


def test_elsewhere_ids_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_registry, "caches", [])
    assert _registry.wanted_id("name", "a.py:1") == 0
    (_, first), (_, second) = registered("a.py:10"), registered("a.py:10")
    assert first != second


@pytest.mark.usefixtures("outliving")
def test_an_id_is_never_given_twice() -> None:
    kept = [registered("a.py:20") for _ in range(5)]
    ids = [callback_id for _, callback_id in kept]
    assert len({*ids}) == 5
    assert ids[0] == _registry.wanted_id("function", "a.py:20", "")
    del kept
    _, later = registered("a.py:20")
    assert later not in ids
    assert registered("a.py:20", "recorded")[1] not in [*ids, later]
