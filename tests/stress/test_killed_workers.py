"""Workers of executors that are killed: nothing hangs, and no stateful call runs twice."""

import concurrent.futures
import functools
import itertools
import multiprocessing
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import hostcall
from tests.support import executor_functions as functions
from tests.support.threads import PATIENCE

# 200 take half a minute; `make test` has fewer.
KILLS = int(os.environ.get("HOSTCALL_TEST_KILLS", "40"))

# Of 512 KiB, which goes through shared memory.
LARGE = 1 << 17

# More than any process has.
_NOBODY = 1 << 30


class Workers:
    """An executor of one worker that can be killed, made again after each time."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self) -> Any:
        context = multiprocessing.get_context("forkserver")
        self._pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
        return self._pool

    def kill(self) -> bool:
        [pid] = list(getattr(self._pool, "_processes", None) or [0])
        try:
            os.kill(pid or _NOBODY, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def shut_down(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class Caller:
    """A thread that runs a program with the numbers from 1 on, until it is told to end."""

    def __init__(self, program: Callable[[Any], Any], expected: Callable[[Any], Any]) -> None:
        self.returned: list[int] = []
        self.lost = 0
        self._program, self._expected = program, expected
        self._is_over = False
        self._changed = threading.Condition()
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._running = self._pool.submit(self._run)
        self._running.add_done_callback(self._tell)

    def wait_for(self, count: int) -> None:
        with self._changed:
            target = len(self.returned) + count
            over = lambda: self._running.done() or len(self.returned) >= target  # noqa: E731
            assert self._changed.wait_for(over, PATIENCE), "a call hangs"
        if self._running.done():
            self._running.result()

    def end(self) -> None:
        self._is_over = True
        self._running.result(PATIENCE)
        self._pool.shutdown()

    def _tell(self, _: Any = None) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        for number in itertools.count(1):
            if self._is_over:
                return
            x = tf.fill([LARGE if number % 2 else 4], float(number))
            try:
                result = self._program(x)
            except tf.errors.OpError as error:
                if not isinstance(hostcall.last_error(error), hostcall.ExecutorError):
                    raise
                self.lost += 1
                continue
            np.testing.assert_array_equal(result, self._expected(x))
            self.returned.append(number)
            self._tell()


def test_workers_are_killed_at_random(tmp_path: Path) -> None:
    """Stateful and pure calls go on meanwhile."""
    choose = random.Random(0)
    file = tmp_path / "journal"
    stateful_workers, pure_workers = Workers(), Workers()
    note = hostcall.callback(
        functools.partial(functions.journaled, file=str(file)),
        result=lambda x: x,
        executor=stateful_workers,
    )
    double = hostcall.callback(
        functions.doubled, result=lambda x: x, stateful=False, executor=pure_workers, retries=1000
    )
    stateful = Caller(tf.function(note, jit_compile=True, reduce_retracing=True), lambda x: x)
    pure = Caller(tf.function(double, jit_compile=True, reduce_retracing=True), lambda x: 2 * x)
    by_workers = {stateful_workers: stateful, pure_workers: pure}
    try:
        for _ in range(KILLS):
            workers = choose.choice(list(by_workers))
            by_workers[workers].wait_for(choose.randrange(1, 6))
            while not workers.kill():  # the last one has just died
                by_workers[workers].wait_for(1)
        for caller in by_workers.values():
            caller.wait_for(1)
    finally:
        stateful.end()
        pure.end()
        for workers in by_workers:
            workers.shut_down()
    noted = Counter(map(int, file.read_text().split()))
    assert set(noted.values()) == {1}, "a stateful call has run twice"
    assert set(stateful.returned) <= set(noted), "a stateful call has not run"
    assert pure.lost == 0, "a pure call was not made again"
    assert 0 < stateful.lost <= KILLS
