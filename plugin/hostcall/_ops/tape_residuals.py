"""Tape residuals: the tapes and tensors that recorded calls keep for their gradients.

The handle of a residual is a hidden result of the op, and an input of the gradient op. So it goes
wherever TensorFlow's autodiff takes the values of the forward pass: through loops, branches and
functions, and into the tapes that the user holds.

A residual lives as long as its handle, which leaves a program as a result that TensorFlow's tape
keeps. Mostly the handle is a tensor of its own, and the residual ends with that tensor. From loops
and branches of plain graphs it comes in a list or an optional; reading these variants is expensive.
So each call of a function with that op may hold the handle if it was in flight when the handle was
made, and as long as a variant among its results lives. A call that fails, or returns no variants,
holds no handles. Neither does a run of a v1 session once it has ended.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import secrets
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from hostcall._tf import eager_execution, features, token_registry
from hostcall_runtime import _library, _locks, _patching

T = TypeVar("T")


class ResidualMode(enum.IntEnum):
    """The time at which a compiled program can ask for the gradient of a py_function's call."""

    NO = 0
    # During the run of the program.
    RUN = 1
    # After the run: the handle of the tape residual is a result of the program.
    ESCAPING = 2
    # After the run of a cluster: other clusters of the function ask any number of times.
    CLUSTER = 3


@dataclasses.dataclass(eq=False)
class _FunctionCall:
    """A call of a function from eager code, or a run of a session."""

    # The tokens of the script ops in the function and in all functions that it calls.
    tokens: frozenset[str]
    # The handles that were made while the call was in flight, and have no known tensor.
    handles: set[int] = dataclasses.field(default_factory=set)
    in_flight: bool = True  # whether the call has not ended
    # A reference count: one for the call in flight, and one for each variant among its results. At
    # 0 the call holds no handles.
    reasons: int = 1


class HandleOwners:
    """A table of the calls and tensors that may hold handles; it calls `drop` for a free one."""

    def __init__(self, drop: Callable[[int], None]) -> None:
        self._drop = drop
        self._lock = _locks.new_lock()
        self._in_flight: set[_FunctionCall] = set()
        # For each handle without a known tensor: the calls that may hold it.
        self._possible: dict[int, set[_FunctionCall]] = {}
        self._here = threading.local()

    def __len__(self) -> int:
        return len(self._possible)

    def in_flight(self, token: str) -> frozenset[_FunctionCall]:
        """Return the calls in flight of functions that hold the op with this token."""
        with self._lock:
            return frozenset(self._with_token(token))

    def _with_token(self, token: str) -> Iterator[_FunctionCall]:
        return (call for call in self._in_flight if token in call.tokens)

    def tracks(self, handle: int) -> bool:
        """Return whether something holds a handle, or may get it."""
        return handle in self._possible

    def note(self, handle: int, token: str) -> None:
        """Register a handle that the op with this token makes, and that may leave its program."""
        with self._lock:
            calls = {*self._with_token(token)}
            for call in calls:
                call.handles.add(handle)
            self._possible[handle] = calls

    def forget(self, handle: int) -> None:
        """Stop tracking the calls that may hold a handle."""
        with self._lock:
            calls = self._possible.pop(handle, None)
            for call in calls or ():
                call.handles.discard(handle)

    def may_hold(self, handle: int) -> bool:
        """Return whether a handle may be used again, apart from the program that made it."""
        with self._lock:
            calls = self._possible.get(handle)
            return calls is None or (bool(calls) and not any(call.in_flight for call in calls))

    def holds(self, handle: int) -> bool:
        """Return whether a handle will be dropped at the end of the calls that may hold it."""
        with self._lock:
            return bool(self._possible.get(handle))

    def run(self, tokens: frozenset[str], function: Callable[[], T]) -> T:
        """Run `function`, as a call of script ops with these tokens that may hold handles."""
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
        """Find the handles in the results of a function or an op, before the user gets these."""
        if not self._possible:
            return
        for tensor in tensors:
            if not isinstance(tensor, eager_execution.EagerTensor):
                continue  # symbolic: a function that calls a recorded one is being traced
            if tensor.dtype == tf.int64 and tensor.shape.rank == 0:
                self._tie(tensor)
            elif tensor.dtype == tf.variant:
                self._suspect(tensor)

    def _tie(self, tensor: tf.Tensor) -> None:
        handle = int(tensor)
        if handle in self._possible:
            weakref.finalize(tensor, self._drop, handle).atexit = False
            self.forget(handle)  # last, as Ctrl-C may come in between

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
        for handle in over:  # without the lock: dropping a residual may run the user's code
            self._drop(handle)


@dataclasses.dataclass(eq=False)
class TapeResidual:
    """A recorded call."""

    spec: Any  # the callback
    # The tapes that recorded it, innermost first: one for each order that can be asked for.
    tapes: list[Any]
    inputs: list[Any]  # the input tensors; None for those that have no derivative
    outputs: list[Any]  # the output tensors
    # The time at which a compiled program made the call, by the bindings' clock; else None.
    moment: int | None = None
    until_end: bool = False  # whether it is kept until the end of the program that made the call
    # The calls of functions that were in flight when it began.
    callers: frozenset[_FunctionCall] = frozenset()


