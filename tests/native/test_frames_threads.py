"""The handler, called by many threads at once, from within callbacks, and after a fork.

Calls of one run take turns, unless their callback is concurrent.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.errors import raising
from tests.support.native.frames import (
    Buffer,
    Call,
    Outcome,
    Target,
    call,
    native,
    run_python,
    runtime,
)
from tests.support.native.frames import call_there as call_there
from tests.support.threads import PATIENCE, Alone, in_threads, meeting, running, switching_often

SLOW = 0.002  # ten times the duration from which a callback is worth another thread

X = Buffer.of(np.arange(1000, dtype=np.float32))
Y = Buffer.result((1000,))


def spin() -> None:
    end = time.perf_counter() + SLOW
    while time.perf_counter() < end:
        pass


def test_many_threads_get_their_own_results(call_there: Call) -> None:
    target = Target(lambda x, n: x * n)

    def calls(index: int) -> None:
        for n in range(100):
            factor = np.float32(100 * index + n)
            foreign, token = n % 2 == 0, n % 3 == 0
            done = call_there(target, [X, Buffer.of(factor)], [Y], foreign=foreign, token=token)
            assert (done.code, done.array()[1]) == (0, factor)

    in_threads(16, calls)
    assert native.live_objects() == 0


@pytest.mark.parametrize("token", [False, True], ids=["no token", "token"])
def test_callbacks_of_foreign_threads_may_wait_for_each_other(token: bool) -> None:
    def meet(count: int) -> None:
        meeting = threading.Barrier(count)
        target = Target(lambda: (meeting.wait(PATIENCE), None)[1])

        def run(_: int) -> None:
            assert call(target, token=token, foreign=True).message == ""

        in_threads(count, run)

    # Each round finds fewer idle threads than it needs, or as many, or more.
    for count in (*[2, 3, 4] * 10, 20, 8):
        meet(count)


def test_foreign_threads_hand_their_callbacks_over(call_there: Call) -> None:
    """To threads that last, with what Python keeps for each; XLA's own are free meanwhile."""
    local, calls = threading.local(), []

    def count() -> None:
        local.calls = getattr(local, "calls", 0) + 1
        calls.append(local.calls)

    target = Target(count)
    for _ in range(100):
        assert call_there(target, foreign=True).code == 0
    assert max(calls) > 1


def test_slow_concurrent_callbacks_overlap_and_others_stay_on_their_thread() -> None:
    threads: list[int] = []
    target = Target(
        lambda: (threads.append(threading.get_ident()), spin())[0], convention={"concurrent": True}
    )
    for token in (False, False, True, True):
        assert call(target, token=token).code == 0
    here = threading.get_ident()
    assert [thread == here for thread in threads] == [True, False, True, True]


@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
def test_callbacks_call_the_handler_again(call_there: Call, foreign: bool) -> None:
    def enter(left: Any) -> Any:
        if left == 0:
            return np.int32(0)
        done = call_there(target, [Buffer.of(np.int32(left - 1))], [result], foreign=foreign)
        return done.array() + np.int32(1)

    result = Buffer.result((), np.int32)
    target = Target(enter)
    done = call_there(target, [Buffer.of(np.int32(30))], [result], foreign=foreign)
    assert done.array() == 30


def test_targets_come_and_go_while_others_are_called() -> None:
    size = runtime.size()
    steady = [Target(lambda x: -x)]

    def churn(_: int) -> None:
        for n in range(200):
            fresh = Target(lambda x: x + 1)
            assert call(fresh, [X], [Y], foreign=n % 2 == 0).code == 0
            assert call(steady[0], [X], [Y], foreign=n % 5 == 0).array()[1] == -1
            number = fresh.id
            del fresh
            assert call(number, [X], [Y]).code == 9

    in_threads(8, churn)
    steady.clear()
    assert runtime.size() == size


def test_a_target_that_is_dropped_by_its_own_call() -> None:
    targets: dict[int, Target] = {}

    def forget(x: Any) -> Any:
        targets.clear()
        return x

    for foreign in (False, True):
        targets[0] = Target(forget)
        assert call(targets[0].id, [X], [Y], foreign=foreign).data == [X.data]


def changes(array: np.ndarray) -> dict[str, Callable[[], None]]:
    """Return the possible changes to an array that other code has seen already."""
    return {
        "shape": lambda: setattr(array, "shape", (2, 2)),
        "dtype": lambda: setattr(array, "dtype", np.float64),
        "strides": lambda: array.setflags(write=False),
        "resize": lambda: array.resize(4000, refcheck=False),
    }


