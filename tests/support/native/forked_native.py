"""Run by test_frames_native.py: a process that forks, and lets go of native code in the child.

In a process of its own: other libraries of the tests' process warn of forks.
"""

import os
import weakref

import numpy as np

from tests.support.native.frames import INT64, Buffer, call, native, runtime


class Owner:
    """What holds code."""


def lets_go() -> bool:
    """Whether code that was called and is not needed any more is let go of."""
    number = runtime.register_c_function("status", native.native_code["status"], 1, False, True)
    attributes = [("callback", INT64, True, [number])]
    operands = [Buffer.of(np.int32(0))]
    done = call(number, operands, attributes=attributes, entry=runtime.native_handler())
    owner = Owner()
    alive = weakref.ref(owner)
    runtime.unregister_native(number, owner)
    del owner
    return done.code == 0 and alive() is None


def main() -> None:
    assert lets_go()
    child = os.fork()
    let_go = lets_go()
    if child == 0:
        os._exit(0 if let_go else 1)
    assert let_go
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


main()
