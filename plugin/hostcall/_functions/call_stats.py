"""The cost of calls from compiled functions: `hostcall.collect_stats` and `hostcall.stats`."""

from __future__ import annotations

import dataclasses
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hostcall import _report
from hostcall._report import Table, folded
from hostcall_runtime import _executors as executors
from hostcall_runtime import _fire_and_forget, _library, _locks

_runtime = _library.load("hostcall_runtime._runtime")


@dataclasses.dataclass(frozen=True)
class CallbackStats:
    """The cost of one Python function's calls in compiled functions.

    Attributes:
      callback: the function and the op, with the file and line of both.
      calls: the number of calls.
      errors: the number of calls that failed.
      waiting_seconds: the time in which calls waited for Python's global lock while other threads
        held it. It is unknown for functions that are called between compiled clusters.
      function_seconds: the time in the function, and in making tensors for a `tf.py_function`.
      copying_seconds: the time for copying and checking arguments and results.
      bytes: the total size of arguments and results.

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
    """The compilations of one cluster of a partitioned function.

    Attributes:
      cluster: the name of its function, which `hostcall.explain` shows.
      compilations: the number of programs that XLA has compiled for it: one for each combination of
        sizes and of values that XLA must know when it compiles. A cluster may reuse programs of an
        equivalent cluster; they count for that one.
      uncompiled_runs: the number of runs by TensorFlow's kernels instead: see `max_compilations` of
        `hostcall.configure`.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def of_many_sizes(n):
      ...     y = tf.numpy_function(lambda k: np.ones(k), [n], tf.float64)
      ...     return tf.reduce_sum(tf.sqrt(tf.abs(y * 4.0)))
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
    """The outcomes of one function's calls with `wait=False`.

    Attributes:
      callback: the function, with its file and line.
      handed_over: the number of calls.
      run: the number of calls that have ended.
      errors: the number of ended calls that failed.
      dropped: the number of calls that will never run, because the queue was full.
      waiting: the number of calls that have not begun.

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
    """The cost of one Python function's calls on an executor, from all programs.

    The time at which a call arrives on another machine is unknown, so a call that is not running
    counts as waiting.

    Attributes:
      callback: the function and the op, with the file and line of both.
      calls: the number of calls that have ended; for a mapped function, the calls of its chunks.
      unfinished: the number of calls that wait or run now.
      waiting_seconds: the time from the executor's `submit` until a worker called the function.
      running_seconds: the time in the function.
      sending_seconds: the time for packing arguments and returning results.

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


class Stats(_report.Report, list[CallbackStats]):
    """The result of `hostcall.stats`: a list of `CallbackStats`. `print` shows it as tables.

    Attributes:
      executors: an `ExecutorStats` for each function that was called on an executor, the one with
        the most time first.
      compilations: a `ClusterStats` for each cluster that has run and that a graph still holds, the
        one with the most compilations first. They are always counted.
      unawaited: an `UnawaitedStats` for each function with `wait=False` that was called and is
        still alive, the one with the most calls first. They are always counted.
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

    def _parts(self) -> Iterator[str | Table]:
        if not self:
            counted = (
                "have been called" if is_collecting() else "are counted: collect_stats() counts"
            )
            yield f"hostcall.stats: no functions {counted}."
        tables: dict[str, Sequence[object]] = {
            "Calls": self,
            "Calls on executors": self.executors,
            "Calls with wait=False": self.unawaited,
            "Compilations": self.compilations,
        }
        for title, rows in tables.items():
            if rows:
                yield _table(title, rows)


def _table(title: str, rows: Sequence[Any]) -> Table:
    """Return a table with a column for each field of the rows."""
    first, *others = (field.name for field in dataclasses.fields(rows[0]))
    columns = {first: folded(1)} | {name.replace("_", " "): {"justify": "right"} for name in others}
    return Table(
        columns, [[_shown(value) for value in dataclasses.astuple(row)] for row in rows], title
    )


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


# Calls between compiled clusters are counted here, as the runtime does not see them.
_lock = _locks.new_lock()
_between: dict[str, CallbackStats] = {}


def collect_stats(on: bool = True) -> None:
    """Start or stop measuring the cost of calls from compiled functions.

    It is off at first. Counting adds a fraction of a microsecond to each call.

    Args:
      on: whether to count.

    Examples:
      >>> hostcall.collect_stats()  # from now on
      >>> hostcall.collect_stats(False)  # no more
    """
    _runtime.collect_stats(on)


ClusterCounts = Callable[[bool], Iterable[tuple[str, int, int]]]
_clusters: ClusterCounts = lambda _: ()  # noqa: E731


def count_clusters(counts: ClusterCounts) -> None:
    """Register the function that returns each cluster's compilations and uncompiled runs."""
    global _clusters
    _clusters = counts


is_collecting: Callable[[], bool] = _runtime.collects_stats


def stats(*, reset: bool = False) -> Stats:
    """Return the cost of calls from compiled functions while counting was on.

    Args:
      reset: whether to set all counts to zero.

    Returns:
      One entry for each function that was called and that a graph still holds, the one with the
      most time first. The list has three attributes: `executors` holds the cost of calls on
      executors, `compilations` the compilations of the clusters of partitioned functions, and
      `unawaited` the outcomes of calls of functions with `wait=False`. The last two are always
      counted.

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
        waiting, function, copying = (1e-9 * nanoseconds for nanoseconds in times)
        _add(found, CallbackStats(label, calls, errors, waiting, function, copying, size))
    with _lock:
        between = list(_between.values())
        if reset:
            _between.clear()
    for row in between:
        _add(found, row)
    seconds = operator.attrgetter("waiting_seconds", "function_seconds", "copying_seconds")
    rows = sorted(found.values(), key=lambda row: sum(seconds(row)), reverse=True)
    return Stats(rows, compilations(reset=reset), _unawaited_stats(reset), _executors(reset=reset))


def compilations(*, reset: bool = False) -> list[ClusterStats]:
    """Return the compilations of each cluster, the one with the most compilations first."""
    found: dict[str, ClusterStats] = {}
    # A cluster that runs on several devices appears once for each.
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
        for label, row in executors.rows(reset=reset).items()
    ]
    seconds = operator.attrgetter("waiting_seconds", "running_seconds", "sending_seconds")
    return sorted(found, key=lambda row: sum(seconds(row)), reverse=True)


def _add(rows: dict[str, CallbackStats], row: CallbackStats) -> None:
    rows[row.callback] = rows[row.callback] + row if row.callback in rows else row


def counted(
    callback: str,
    call: Callable[..., list[Any]],
    function: Callable[..., Any],
    arguments: Sequence[Any],
) -> list[Any]:
    """Make a call between compiled clusters by `call`, count it, and return its results."""
    inside = 0.0
    errors = 1

    def timed(*args: Any) -> object:
        nonlocal inside
        began = time.perf_counter()
        try:
            return function(*args)
        finally:
            inside += time.perf_counter() - began

    size = sum(map(_size, arguments))
    began = time.perf_counter()
    try:
        results = call(timed, arguments)
        errors = 0
        size += sum(map(_size, results))
        return results
    finally:
        copying = time.perf_counter() - began - inside
        row = CallbackStats(callback, 1, errors, 0.0, inside, copying, size)
        with _lock:
            _add(_between, row)


def _size(value: Any) -> int:
    size = getattr(value, "nbytes", None)
    if size is None and hasattr(value, "shape"):  # an EagerTensor
        size = value.dtype.size * value.shape.num_elements()
    return int(size or 0)
