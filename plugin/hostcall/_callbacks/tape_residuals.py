"""What a recorded call keeps for its gradient, under a handle, and for how long.

The handle is a hidden result of the op, and an input of the gradient op. So it goes wherever
TensorFlow's autodiff takes the values of the forward pass: through loops, branches and functions,
and into the tapes that the user holds.
"""

from __future__ import annotations

import collections
import dataclasses
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hostcall._callbacks.owners import HandleOwners
from hostcall._callbacks.recording import Recording
from hostcall._tf import features, gradient_tapes, token_registry
from hostcall_runtime import _library, _patching


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


_residuals: dict[int, TapeResidual] = gradient_tapes.tape_cache

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
    gradient_tapes.tape_cache.update({token: _Refusal() for token in tokens})


def refuse_no_longer() -> None:
    """Undoes `refuse_eager_calls`."""
    for key, kept in [*gradient_tapes.tape_cache.items()]:
        if isinstance(kept, _Refusal):
            gradient_tapes.tape_cache.pop(key, None)


def may_be_recorded(tokens: Iterable[str]) -> bool:
    """Whether calls of py_functions with these tokens may be recorded in a call of a function.

    Their gradient is asked for already, or a tape of the caller's may ask for it in the call.
    """
    if not gradient_tapes.has_no_tapes():
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
