"""hostcall_runtime._shared_memory: arrays on their way to processes of this machine, and back."""

import concurrent.futures
import functools
import importlib
import multiprocessing
import os
import re
import resource
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hostcall_runtime import _shared_memory
from hostcall_runtime._errors import DeadlineExceededError, ExecutorError
from hostcall_runtime._executors import Callee, provider_of
from tests.support import executor_functions as functions
from tests.support.threads import PATIENCE

SHAPE = (512, 256)  # half a MiB of float32


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def workers(count: int = 1) -> concurrent.futures.ProcessPoolExecutor:
    context = multiprocessing.get_context("forkserver")
    return concurrent.futures.ProcessPoolExecutor(count, context, initializer=few_files)


@pytest.fixture(scope="module", params=["processes", "loky"])
def pool(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "loky":
        made = importlib.import_module("loky").ProcessPoolExecutor(1, initializer=few_files)
    else:
        made = workers()
    yield made
    made.shutdown()


def started(executor: Any, function: Callable[..., Any], *args: Any, **how: Any) -> Any:
    provider = provider_of(executor)
    assert provider is not None
    return Callee(provider, function, function.__name__, **how).start(*args)


def called(executor: Any, function: Callable[..., Any], *args: Any, **how: Any) -> Any:
    return started(executor, function, *args, **how).result()


def array(first: float = 0.0, dtype: Any = np.float32) -> Any:
    return (np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE) % 100 + first).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.bool_, ml_dtypes.bfloat16, ">i4"])
@pytest.mark.parametrize("lends", [False, True])
def test_arrays_of_any_dtype_go_both_ways(pool: Any, dtype: Any, lends: bool) -> None:
    x = np.tile(array(dtype=dtype), (4, 1))
    result = called(pool, functions.doubled, x, lends=lends)
    assert result.dtype == (x * 2).dtype
    np.testing.assert_array_equal(result, x * 2)


def test_arrays_of_any_layout_go_both_ways(pool: Any) -> None:
    for x in (array(), array().T, np.tile(array(), 4)[::2, 1::2]):
        result = called(pool, functions.transposed, x)
        np.testing.assert_array_equal(result, x.T[::-1])
        assert (result.base, result.flags.writeable) == (None, True)


def test_structures_go_both_ways(pool: Any) -> None:
    x = array()
    sums = called(pool, functions.sums, {"a": x, "b": 2.0 * x})
    np.testing.assert_array_equal(sums["sum"], 3.0 * x)
    small = called(pool, functions.both_ways, np.float32(3.0))
    assert small == {"a": [4.0, 7], "b": (2.0, None)}
    large = called(pool, functions.both_ways, x)
    np.testing.assert_array_equal(large["a"][0], x + 1)
    assert large["b"][1] is None


def test_what_a_function_keeps_stays(pool: Any) -> None:
    firsts = [float(number) for number in range(100)]  # more than it may have files
    for first in firsts:
        np.testing.assert_array_equal(called(pool, functions.keeps, array(first)), array(first))
        called(pool, functions.doubled, array(-1.0))
    np.testing.assert_array_equal(called(pool, functions.first_kept, 0), firsts)
    called(pool, functions.forgets, 0)


def test_what_is_returned_of_an_argument_does_not_keep_it(pool: Any) -> None:
    before = functions.open_blocks(0)
    for first in range(40):
        row = called(pool, functions.first_row, array(first))
        np.testing.assert_array_equal(row, array(first)[0])
    assert functions.open_blocks(0) <= before + 1


def test_lent_results_keep_their_memory(pool: Any) -> None:
    results = [called(pool, functions.doubled, array(first), lends=True) for first in range(5)]
    for first, result in enumerate(results):
        np.testing.assert_array_equal(result, 2 * array(first))


def test_a_worker_that_cannot_open_the_memory(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shared_memory, "_free", type(_shared_memory._free)())
    monkeypatch.setattr(_shared_memory, "_is_reachable", True)
    block = _shared_memory.take()
    process, file, number = block.address
    block.address = process, file, number + 1
    _shared_memory.give_back(block)
    np.testing.assert_array_equal(called(pool, functions.doubled, array()), 2 * array())
    assert not _shared_memory._is_reachable


