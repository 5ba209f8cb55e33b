"""Run by test_frames_exit.py: a process that ends while a call is under way.

The name of the scenario says where the thread of the call is just then.
"""

import sys
import threading
import time
from typing import Any

import numpy as np

from tests.support.native.frames import Buffer, Target, call, call_at_exit, repeat

entered = threading.Event()
PI = np.full([1000, 1000], 3, np.float32)


def linger(*_: Any, **__: Any) -> Any:
    """Tells the main thread that it may exit, and goes on until Python ends this thread."""
    entered.set()
    while True:
        time.sleep(0.01)


class Lingers:
    """Lingers in each place where the runtime runs Python code of a result."""

    def __init__(self, *names: str) -> None:
        for name in names:
            setattr(type(self), name, linger)


class LingersWhenDropped(np.ndarray):
    def __del__(self) -> None:
        linger()


class LingersInTextError(Exception):
    def __str__(self) -> str:
        linger()
        return "text"


class LateTarget(Target):
    """Lingers when the runtime asks for an attribute."""

    late = ""

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "late"):
            linger()
        return object.__getattribute__(self, name)


def fail() -> None:
    raise LingersInTextError


def fail_with_a_local() -> None:
    kept = dropped()
    raise ValueError(kept.shape)


def dropped() -> Any:
    """Return an object that only the call holds."""
    return np.zeros(1, np.float32)[:0].view(LingersWhenDropped)


def busy() -> Any:
    """Releases the GIL in short and long stretches, for as long as it may."""
    entered.set()
    return PI[::-1, ::-1]


def target_of(scenario: str) -> Target:
    functions = {
        "function": linger,
        "array": lambda: Lingers("__array__"),
        "repr": lambda: np.array(Lingers("__repr__"), object),
        "exception": fail,
        "drop": dropped,
        "drop of too many results": lambda: [dropped(), dropped()],
        "drop of a local": fail_with_a_local,
        "copy": busy,
    }
    if scenario in functions:
        return Target(functions[scenario])
    target = LateTarget(lambda: np.zeros(3, np.float32))
    LateTarget.late = scenario
    return target


class WhenModulesAreCleared:
    """Holds the interpreter's end up, so that the other thread meets it for certain."""

    def __del__(self, sleep: Any = time.sleep) -> None:
        sleep(0.3)


def main(scenario: str) -> None:
    if scenario == "after":
        target = Target(lambda: None)
        if sys.argv[2:]:
            call(target, foreign=True)
        call_at_exit(target)
        return
    target = target_of(scenario)
    shape = PI.shape if scenario == "copy" else ()
    for _ in range(4 if scenario == "copy" else 1):
        repeat(target, [Buffer.result(shape)])
    entered.wait()
    sys.kept_until_the_end = WhenModulesAreCleared()  # type: ignore[attr-defined]
    sys.stdout.write("exiting\n")


main(sys.argv[1])
