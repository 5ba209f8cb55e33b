"""Searches of graphs and programs: what can be reached, and facts that depend on one another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def reach(starts: Iterable[_Item], follow: Callable[[_Item], Iterable[_Item]]) -> Iterator[_Item]:
    """Yield what `follow` leads to from `starts`, each once: depth first, the last one first."""
    pending = [*starts]
    found: set[_Item] = set()
    while pending:
        item = pending.pop()
        if item not in found:
            found.add(item)
            yield item
            pending.extend(follow(item))


def solve(starts: Iterable[_Item], transfer: Callable[[_Item], Iterable[_Item]]) -> None:
    """Call `transfer` until nothing changes: it returns the items whose facts it has changed."""
    pending = dict.fromkeys(starts)
    while pending:
        item, _ = pending.popitem()
        pending.update(dict.fromkeys(transfer(item)))
