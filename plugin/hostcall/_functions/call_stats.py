"""What calls from compiled functions cost: `hostcall.collect_stats` and `hostcall.stats`."""

from __future__ import annotations

import dataclasses
import operator
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hostcall_runtime import _executors as hostcall_runtime_executors
from hostcall_runtime import _fire_and_forget, _library, _locks

_runtime = _library.load("hostcall_runtime._runtime")

_NANOSECOND = 1e-9


@dataclasses.dataclass(frozen=True)
class CallbackStats:
    """What the calls of one Python function have cost in compiled functions.

    Attributes:
      callback: the function and the op, with the file and line of both.
      calls: how many calls there were.
      errors: how many of them failed.
      waiting_seconds: the time in which calls waited for Python's global lock, which other threads
        had. It is not known of functions that are called between compiled clusters.
      function_seconds: the time in the function, and in making tensors for a `tf.py_function`.
      copying_seconds: the time in which arguments and results were copied and checked.
      bytes: the size of arguments and results, together.

    Examples:
      >>> triple = hostcall.callback(lambda x: 3 * x, result=lambda x: x, name="triple")
      >>> hostcall.collect_stats()
      >>> _ = tf.function(triple, jit_compile=True)(tf.ones([4]))
      >>> [row] = hostcall.stats(reset=True)
      >>> row.calls, row.errors, row.bytes
      (1, 0, 32)
      >>> hostcall.collect_stats(False)
    """

    callback: str
    calls: int = 0
    errors: int = 0
    waiting_seconds: float = 0.0
    function_seconds: float = 0.0
    copying_seconds: float = 0.0
    bytes: int = 0

    def __add__(self, other: CallbackStats) -> CallbackStats:
        counts = [field.name for field in dataclasses.fields(self) if field.name != "callback"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in counts}
        return dataclasses.replace(self, **sums)


@dataclasses.dataclass(frozen=True)
class ClusterStats:
    """How often one cluster of a partitioned function was compiled.

    Attributes:
      cluster: the name of its function, which `hostcall.explain` shows.
      compilations: how many programs XLA has made for it: one for each combination of sizes, and of
        the values that XLA wants to know when it compiles. It may use programs of a cluster that
        does the same, which count there.
      uncompiled_runs: how often TensorFlow's kernels have run it instead: see `max_compilations` of
        `hostcall.configure`.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def of_many_sizes(n):
      ...     y = tf.numpy_function(lambda k: np.ones(k), [n], tf.float64)
      ...     return tf.reduce_sum(y * 2.0)
      >>> [float(of_many_sizes(tf.constant(n))) for n in (1, 2, 3)]
      [2.0, 4.0, 6.0]
      >>> [row] = [r for r in hostcall.stats().compilations if "of_many_sizes" in r.cluster]
      >>> row.compilations, row.uncompiled_runs
      (1, 2)
    """

    cluster: str
    compilations: int = 0
    uncompiled_runs: int = 0


@dataclasses.dataclass(frozen=True)
class UnawaitedStats:
    """What has become of the calls of one function for which no program waits.

    Attributes:
      callback: the function, with its file and line.
      handed_over: how many calls there were.
      run: how many of them have ended.
      errors: how many of these have failed.
      dropped: how many will never run, because the queue was full.
      waiting: how many have not begun.

    Examples:
      >>> log = hostcall.callback(lambda x: None, result=[], wait=False)
      >>> log(1.0), log(2.0)
      ([], [])
      >>> hostcall.barrier()
      >>> [row] = [row for row in hostcall.stats().unawaited if "<lambda>" in row.callback]
      >>> row.handed_over, row.run, row.errors, row.dropped, row.waiting
      (2, 2, 0, 0, 0)
    """

    callback: str
    handed_over: int = 0
    run: int = 0
    errors: int = 0
    dropped: int = 0
    waiting: int = 0


@dataclasses.dataclass(frozen=True)
class ExecutorStats:
    """What the calls of one Python function have cost on an executor, wherever they came from.

    Of an executor on other machines nobody knows when a call has arrived there: what is not
    running counts as waiting.

    Attributes:
      callback: the function and the op, with the file and line of both.
      calls: how many calls have ended; of a function that is mapped, those of chunks.
      unfinished: how many wait or run now.
      waiting_seconds: the time from the executor's `submit` until a worker called the function.
      running_seconds: the time in the function.
      sending_seconds: the time in which arguments were packed, and in which results came back.

    Examples:
      >>> pool = concurrent.futures.ThreadPoolExecutor(1)
      >>> halve = hostcall.callback(lambda x: x / 2, result=lambda x: x, executor=pool)
      >>> hostcall.collect_stats()
      >>> _ = tf.function(halve, jit_compile=True)(tf.ones([4]))
      >>> [row] = hostcall.stats(reset=True).executors
      >>> row.calls, row.unfinished
      (1, 0)
      >>> hostcall.collect_stats(False)
    """

    callback: str
    calls: int = 0
    unfinished: int = 0
    waiting_seconds: float = 0.0
    running_seconds: float = 0.0
    sending_seconds: float = 0.0


class Stats(list[CallbackStats]):
    """The answer of `hostcall.stats`: a list of `CallbackStats`.

    Attributes:
      executors: an `ExecutorStats` for each function that was called on an executor, the one with
        the most time first.
      compilations: a `ClusterStats` for each cluster that has run and that a graph still holds, the
        one with the most compilations first. They are always counted.
      unawaited: an `UnawaitedStats` for each function with `wait=False` that was called and that
        something still holds, the one with the most calls first. They are always counted.
    """

    def __init__(
        self,
        rows: Iterable[CallbackStats] = (),
        compilations: Iterable[ClusterStats] = (),
        unawaited: Iterable[UnawaitedStats] = (),
        executors: Iterable[ExecutorStats] = (),
    ) -> None:
        super().__init__(rows)
        self.compilations = list(compilations)
        self.unawaited = list(unawaited)
        self.executors = list(executors)


