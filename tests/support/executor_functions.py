"""Functions for other processes in the tests of executors; without TensorFlow's slow import."""

import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

from tests.support.threads import PATIENCE

calls: list[float] = []
_meeting: Any = None


class SimulatorError(ValueError):
    def __init__(self, sensor: int) -> None:
        super().__init__(sensor)
        self.sensor = sensor


def doubled(x: Any) -> Any:
    return x * 2


def place(x: Any) -> Any:
    """The process, whether TensorFlow is in it, and the argument."""
    return np.array([os.getpid(), "tensorflow" in sys.modules, x.sum()], np.float64)


def sums(pair: Any) -> Any:
    return {"sum": pair["a"] + pair["b"], "difference": pair["a"] - pair["b"]}


def scaled(x: Any, factor: float = 1.0) -> Any:
    return x * np.float32(factor)


def counted(x: Any) -> Any:
    calls.append(float(x))
    return np.float32(len(calls))


def journal(x: Any) -> Any:
    return np.array(calls, np.float32)


def fails(x: Any) -> Any:
    raise SimulatorError(int(x))


def wrong_shape(x: Any) -> Any:
    return np.zeros(7, np.float32)


def ends(x: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def returns_a_lock(x: Any) -> Any:
    return threading.Lock()


def lasts(x: Any) -> Any:
    time.sleep(float(x))
    return x


kept: list[Any] = []


def keeps(x: Any) -> Any:
    kept.append(x)
    return x


def first_kept(x: Any) -> Any:
    return np.array([array.flat[0] for array in kept], np.float32)


def forgets(x: Any) -> Any:
    kept.clear()
    return x


def first_row(x: Any) -> Any:
    return x[0]


def transposed(x: Any) -> Any:
    return x.T[::-1]


def both_ways(x: Any) -> Any:
    return {"a": [x + 1, 7], "b": (x - 1, None)}


def open_blocks(x: Any) -> Any:
    """Return how many descriptors of hostcall's shared memory this process has."""
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum("memfd:hostcall" in os.readlink(link) for link in links if os.path.islink(link))


def sums_when_told(x: Any, gate: str, answer: str) -> Any:
    """Writes the sum of an array to one pipe when there is a line in the other one."""
    with open(gate, encoding="utf-8") as file:
        file.readline()
    with open(answer, "w", encoding="utf-8") as file:
        file.write(str(x.sum()))
    return x


def forks_with(x: Any, gate: str, answer: str) -> Any:
    """The same in a child that the function leaves behind."""
    if os.fork() == 0:
        sums_when_told(x, gate, answer)
        os._exit(0)
    return x


def place_of_each(x: Any) -> Any:
    """Return for each element the process, and how many elements came with it."""
    return np.tile(np.array([os.getpid(), len(x)], np.float64), (len(x), 1))


def scaled_by(x: Any, w: Any) -> Any:
    return x * w


def slope_of_scaled_by(inputs: Any, results: Any, upstream: Any) -> Any:
    x, w = inputs
    assert results.shape == upstream.shape == x.shape
    return upstream * w, (upstream * x).sum(0)


def fails_at_5(x: Any) -> Any:
    if (x == 5).any():
        raise SimulatorError(5)
    return x


def ends_at_5(x: Any) -> Any:
    if (x == 5).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def ends_once(x: Any, folder: str) -> Any:
    """Ends its worker the first time that it is called with an array."""
    try:
        os.mkdir(os.path.join(folder, f"{float(x.flat[0])}"))
    except FileExistsError:
        return x * 2
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def lasts_and_doubles(x: Any) -> Any:
    time.sleep(0.01)
    return x * 2


def journaled(x: Any, file: str) -> Any:
    """Writes its argument down, in one piece, where the death of this process leaves it."""
    journal = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, f"{int(x.flat[0])}\n".encode())
    os.close(journal)
    return x


def makes_its_own(x: Any) -> Any:
    """Writes to its argument, which is nobody else's."""
    x += 1
    return x


def noted(file: str, x: Any) -> Any:
    with open(file, "a") as journal:
        journal.write(f"{os.getpid()}\n")
    return x


def exits(file: str, x: Any) -> Any:
    noted(file, x)
    os._exit(3)


def waits_to_be_killed(pipe: str, x: Any) -> Any:
    """Writes its process into a pipe, and waits."""
    noted(pipe, x)
    while True:
        time.sleep(1.0)


class HoldsALockError(ValueError):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def cannot_be_made() -> None:
    raise RuntimeError("nobody can read this")


class UnreadableError(ValueError):
    """Can be pickled and not be read again."""

    def __reduce__(self) -> Any:
        return cannot_be_made, ()


def raises_what_cannot_be_sent(x: Any) -> Any:
    raise HoldsALockError("sensor 5")


def raises_what_cannot_be_read(x: Any) -> Any:
    raise UnreadableError("sensor 6")


class Unreadable:
    def __reduce__(self) -> Any:
        return cannot_be_made, ()


def returns_what_cannot_be_read(x: Any) -> Any:
    return Unreadable()


def holds_a_lock(lock: Any, x: Any) -> Any:
    """Return x, in a partial function that cannot be sent because of its lock."""
    return x


def waits_for(pipe: str, gate: str, x: Any) -> Any:
    """Writes its process into a pipe, and waits for a file that is not there yet."""
    if not os.path.exists(gate):
        noted(pipe, x)
    while not os.path.exists(gate):
        time.sleep(0.01)
    return x


def last(x: Any) -> Any:
    """An array that begins with the first element of that which was kept last."""
    return np.full_like(x, kept[-1].flat[0])


def added_in_place(x: Any, y: Any) -> Any:
    """The sum of its arguments, both of which are lost."""
    total = x + y
    if total.ndim:
        x[...] = y[...] = -1
    return total


class NegatesAndDiesOnce:
    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, x: Any) -> Any:
        x *= -1
        if not os.path.exists(self.path):
            with open(self.path, "w", encoding="utf-8"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return x


def set_meeting(barrier: Any) -> None:
    global _meeting
    _meeting = barrier


def meet(x: Any) -> Any:
    """Returns 2x when as many calls as the barrier wants have begun."""
    _meeting.wait(PATIENCE)
    return x + x
