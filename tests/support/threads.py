"""Work on several threads at once."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# Seconds, which only a failing test waits for.
PATIENCE = 60.0


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Calls `work` with 0, 1, … on as many threads at once; raises what the first has raised."""
    failures: list[BaseException] = []
    together = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            together.wait(PATIENCE)
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@contextlib.contextmanager
def switching_often() -> Iterator[None]:
    """Has Python change threads as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


@contextlib.contextmanager
def running(work: Iterable[Callable[[], object]], stop: threading.Event) -> Iterator[None]:
    """Runs each of `work` on a thread of its own, and sets `stop` when the block has ended."""
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def meeting(count: int) -> Callable[[Any], Any]:
    """A function from x to 2x that returns when `count` calls have begun.

    It takes a while: what is known to be short runs at once.
    """
    barrier = threading.Barrier(count)

    def meet(x: Any) -> Any:
        barrier.wait(PATIENCE)
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
        return x + x

    return meet


class Alone:
    """A function that notes when a call of it begins before another one has ended."""

    def __init__(self) -> None:
        self.calls = 0
        self.overlaps = 0
        self._inside = threading.Lock()

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if not self._inside.acquire(blocking=False):
            self.overlaps += 1
            return x
        time.sleep(0.002)  # so that others have the time to come in
        self._inside.release()
        return x