# Of calls between compiled clusters, which the runtime does not see.
_lock = _locks.new_lock()
_between: dict[str, CallbackStats] = {}


def collect_stats(on: bool = True) -> None:
    """Counts from now on what calls from compiled functions cost, or stops counting.

    Nothing is counted before. Counting takes a fraction of a microsecond of each call.

    Args:
      on: whether to count.

    Examples:
      >>> hostcall.collect_stats()  # from now on
      >>> hostcall.collect_stats(False)  # no more
    """
    _runtime.collect_stats(on)


ClusterCounts = Callable[[bool], Iterable[tuple[str, int, int]]]


def _no_clusters(_: bool) -> Iterable[tuple[str, int, int]]:
    return ()


_clusters: ClusterCounts = _no_clusters


def count_clusters(counts: ClusterCounts) -> None:
    """Where TensorFlow is there: what tells how often each cluster was compiled and was not."""
    global _clusters
    _clusters = counts


is_collecting: Callable[[], bool] = _runtime.collects_stats


def stats(*, reset: bool = False) -> Stats:
    """What calls from compiled functions have cost while that was counted.

    Args:
      reset: whether to set all counts to zero.

    Returns:
      One entry for each function that was called and that a graph still holds, the one with the
      most time first. The attribute `executors` of the list says what calls on executors have
      cost, `compilations` how often the clusters of partitioned functions were compiled, and
      `unawaited` what has become of the calls of functions with `wait=False`; the last two are
      counted in any case.

    Examples:
      >>> @hostcall.callback(result=lambda x: x)
      ... def double(x):
      ...     return 2 * x
      >>> program = tf.function(lambda x: double(double(x)), jit_compile=True)
      >>> hostcall.collect_stats()
      >>> _ = program(tf.ones([3]))
      >>> [row.calls for row in hostcall.stats(reset=True)]
      [2]
      >>> hostcall.collect_stats(False)
    """
    found: dict[str, CallbackStats] = {}
    for label, calls, errors, *times, size in _runtime.stats(reset):
        waiting, function, copying = (nanoseconds * _NANOSECOND for nanoseconds in times)
        _add(found, CallbackStats(label, calls, errors, waiting, function, copying, size))
    with _lock:
        between = list(_between.values())
        if reset:
            _between.clear()
    for row in between:
        _add(found, row)
    rows = sorted(found.values(), key=_total_seconds, reverse=True)
    return Stats(rows, compilations(reset=reset), _unawaited_stats(reset), _executors(reset=reset))


def compilations(*, reset: bool = False) -> list[ClusterStats]:
    """How often each cluster was compiled, the one with the most compilations first."""
    found: dict[str, ClusterStats] = {}
    # A cluster may run on several devices.
    for name, programs, plain in _clusters(reset):
        row = found.get(name, ClusterStats(name))
        found[name] = ClusterStats(name, row.compilations + programs, row.uncompiled_runs + plain)
    return sorted(found.values(), key=lambda row: (-row.compilations, row.cluster))


def _unawaited_stats(reset: bool) -> list[UnawaitedStats]:
    rows = [UnawaitedStats(*counts) for counts in _fire_and_forget.counts(reset) if any(counts[1:])]
    return sorted(rows, key=lambda row: (-row.handed_over, row.callback))


def _executors(*, reset: bool) -> list[ExecutorStats]:
    found = [
        ExecutorStats(label, row.calls, row.unfinished, row.waiting, row.running, row.sending)
        for label, row in hostcall_runtime_executors.rows(reset=reset).items()
    ]
    seconds = operator.attrgetter("waiting_seconds", "running_seconds", "sending_seconds")
    return sorted(found, key=lambda row: sum(seconds(row)), reverse=True)


def _add(rows: dict[str, CallbackStats], row: CallbackStats) -> None:
    rows[row.callback] = rows[row.callback] + row if row.callback in rows else row


def _total_seconds(row: CallbackStats) -> float:
    return row.waiting_seconds + row.function_seconds + row.copying_seconds


def counted(
    callback: str, call: Callable[..., Any], function: Callable[..., Any], arguments: Sequence[Any]
) -> Any:
    """What a call between compiled clusters returns; counts it.

    Args:
      callback: as in CallbackStats.
      call: takes the function and the arguments, and copies and checks what goes in and out.
      function: the user's.
      arguments: arrays or tensors.
    """
    inside = 0.0
    errors = 1

    def timed(*args: Any) -> Any:
        nonlocal inside
        began = time.perf_counter()
        try:
            return function(*args)
        finally:
            inside += time.perf_counter() - began

    size = _bytes_of(arguments)
    began = time.perf_counter()
    try:
        results = call(timed, arguments)
        errors = 0
        size += _bytes_of(results)
        return results
    finally:
        copying = time.perf_counter() - began - inside
        row = CallbackStats(callback, 1, errors, 0.0, inside, copying, size)
        with _lock:
            _add(_between, row)


def _bytes_of(values: Sequence[Any]) -> int:
    return sum(_size(value) for value in values)


def _size(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    if size is None and hasattr(value, "shape"):  # an EagerTensor
        size = value.dtype.size * value.shape.num_elements()
    return int(size or 0)
