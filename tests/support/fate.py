"""Checks that objects are freed when nothing is meant to hold them any more."""

import gc
import threading
import weakref


class Fate:
    """The lifetime of an object, watched without a reference to it."""

    def __init__(self, watched: object) -> None:
        self._gone = threading.Event()
        self._reference = weakref.ref(watched, lambda _: self._gone.set())

    def lives(self) -> bool:
        return self._reference() is not None

    def assert_goes(self) -> None:
        """Asserts that nothing keeps it, once JAX's threads and its collector have let it go.

        JAX leaves what programs hold to Python's next collection, and its threads may hold a
        program for a moment after it has given its results; a collection does nothing while
        another thread is at one.
        """
        gc.collect()
        for _ in range(100):
            if self._gone.wait(0.1):
                return
            gc.collect()
        holders = [repr(holder)[:200] for holder in gc.get_referrers(self._reference())]
        raise AssertionError(f"kept by {holders}")
