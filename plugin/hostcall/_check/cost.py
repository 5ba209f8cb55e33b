"""The cost of a call in time and memory, and an estimate for a call with more rows."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence

_SECONDS, _BYTES = 5.0, 1 << 29

# Each number of rows is eight times the one before. The cost grows at least as much, and at most
# with the square of that.
_LEAST, _MOST = 8.0, 64.0


class Cost:
    """The time that the body of `with` takes, and the memory that NumPy and Python allocate in it.

    Attributes:
      rows: the number of rows of the call in the body.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._seconds = 0.0
        self._bytes = 0

    def __enter__(self) -> Cost:
        self._traced = tracemalloc.is_tracing()
        if not self._traced:
            tracemalloc.start()
        tracemalloc.reset_peak()
        self._bytes = tracemalloc.get_traced_memory()[0]
        self._seconds = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._seconds = time.monotonic() - self._seconds
        self._bytes = tracemalloc.get_traced_memory()[1] - self._bytes
        if not self._traced:
            tracemalloc.stop()

    def exceeds(self, before: Sequence[Cost]) -> bool:
        """Return whether a call with eight times the rows might take too much time or memory.

        Args:
          before: the costs of calls with fewer rows; without any, growth may be quadratic.
        """
        seconds = self._seconds * _growth([one._seconds for one in before], self._seconds)
        size = self._bytes * _growth([one._bytes for one in before], self._bytes)
        return seconds > _SECONDS or size > _BYTES

    def __str__(self) -> str:
        return f"{self._seconds:.2g} seconds and {self._bytes / 2**20:.2g} MiB"


def _growth(before: Sequence[float], now: float) -> float:
    if not before:
        return _MOST
    return min(_MOST, max(_LEAST, now / max(before[-1], 1e-9)))
