"""Tape residuals: what a recorded call keeps for its gradient, and for how long.

The handle leaves a program as one of the results that TensorFlow's tape keeps. Mostly it is a
tensor of its own, and then what the call has kept ends with that tensor. Out of the loops and
branches of plain graphs it comes inside a list or an optional, which cannot be looked into cheaply.
There, any call of a function with that op which was in flight when the handle was made may hold it,
for as long as a variant among its results lives. A call that fails, or has no such results, holds
nothing. Neither does a run of a v1 session once it has ended.

The handle is a hidden result of the op, and an input of the gradient op. So it goes wherever
TensorFlow's autodiff takes the values of the forward pass: through loops, branches and functions,
and into the tapes that the user holds.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from hostcall._tf import eager_execution, features, token_registry
from hostcall_runtime import _library, _locks, _patching


class Recording(enum.IntEnum):
    """Whether a compiled program can ask for the gradient of a py_function's call."""

    NO = 0
    # Within the run of the program.
    RUN = 1
    # After it: the handle of the tape residual is a result of the program.
    ESCAPING = 2
    # The same of a program that is a cluster: others of its function ask any number of times.
    CLUSTER = 3


class _FunctionCall:
    """A call of a function from eager code, or a run of a session.

    Attributes:
      tokens: those of the script ops in the function, and in all that it calls.
      handles: those that were made while it was in flight, and that no tensor is known to hold.
      in_flight: whether it has not ended.
      reasons: how many there are to think that it holds them: itself while it is in flight, and
        each variant among its results.
    """

    def __init__(self, tokens: frozenset[str]) -> None:
        self.tokens = tokens
        self.handles: set[int] = set()
        self.in_flight = True
        self.reasons = 1


class HandleOwners:
    """Tells when nobody holds a handle any more.

    Args:
      drop: is called with such a handle.
    """

    def __init__(self, drop: Callable[[int], None]) -> None:
        self._drop = drop
        self._lock = _locks.new_lock()
        self._in_flight: set[_FunctionCall] = set()
        # The calls that may hold a handle, for those that no tensor is known to hold.
        self._possible: dict[int, set[_FunctionCall]] = {}
        self._here = threading.local()

    def __len__(self) -> int:
        return len(self._possible)

    def note(self, handle: int, token: str) -> None:
        """To be called with a handle that is made now and may leave its program.

        Args:
          handle: the handle.
          token: of the op that makes it.
        """
        with self._lock:
            calls = {call for call in self._in_flight if token in call.tokens}
            for call in calls:
                call.handles.add(handle)
            self._possible[handle] = calls

    def forget(self, handle: int) -> None:
        """Stops asking who may hold a handle."""
        with self._lock:
            calls = self._possible.pop(handle, None)
            for call in calls or ():
                call.handles.discard(handle)

    def may_hold(self, handle: int) -> bool:
        """Whether somebody can ask for a handle again, apart from the program that made it."""
        with self._lock:
            calls = self._possible.get(handle)
            return calls is None or (bool(calls) and not any(call.in_flight for call in calls))

    def holds(self, handle: int) -> bool:
        """Whether a handle will be let go when the calls have ended that may hold it."""
        with self._lock:
            return bool(self._possible.get(handle))

    def run(self, tokens: frozenset[str], function: Callable[[], Any]) -> Any:
        """What `function` returns. It calls a function with these tokens and may hold handles."""
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

    def attach(self, tensors: Iterable[Any]) -> None:
        """Finds the handles in what a function or an op has returned, before the user has it."""
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
        handle = int(tensor)
        if handle in self._possible:
            weakref.finalize(tensor, self._drop, handle).atexit = False
            self.forget(handle)  # afterwards, for Ctrl-C may come in between

    def _suspect(self, variant: Any) -> None:
        call = getattr(self._here, "call", None)
        if call is not None and call.handles:
            with self._lock:
                call.reasons += 1
            weakref.finalize(variant, self._release, call).atexit = False

    def _release(self, call: _FunctionCall) -> None:
        with self._lock:
            call.reasons -= 1
            if call.reasons or not call.handles:
                return
            over = []
            for handle in call.handles:
                calls = self._possible.get(handle)
                if calls is None:
                    continue  # Ctrl-C came while it was noted or forgotten
                calls.discard(call)
                if not calls:
                    del self._possible[handle]
                    over.append(handle)
        for handle in over:  # without the lock: what dies with a tape residual may be the user's
            self._drop(handle)


@dataclasses.dataclass(eq=False)
class TapeResidual:
    """A recorded call.

    Attributes:
      spec: the callback.
      tapes: the tapes that recorded it, innermost first: one for each order of derivative that the
        program can ask for.
      inputs: the tensors that went in; None for those that have no derivative.
      outputs: the tensors that came out.
      moment: when a compiled program made the call, by the bindings's clock; None elsewhere.
      until_end: whether it is kept until the program has ended that made the call.
    """

    spec: Any
    tapes: list[Any]
    inputs: list[Any]
    outputs: list[Any]
    moment: int | None = None
    until_end: bool = False


