"""What a call costs in time and memory, and what one with more rows might."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence

_SECONDS, _BYTES = 5.0, 1 << 29

# From one number of rows to the next: eight times as many, and for the cost between that and its
# square.
_LEAST, _MOST = 8.0, 64.0


class Cost:
    """What runs inside costs. Memory is that which NumPy and Python ask for.

    Attributes:
      rows: with how many rows a function is called inside.
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
        """Whether a call with eight times the rows might take too long, or too much memory.

        Args:
          before: what calls with fewer rows cost; without any it may grow with their square.
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
