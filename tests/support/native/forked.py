"""Run by tests of call frames, `python -m tests.support.native.forked CASE`: a process that forks.

In a process of its own: other libraries of the tests' process warn of forks.
"""

import os
import sys
import weakref
from collections.abc import Callable

import numpy as np

from tests.support.native.frames import INT64, Buffer, Owner, call, given, native, runtime

SIZE = 300_000  # floats


def in_both(works: Callable[[], bool]) -> None:
    """Asserts something in this process and in a child."""
    child = os.fork()
    worked = works()
    if child == 0:
        os._exit(0 if worked else 1)
    assert worked
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def while_an_array_is_kept() -> None:
    first, second = (np.random.default_rng(seed).random(SIZE, np.float32) for seed in range(2))
    array = given(first)
    in_both(lambda: np.array_equal(array, first) and np.array_equal(given(second), second))


def lets_go() -> bool:
    """Return whether native code is freed that was called and is not needed any more."""
    number = runtime.register_c_function("status", native.native_code["status"], 1, False, True)
    said = [("callback", INT64, True, [number])]
    done = call(
        number, [Buffer.of(np.int32(0))], said=said, entry=runtime.handlers()["hostcall_native"]
    )
    owner = Owner()
    alive = weakref.ref(owner)
    runtime.unregister_native(number, owner)
    del owner
    return done.code == 0 and alive() is None


def before_native_code_is_let_go_of() -> None:
    assert lets_go()
    in_both(lets_go)


CASES = {case.__name__: case for case in (while_an_array_is_kept, before_native_code_is_let_go_of)}
CASES[sys.argv[1]]()