_residuals: dict[int, TapeResidual] = eager_execution.tape_cache

# Where nobody tells when a call has ended: the latest handles, beyond which none is kept.
_MANY_UNTOLD = 256
_untold: collections.deque[int] = collections.deque()


def keep(residual: TapeResidual) -> int:
    """Keeps the residual of a call that no compiled program makes, and returns its handle."""
    return _keep(residual, lambda handle: _note(handle, residual.spec.title))


def _note(handle: int, token: str) -> None:
    owners.note(handle, token)
    if not (_patching.are_installed() and features.RESIDUALS.available):
        _untold.append(handle)
        while len(_untold) > _MANY_UNTOLD:
            drop(_untold.popleft())


def keep_for_call(residual: TapeResidual) -> int:
    """Keeps the residual of a call that a partitioned function makes, and returns its handle.

    As in a compiled program, the gradient may be asked for any number of times until that ends.
    """
    residual.until_end = True
    return keep(residual)


def keep_in_program(residual: TapeResidual, recording: Recording) -> int:
    """Keeps the residual of a call that a compiled program makes, and returns its handle.

    Args:
      residual: the residual.
      recording: when the gradient may be asked for.
    """
    residual.moment = _bindings().now()
    if recording is Recording.RUN:
        return _keep(residual, _bindings().drop_after_run)
    return keep_for_call(residual) if recording is Recording.CLUSTER else keep(residual)


def _keep(residual: TapeResidual, see_to_its_end: Callable[[int], None]) -> int:
    # Cannot be mistaken for a user's value, nor for the 0 of a call that was not recorded.
    handle = secrets.randbits(62) | 1
    # In this order: Ctrl-C may come in between.
    see_to_its_end(handle)
    _residuals[handle] = residual
    return handle


def _bindings() -> Any:
    # Not loaded at import: that registers kernels, which HOSTCALL_DISABLE=1 forbids.
    return _library.load("hostcall._tensorflow")


def drop(handle: int) -> None:
    """Forgets a residual, if it is still kept."""
    owners.forget(handle)
    _residuals.pop(handle, None)


owners = HandleOwners(drop)


class _Refusal:
    """What TensorFlow's own gradient finds of an eager call that was recorded before `disable`."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError(
            "hostcall: a tape has recorded this call of a Python function, and hostcall was "
            "disabled before the tape was asked for the gradient. Ask it before "
            "hostcall.disable(), or call hostcall.enable() first."
        )


def refuse_eager_calls() -> None:
    """Has TensorFlow's own gradient say why it knows nothing of eager calls recorded by now."""
    kept = [r for r in [*_residuals.values()] if isinstance(r, TapeResidual)]
    tokens = {r.spec.title.encode() for r in kept if r.spec.op is None}
    eager_execution.tape_cache.update({token: _Refusal() for token in tokens})


def refuse_no_longer() -> None:
    """Undoes `refuse_eager_calls`."""
    for key, kept in [*eager_execution.tape_cache.items()]:
        if isinstance(kept, _Refusal):
            eager_execution.tape_cache.pop(key, None)


def may_be_recorded(tokens: Iterable[str]) -> bool:
    """Whether calls of py_functions with these tokens may be recorded in a call of a function.

    Their gradient is asked for already, or a tape of the caller's may ask for it in the call.
    """
    if not eager_execution.has_no_tapes():
        return True
    entries = map(token_registry.find_present, tokens)
    # That of a saved graph is looked up when it is first called.
    return any(entry is None or getattr(entry, "gradient_wanted", False) for entry in entries)


def attach(tensors: Iterable[Any]) -> None:
    """Ties residuals to the EagerTensors that hold their handles.

    Args:
      tensors: what a function or an op has returned.
    """
    owners.attach(tensors)


def spec_of(handle: int) -> Any:
    """The spec whose call kept this residual, None when it is not kept."""
    residual = _residuals.get(handle)
    return residual.spec if isinstance(residual, TapeResidual) else None


def take(handle: int) -> TapeResidual:
    """The residual of that handle; one that nobody can ask for again is not kept any longer.

    Raises:
      RuntimeError: when it is not kept.
    """
    residual = _residuals.get(handle)
    if residual is None:
        raise RuntimeError(
            "The gradient of this call of a Python function cannot be computed: what it needs is "
            "not kept any more, or the call was not recorded. A call in a function without "
            "jit_compile=True keeps it for one gradient; compute all of them at once there, or "
            "compile the function."
        )
    # A program that hands a handle out may ask for it first, any number of times.
    within = residual.moment is not None and _bindings().was_running(residual.moment)
    within |= residual.until_end and owners.holds(handle)
    if not within and not owners.may_hold(handle):
        drop(handle)
    return residual