def test_what_fails_gives_all_memory_back() -> None:
    with pytest.raises(TypeError) as here:  # NumPy 2.2 says it in other words than the ones before
        functions.fails(array())
    with workers() as made:
        called(made, functions.doubled, array())
        before = functions.open_blocks(0)
        for _ in range(5):
            with pytest.raises(TypeError, match=re.escape(str(here.value))):
                called(made, functions.fails, array())
            with pytest.raises(ExecutorError, match="cannot send"):
                called(made, functions.returns_a_lock, array())
        assert functions.open_blocks(0) <= before
        with pytest.raises(ExecutorError, match="has broken"):
            called(made, functions.ends, array())
        assert functions.open_blocks(0) <= before


class Pipes:
    """The pipes at which a function waits, and to which it writes afterwards."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._how = {name: str(folder / name) for name in ("gate", "answer")}
        self._ends = {}
        for name, path in self._how.items():
            os.mkfifo(path)
            self._ends[name] = os.open(path, os.O_RDWR)  # which does not block

    def waiting(self, function: Callable[..., Any]) -> Any:
        """The function, with these pipes."""
        return functools.update_wrapper(functools.partial(function, **self._how), function)

    def told(self) -> float:
        """Let the function go on, and return the number that it writes."""
        os.write(self._ends["gate"], b"go\n")
        can_read, _, _ = select.select([self._ends["answer"]], [], [], PATIENCE)
        assert can_read, "the function has not run"
        answer = float(os.read(self._ends["answer"], 100))
        for end in self._ends.values():
            os.close(end)
        return answer


def test_late_calls_keep_their_arguments(tmp_path: Path) -> None:
    runs, waits = Pipes(tmp_path / "runs"), Pipes(tmp_path / "waits")
    with workers() as made, workers() as other:
        called(made, functions.doubled, array())
        for first, late in ((5.0, runs), (6.0, waits)):
            function = late.waiting(functions.sums_when_told)
            call = started(made, function, array(first), timeout=0.01)
            while not (call._future.running() or call._future.done()):  # no worker has it yet
                pass
            with pytest.raises(DeadlineExceededError, match="It still runs"):
                call.result()
            del call  # which alone may hold the memory
        for _ in range(5):  # which take other memory
            called(other, functions.doubled, array())
        assert runs.told() == array(5.0).sum()
        assert waits.told() == array(6.0).sum()


def test_a_child_that_a_function_forks_keeps_its_arguments(tmp_path: Path) -> None:
    child = Pipes(tmp_path / "child")
    with workers() as made:
        called(made, child.waiting(functions.forks_with), array(5.0))
        for _ in range(5):
            called(made, functions.doubled, array())
        assert child.told() == array(5.0).sum()


FORKED = """
import concurrent.futures, multiprocessing, os, sys
import __main__
import numpy as np
from hostcall_runtime._executors import Callee, provider_of
from tests.support import executor_functions as functions

__main__.__file__ = None  # which workers would run again

pools = []

def made():
    context = multiprocessing.get_context("spawn")
    pools.append(concurrent.futures.ProcessPoolExecutor(1, context))
    return pools[-1]

provider = provider_of(made)

def doubled(first):
    x = np.full(1 << 18, first, np.float32)
    return Callee(provider, functions.doubled, "doubled", lends=True).start(x).result()

if __name__ == "__main__":
    free = doubled(1.0)
    lent = doubled(2.0)
    del free
    gate = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            own = [doubled(number) for number in (7.0, 8.0)]
            os.close(gate[1])
            os.read(gate[0], 1)
            assert (lent == 4.0).all()
            assert [result[0] for result in own] == [14.0, 16.0]
            pools[-1].shutdown()
            os._exit(3)
        finally:
            os._exit(1)
    del lent
    results = [doubled(number) for number in (3.0, 4.0, 5.0)]
    os.close(gate[1])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert [set(result.tolist()) for result in results] == [{6.0}, {8.0}, {10.0}]
    pools[-1].shutdown()
    print("both")
"""


def test_a_forked_child_shares_nothing(run_python: Callable[..., str]) -> None:
    assert run_python(FORKED) == "both\n"