_residuals: dict[int, TapeResidual] = eager_execution.tape_cache

# Without hostcall's patches the end of a call is unknown, so only the latest handles are kept.
_MANY_UNTOLD = 256
_untold: collections.deque[int] = collections.deque()


def keep(residual: TapeResidual) -> int:
    """Keep the residual of a call that no compiled program makes, and return its handle."""
    handle = _keep(residual, lambda handle: _note(handle, residual.spec.title))
    callers, residual.callers = residual.callers, frozenset()
    # Ctrl-C ends a program, but not the Python functions that run for it on other threads: nothing
    # gets the handles of these.
    is_late = bool(callers) and not any(call.in_flight for call in callers)
    if is_late or not owners.tracks(handle):
        drop(handle)
    return handle


def _note(handle: int, token: str) -> None:
    owners.note(handle, token)
    if not (_patching.are_installed() and features.RESIDUALS.available):
        _untold.append(handle)
        while len(_untold) > _MANY_UNTOLD:
            drop(_untold.popleft())


def keep_for_call(residual: TapeResidual) -> int:
    """Keep the residual of a call that a partitioned function makes, and return its handle."""
    # The function may ask for the gradient any number of times until it ends.
    residual.until_end = True
    return keep(residual)


def keep_in_program(residual: TapeResidual, mode: ResidualMode) -> int:
    """Keep the residual of a call that a compiled program makes, and return its handle."""
    residual.moment = _bindings().now()
    if mode is ResidualMode.RUN:
        return _keep(residual, _bindings().drop_after_run)
    return keep_for_call(residual) if mode is ResidualMode.CLUSTER else keep(residual)


def _keep(residual: TapeResidual, see_to_its_end: Callable[[int], None]) -> int:
    # A random odd number equals no user's value, and not the 0 of a call that was not recorded.
    handle = secrets.randbits(62) | 1
    # The end comes first: Ctrl-C in between must not leave a residual for ever.
    see_to_its_end(handle)
    _residuals[handle] = residual
    return handle


def _bindings() -> types.ModuleType:
    # Loaded late, because loading registers kernels, which HOSTCALL_DISABLE=1 forbids.
    return _library.load("hostcall._tensorflow")


def drop(handle: int) -> None:
    """Drop a residual, if it is still kept."""
    owners.forget(handle)
    _residuals.pop(handle, None)


owners = HandleOwners(drop)
attach = owners.attach


class _Refusal:
    """An entry that makes TensorFlow's gradient fail for eager calls recorded before `disable`."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError(
            "hostcall: a tape has recorded this call of a Python function, and hostcall was "
            "disabled before the tape was asked for the gradient. Ask it before "
            "hostcall.disable(), or call hostcall.enable() first."
        )


def refuse_eager_calls() -> None:
    """Make TensorFlow's own gradient raise an explanation for the eager calls recorded so far."""
    kept = [r for r in [*_residuals.values()] if isinstance(r, TapeResidual)]
    tokens = {r.spec.title.encode() for r in kept if r.spec.op is None}
    eager_execution.tape_cache.update({token: _Refusal() for token in tokens})


def refuse_no_longer() -> None:
    """Undo `refuse_eager_calls`."""
    for key, kept in [*eager_execution.tape_cache.items()]:
        if isinstance(kept, _Refusal):
            eager_execution.tape_cache.pop(key, None)


def may_be_recorded(tokens: Iterable[str]) -> bool:
    """Return whether calls of py_functions with these tokens may be recorded for a gradient."""
    if not eager_execution.has_no_tapes():
        return True
    entries = map(token_registry.find_present, tokens)
    # The entry of a saved graph is None until its first call.
    return any(entry is None or getattr(entry, "gradient_wanted", False) for entry in entries)


def spec_of(handle: int) -> object:
    """Return the spec whose call kept this residual, or None if it is not kept."""
    residual = _residuals.get(handle)
    return residual.spec if isinstance(residual, TapeResidual) else None


def take(handle: int) -> TapeResidual:
    """Return the residual of a handle, and drop it after its last use; else a RuntimeError."""
    residual = _residuals.get(handle)
    if residual is None:
        raise RuntimeError(
            "The gradient of this call of a Python function cannot be computed: what it needs is "
            "not kept any more, or the call was not recorded. A call in a function without "
            "jit_compile=True keeps it for one gradient; compute all of them at once there, or "
            "compile the function."
        )
    # A program that returns a handle may use it before, any number of times.
    within = residual.moment is not None and _bindings().was_running(residual.moment)
    within |= residual.until_end and owners.holds(handle)
    if not within and not owners.may_hold(handle):
        drop(handle)
    return residual
