"""Replaying: each call is answered from a recording, and no function runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hostcall._recording import calls, differences, exceptions, matching, values
from hostcall._recording import format as file_format
from hostcall._recording.errors import ReplayError
from hostcall._recording.format import Call, Outcome, Raised, Returned, Wrote
from hostcall._recording.locking import LOCK
from hostcall._recording.reading import Reader
from hostcall._recording.selection import Selection, are_alike
from hostcall._recording.values import Value
from hostcall_runtime import _interception
from hostcall_runtime._interception import Site
from hostcall_runtime._words import counted

_WHY = (
    "What the program computes before this call is not what it was, or the program, its inputs or "
    "its seeds have changed."
)


class Replayer:
    """Answers calls from a file.

    Args:
      path: of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._reader = Reader(path)
        self._selection = Selection(self._reader.only_of or None)
        self._process = os.getpid()
        by_name: dict[str, list[Call]] = {name: [] for name in self._reader.names.values()}
        for call in self._reader.calls:
            by_name[self._reader.names[call.callback]].append(call)
        self._queues = {name: matching.Queue(some) for name, some in by_name.items()}
        # By handle, the recorded call in whose place it was given.
        self._handles: dict[int, int] = {}
        self._failure: ReplayError | None = None
        self._is_over = False
        self._reader.warn_if_cut_off()

    def call(
        self,
        site: Site,
        function: Callable[..., Any],
        args: Sequence[Any],
        given: Mapping[str, Any],
    ) -> Any:
        """What the recorded call gave; see `Interceptor`.

        Raises:
          ReplayError: when it is not the call that was recorded.
          RecordingError: when the file cannot be read.
        """
        if self._is_over or _interception.is_within_call() or not self._selection.has(site):
            return function(*args, **given)
        self._check_process(site)
        try:
            with _interception.within_call():  # not what the collector runs meanwhile
                call, outcome = self._take(site, args)
                return self._answer(site, call, outcome, given)
        except ReplayError as error:
            with LOCK:
                self._failure = self._failure or error
            raise

    def _check_process(self, site: Site) -> None:
        if self._process != os.getpid():
            raise ReplayError(
                f"hostcall: {site.description} is called in a forked process, and hostcall.replay "
                "began in the process that it was forked from. Replay a recording of its own there."
            )

    def _take(self, site: Site, args: Sequence[Any]) -> tuple[Call, Outcome]:
        encoded = calls.encode_arguments(site, args, lambda handle: self._handles.get(handle, 0))
        digest = file_format.digest_of(file_format.encode(encoded))
        with LOCK:
            if self._failure is not None:
                raise ReplayError(f"{self._failure} This is a later call of {site.description}.")
            queue = self._queue(site)
            possible = queue.possible(digest)
            if not possible:
                raise ReplayError(self._no_such_call(site, queue, encoded, queue.later(digest)))
            meant = matching.preferred(possible, site.node)
            outcome = self._reader.outcome(meant[0])
            for other in meant[1:]:
                if self._reader.outcome(other) != outcome:
                    raise ReplayError(self._ambiguous(site, queue, meant[0], other))
            queue.take(meant[0])
        return meant[0], outcome

    def _queue(self, site: Site) -> matching.Queue:
        """The calls of a function of that name; in another module, where it is the only such."""
        queue = self._queues.get(site.name)
        if queue is None:
            same = [name for name in self._queues if are_alike(name, site.name)]
            queue = self._queues[same[0]] if len(same) == 1 else None
        if queue is None:
            known = ", ".join(sorted(self._queues)) or "none"
            raise ReplayError(
                f"hostcall: {site.description} is called, and the recording {self.path!r} has no "
                f"call of a function named {site.name!r}. It has calls of: {known}. If the "
                "function was renamed or moved, give it a name that stays: "
                "hostcall.callback(..., name=...)."
            )
        return queue

    def _answer(self, site: Site, call: Call, outcome: Outcome, given: Mapping[str, Any]) -> Any:
        if isinstance(outcome, Raised):
            raise exceptions.decode(outcome)
        try:
            if isinstance(outcome, Wrote):
                return self._write(outcome, calls.outs_of(given))
            returned = values.decode(outcome.value, site.to_tensor)
        except ValueError as error:
            raise ReplayError(
                f"hostcall: {self._named(site, call)} cannot be answered from {self.path!r}: "
                f"{error}."
            ) from error
        return (
            returned
            if site.new_handle is None
            else self._with_handle(site, call, outcome, returned)
        )

    def _with_handle(self, site: Site, call: Call, outcome: Returned, returned: Any) -> Any:
        handle = 0
        if outcome.has_handle:
            assert site.new_handle is not None
            handle = site.new_handle()
            self._handles[handle] = call.id
        return [*returned, np.asarray(handle, np.int64)]

    def _write(self, outcome: Wrote, outs: Sequence[Any]) -> None:
        results = [values.decode(value) for value in outcome.results]
        for result, out in zip(results, outs, strict=True):
            if result.dtype != out.dtype or result.shape != out.shape:
                raise ValueError(
                    f"a result of it was {result.dtype} of shape {result.shape}, and the program "
                    f"wants {out.dtype} of shape {out.shape}"
                )
            out[...] = result

    def _no_such_call(
        self, site: Site, queue: matching.Queue, got: list[Value], later: Call | None
    ) -> str:
        expected = queue.expected()
        if expected is None:
            cut_off = "" if self._reader.complete else " The recording was cut off there."
            return (
                f"hostcall: {site.description} is called once more than in the recording "
                f"{self.path!r}, which has {counted(queue.count, 'call')} of it.{cut_off} {_WHY}"
            )
        recorded = self._reader.arguments(expected)
        difference = differences.first_difference(recorded, got)
        if later is not None:
            difference += (
                f" Call {queue.number_of(later)} has these arguments: the calls come in another "
                "order. Where that does not matter, as in the parallel map of a dataset, say "
                "stateful=False of the function, and record again."
            )
        among = "" if expected.ordered else f"None of the {len(queue)} calls that are left fits. "
        return (
            f"hostcall: {self._named(site, expected)} differs from the recording {self.path!r}. "
            f"{among}{difference} {_WHY}"
        )

    def _named(self, site: Site, call: Call) -> str:
        name = self._reader.names[call.callback]
        number = self._queues[name].number_of(call)
        return f"call {number} of {name} ({site.description})"

    def _ambiguous(self, site: Site, queue: matching.Queue, one: Call, other: Call) -> str:
        return (
            f"hostcall: {site.description} is called, and in the recording {self.path!r} calls "
            f"{queue.number_of(one)} and {queue.number_of(other)} of it have these arguments and "
            "are of two functions with the same name, which returned different results. Nothing "
            "tells which of them this is: give each a name of its own, "
            "hostcall.callback(..., name=...), or declare them stateful, and record again."
        )

    def close(self, error: BaseException | None) -> None:
        """Ends the replay.

        Args:
          error: what ends the block that was replayed, if that is one.

        Raises:
          ReplayError: where a call was another one than recorded, unless something else is on its
            way; where none is, also when recorded calls have not been made.
        """
        self._is_over = True
        failure = self._failure
        if self._process == os.getpid():
            self._reader.close()
        if failure is not None and (error is None or str(failure) in str(error)):
            raise failure from (None if error is failure else error)
        if error is None and (left := self._left()):
            raise ReplayError(left)

    def _left(self) -> str:
        left = [(name, queue) for name, queue in self._queues.items() if queue.calls]
        if not left:
            return ""
        counts = ", ".join(f"{counted(len(queue), 'call')} of {name}" for name, queue in left)
        first, name = min(
            (call.id, name) for name, queue in left for call in list(queue.calls.values())[:1]
        )
        queue = self._queues[name]
        call = queue.calls[first]
        return (
            f"hostcall: the recording {self.path!r} has calls that were not made again: {counts}. "
            f"The first is call {queue.number_of(call)} of {name} ({call.description}). The "
            "program has ended earlier or has taken another branch, or the functions themselves, "
            "which are not run now, have made these calls."
        )
