"""Calls of one run take turns, unless their callback is concurrent."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import Buffer, Target, call, native, run_python
from tests.support.threads import PATIENCE, Alone

X = Buffer.of(np.arange(4, dtype=np.float32))
Y = Buffer.result((4,))


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
    together = threading.Barrier(4)

    def meet(x: Any) -> Any:
        together.wait(PATIENCE)
        return x

    one, other = Target(meet), Target(meet, convention={"concurrent": True})
    calls = [(one, 1), (one, 2), (other, 1), (other, 1)]
    with ThreadPoolExecutor(4) as pool:
        done = pool.map(lambda c: call(c[0], [X], [Y], foreign=True, run=c[1]), calls)
        assert [done.message for done in done] == [""] * 4


def test_a_call_that_fails_gives_its_turn_back() -> None:
    def fail(x: Any) -> Any:
        raise KeyError("no such sensor")

    failing, right = Target(fail), Target(lambda x: x + 1)
    for foreign in (False, True):
        assert "no such sensor" in call(failing, [X], [Y], foreign=foreign, run=3).message
        assert call(right, [X], [Y], foreign=foreign, run=3).array()[0] == 1


def test_a_call_runs_another_program() -> None:
    def outer(x: Any) -> Any:
        return call(inner, [Buffer.of(x)], [Y], foreign=True, run=2).array()

    inner = Target(lambda x: x + 1)
    assert call(Target(outer), [X], [Y], foreign=True, run=1).array()[0] == 1


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


def test_a_forked_child_takes_turns() -> None:
    done = run_python("-c", FORKING)
    assert done.returncode == 0, done.stderr