@pytest.mark.parametrize("change", changes(np.zeros(4)))
@pytest.mark.parametrize("bounded", [False, True], ids=["static", "bounded"])
def test_arrays_that_change_while_later_results_are_converted(change: str, bounded: bool) -> None:
    array = np.ones(4, np.float32)

    class Late:
        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            changes(array)[change]()
            return np.ones(1, np.float32)

    results = [Buffer.result((4,)), Buffer.result((1,)), Buffer.result((), np.int32)]
    pairs: dict[str, Any] = {"dynamic_results": [0, 0]} if bounded else {}
    done = call(Target(lambda: (array, Late())), [], results if bounded else results[:2], **pairs)
    assert done.code != 0 or done.array(0).tolist() == [1] * 4


def test_arrays_that_other_threads_change_all_the_time() -> None:
    array = np.ones(4096, np.float32)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            array.shape = (64, 64)
            array.shape = (4096,)

    target = Target(lambda: (array[::-1], array, np.ones(4096, ">f4"), array))
    with switching_often(), running([change], stop):
        for foreign in (False, True) * 100:
            done = call(target, [], [Buffer.result((4096,))] * 4, foreign=foreign)
            assert done.code in (0, 3), done.message
            assert done.code or all(np.all(done.array(i) == 1) for i in range(4))


def in_child(function: Callable[[], Outcome]) -> int:
    """The exit status of a forked process that calls the function."""
    child = os.fork()
    if child == 0:
        os._exit(function().code)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise TimeoutError("the child hangs")


@pytest.mark.parametrize("token", [False, True], ids=["no token", "token"])
@pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
def test_calls_of_a_run_do_not_overlap(foreign: bool, token: bool) -> None:
    alone = Alone()
    targets = [Target(alone) for _ in range(4)]
    with ThreadPoolExecutor(8) as pool:
        done = pool.map(
            lambda i: call(targets[i % 4], [X], [Y], foreign=foreign, token=token, run=7), range(40)
        )
        assert [one.message for one in done] == [""] * 40
    assert (alone.overlaps, alone.calls) == (0, 40)
    assert native.live_objects() == 0


def test_calls_of_other_runs_and_of_concurrent_callbacks_overlap() -> None:
    meet = meeting(4)
    one, other = Target(meet), Target(meet, convention={"concurrent": True})
    calls = [(one, 1), (one, 2), (other, 1), (other, 1)]
    with ThreadPoolExecutor(4) as pool:
        done = pool.map(lambda c: call(c[0], [X], [Y], foreign=True, run=c[1]), calls)
        assert [done.message for done in done] == [""] * 4


def test_a_call_that_fails_gives_its_turn_back() -> None:
    failing, right = Target(raising(KeyError("no such sensor"))), Target(lambda x: x + 1)
    for foreign in (False, True):
        assert "no such sensor" in call(failing, [X], [Y], foreign=foreign, run=3).message
        assert call(right, [X], [Y], foreign=foreign, run=3).array()[0] == 1


FORK = """
import os, threading
from tests.native import test_frames_threads as tests
from tests.support.native.frames import Target, call
target = Target(lambda: None)
assert call(target, foreign=True).code == 0  # leaves an idle thread behind
for foreign in (True, False):
    assert tests.in_child(lambda: call(target, foreign=foreign)) == 0
assert call(target, foreign=True).code == 0
"""

FORKING = """
import os
import numpy as np
from tests.support.native.frames import Buffer, Target, call

x, y = Buffer.of(np.float32(1)), Buffer.result(())

def fork(v):
    child = os.fork()
    if child == 0:
        right = call(Target(lambda v: v + 1), [x], [y], run=2).array() == 2
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    return v

assert call(Target(fork), [x], [y], run=1).message == ""
"""

NO_THREADS = """
import resource, threading
from tests.support.native.frames import Target, call, native
calls = []
target = Target(lambda: calls.append(threading.get_ident()))
stop = threading.Event()
limit = resource.getrlimit(resource.RLIMIT_AS)
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
# Enough for the stack of one more thread, that of the caller.
resource.setrlimit(resource.RLIMIT_AS, (now + (9 << 20), limit[1]))
failed = call(target, foreign=True)
resource.setrlimit(resource.RLIMIT_AS, limit)
assert (failed.code, calls) == (13, []), failed
for n in range(1, 4):
    assert call(target, foreign=True).code == 0
    assert len(calls) == n  # the call that failed is not made up for
assert native.live_objects() == 0
"""


PIPES = """
import os
from tests.support.native.frames import Target, call

def pipes():
    open_files = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
    return sum(os.readlink(file).startswith("pipe:") for file in open_files if os.path.exists(file))

before = pipes()
assert call(Target(lambda: None), foreign=True).code == 0
assert pipes() == before + 2  # by which a Ctrl-C is passed on
child = os.fork()
if child == 0:
    os._exit(pipes() - before)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize(
    "script",
    [FORK, FORKING, NO_THREADS, PIPES],
    ids=["fork", "a fork in a turn", "no threads", "the pipe of a parent"],
)
def test_in_a_process_of_its_own(script: str) -> None:
    # ThreadSanitizer's own thread makes Python warn of a fork beside other threads.
    done = run_python("-W", "ignore::DeprecationWarning", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
