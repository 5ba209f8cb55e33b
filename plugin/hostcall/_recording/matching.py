"""Which recorded call answers a call of the program that is replayed."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Sequence

from hostcall._recording.format import Call

_Calls = collections.OrderedDict[int, Call]

# Of calls with the same arguments, how many are looked at to find out whether they are alike.
_MANY_ALIKE = 64


class Queue:
    """The recorded calls of one callback that have not been replayed.

    Calls that were made one after the other come in this order again. Those that overlapped, and
    those that no program orders, are told apart by their arguments.

    Args:
      calls: in the order in which they began.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        self.calls: _Calls = collections.OrderedDict((call.id, call) for call in calls)
        self._ordered: _Calls = collections.OrderedDict()
        self._alike: dict[bytes, _Calls] = {}
        for call in self.calls.values():
            self._alike.setdefault(call.digest, collections.OrderedDict())[call.id] = call
            if call.ordered:
                self._ordered[call.id] = call
        self._numbers = {number: place for place, number in enumerate(self.calls, 1)}

    def __len__(self) -> int:
        return len(self.calls)

    @property
    def count(self) -> int:
        """How many calls were recorded."""
        return len(self._numbers)

    def take(self, call: Call) -> None:
        """The call is replayed."""
        del self.calls[call.id]
        self._ordered.pop(call.id, None)
        alike = self._alike[call.digest]
        del alike[call.id]
        if not alike:
            del self._alike[call.digest]

    def number_of(self, call: Call) -> int:
        """Its place among the calls of this callback, from 1."""
        return self._numbers[call.id]

    def possible(self, digest: bytes) -> list[Call]:
        """The calls with arguments of this digest that may come now, the likeliest first."""
        alike = itertools.islice(self._alike.get(digest, {}).values(), _MANY_ALIKE)
        now = {call.id for call in self._next_in_order()}
        return [call for call in alike if not call.ordered or call.id in now]

    def later(self, digest: bytes) -> Call | None:
        """The first call with arguments of this digest, whose turn may not have come."""
        return next(iter(self._alike.get(digest, {}).values()), None)

    def _next_in_order(self) -> Iterable[Call]:
        """The ordered calls that no other one has to come before."""
        first_end: int | None = None
        for call in self._ordered.values():
            if first_end is not None and call.began > first_end:
                return
            yield call
            first_end = call.ended if first_end is None else min(first_end, call.ended)

    def expected(self) -> Call | None:
        """The call that is likeliest to come next; None where none is left."""
        return next(iter([*itertools.islice(self._ordered.values(), 1), *self._first()]), None)

    def _first(self) -> Iterable[Call]:
        return itertools.islice(self.calls.values(), 1)


def preferred(possible: Sequence[Call], node: str) -> list[Call]:
    """Those of the calls that may be meant, of which the first is to be taken.

    Where these are of several functions with one name, nothing tells which of them is called.
    """
    same_place = [call for call in possible if call.node == node] or list(possible)
    first = same_place[0]
    return [first, *(call for call in same_place[1:] if _may_change_places(first, call))]


def _may_change_places(first: Call, other: Call) -> bool:
    """Whether another run may call the function of the other call before that of the first."""
    if first.function == other.function:
        return False
    return first.thread != other.thread or other.began < first.ended
