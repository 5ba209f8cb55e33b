"""Who can still ask for the gradient of a recorded call: whoever holds its number.

The number leaves a program as one of the results that TensorFlow's tape keeps. Mostly it is a
tensor of its own, and then what the call has kept ends with that tensor. Out of the loops and
branches of plain graphs it comes inside a list or an optional, which cannot be looked into cheaply.
There, any call of a function with that op which was in flight when the number was made may hold it,
for as long as a variant among its results lives. A call that fails, or has no such results, holds
nothing. Neither does a run of a v1 session once it has ended.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from hostcall._tf import eager_execution
from hostcall_runtime import _locks


class _FunctionCall:
    """A call of a function from eager code, or a run of a session.

    Attributes:
      tokens: those of the script ops in the function, and in all that it calls.
      numbers: those that were made while it was in flight, and that no tensor is known to hold.
      in_flight: whether it has not ended.
      reasons: how many there are to think that it holds them: itself while it is in flight, and
        each variant among its results.
    """

    def __init__(self, tokens: frozenset[str]) -> None:
        self.tokens = tokens
        self.numbers: set[int] = set()
        self.in_flight = True
        self.reasons = 1


class Holders:
    """Tells when nobody holds a number any more.

    Args:
      drop: is called with such a number.
    """

    def __init__(self, drop: Callable[[int], None]) -> None:
        self._drop = drop
        self._lock = _locks.new_lock()
        self._in_flight: set[_FunctionCall] = set()
        # The calls that may hold a number, for those that no tensor is known to hold.
        self._possible: dict[int, set[_FunctionCall]] = {}
        self._here = threading.local()

    def __len__(self) -> int:
        return len(self._possible)

    def note(self, number: int, token: str) -> None:
        """To be called with a number that is made now and may leave its program.

        Args:
          number: the number.
          token: of the op that makes it.
        """
        with self._lock:
            calls = {call for call in self._in_flight if token in call.tokens}
            for call in calls:
                call.numbers.add(number)
            self._possible[number] = calls

    def forget(self, number: int) -> None:
        """Stops asking who may hold a number."""
        with self._lock:
            calls = self._possible.pop(number, None)
            for call in calls or ():
                call.numbers.discard(number)

    def may_hold(self, number: int) -> bool:
        """Whether somebody can ask for a number again, apart from the program that made it."""
        with self._lock:
            calls = self._possible.get(number)
            return calls is None or (bool(calls) and not any(call.in_flight for call in calls))

    def holds(self, number: int) -> bool:
        """Whether a number will be let go when the calls have ended that may hold it."""
        with self._lock:
            return bool(self._possible.get(number))

    def run(self, tokens: frozenset[str], function: Callable[[], Any]) -> Any:
        """What `function` returns. It calls a function with these tokens and may hold numbers."""
        call, outer = _FunctionCall(tokens), getattr(self._here, "call", None)
        try:
            self._here.call = call
            with self._lock:
                self._in_flight.add(call)
            return function()
        finally:
            self._here.call = outer
            call.in_flight = False
            with self._lock:
                self._in_flight.discard(call)
            self._release(call)

    def adopt(self, tensors: Iterable[Any]) -> None:
        """Finds the numbers in what a function or an op has returned, before the user has it."""
        if not self._possible:
            return
        for tensor in tensors:
            if not isinstance(tensor, eager_execution.EagerTensor):
                continue  # symbolic: a function is being traced that calls a recorded one
            if tensor.dtype == tf.int64 and tensor.shape.rank == 0:
                self._tie(tensor)
            elif tensor.dtype == tf.variant:
                self._suspect(tensor)

    def _tie(self, tensor: tf.Tensor) -> None:
        number = int(tensor)
        if number in self._possible:
            weakref.finalize(tensor, self._drop, number).atexit = False
            self.forget(number)  # afterwards, for Ctrl-C may come in between

    def _suspect(self, variant: Any) -> None:
        call = getattr(self._here, "call", None)
        if call is not None and call.numbers:
            with self._lock:
                call.reasons += 1
            weakref.finalize(variant, self._release, call).atexit = False

    def _release(self, call: _FunctionCall) -> None:
        with self._lock:
            call.reasons -= 1
            if call.reasons or not call.numbers:
                return
            over = []
            for number in call.numbers:
                calls = self._possible.get(number)
                if calls is None:
                    continue  # Ctrl-C came while it was noted or forgotten
                calls.discard(call)
                if not calls:
                    del self._possible[number]
                    over.append(number)
        for number in over:  # without the lock: what dies with a state may be the user's
            self._drop(number)
