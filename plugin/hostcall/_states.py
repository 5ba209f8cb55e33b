"""What a recorded call keeps for its gradient, under a number, and for how long.

The number is a hidden result of the op, and an input of the gradient op. So it goes wherever
TensorFlow's autodiff takes the values of the forward pass: through loops, branches and functions,
and into the tapes that the user holds.
"""

from __future__ import annotations

import collections
import dataclasses
import secrets
import threading
import weakref
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from hostcall import _library
from hostcall import _tf_private as private


@dataclasses.dataclass(eq=False)
class State:
    """A recorded call.

    Attributes:
      spec: the callback.
      tapes: the tapes that recorded it, innermost first: one for each order of derivative that the
        program can ask for.
      inputs: the tensors that went in; None for those that have no derivative.
      outputs: the tensors that came out.
      owned: whether something else ends its life; otherwise its first gradient does.
    """

    spec: Any
    tapes: list[Any]
    inputs: list[Any]
    outputs: list[Any]
    owned: bool = False


_lock = threading.Lock()
_states: dict[int, State] = private.tape_cache
# States that end with the programs that run now: (moment, number), in the order of the moments.
_running: collections.deque[tuple[int, int]] = collections.deque()
# Numbers that the program hands out as results, and that no tensor has been seen to hold yet.
_escaping: set[int] = set()


def keep(state: State, escapes: bool = True) -> int:
    """Keeps a state and returns its number, which cannot be mistaken for a user's value.

    Args:
      state: the state.
      escapes: whether the gradient may be asked for after the compiled program has ended that the
        call is in.
    """
    number = secrets.randbits(62) | 1  # never 0, which stands for a call that was not recorded
    with _lock:
        _states[number] = state
        if escapes:
            _escaping.add(number)
        else:
            state.owned = True
            # Not loaded at import: that registers kernels, which HOSTCALL_DISABLE=1 forbids.
            _running.append((_library.load("_tensorflow").note_kept(), number))
    return number


def adopt(tensors: Iterable[Any]) -> None:
    """Ties states to the EagerTensors that hold their numbers: nobody else can ask for them.

    Args:
      tensors: what a function or an op has returned.
    """
    if not _escaping:
        return
    for tensor in tensors:
        if isinstance(tensor, tf.Tensor) and tensor.dtype == tf.int64 and tensor.shape.rank == 0:
            number = int(tensor)
            if number in _escaping:
                _escaping.discard(number)
                _states[number].owned = True
                weakref.finalize(tensor, drop, number).atexit = False


def drop(number: int) -> None:
    """Forgets a state, if it is still kept."""
    _escaping.discard(number)
    _states.pop(number, None)


def drop_before(moment: int) -> bool:
    """Forgets the states that only programs which have ended could ask for.

    Args:
      moment: before it nothing runs any more.

    Returns:
      Whether states of running programs are left.
    """
    with _lock:
        over = []
        while _running and _running[0][0] < moment:
            over.append(_running.popleft()[1])
        left = bool(_running)
    for number in over:
        drop(number)
    return left


def spec_of(number: int) -> Any:
    """The spec whose call kept this state, None when it is not kept."""
    state = _states.get(number)
    return state.spec if isinstance(state, State) else None


def take(number: int) -> State:
    """The state of that number; one that nobody owns is not kept any longer.

    Raises:
      RuntimeError: when it is not kept.
    """
    state = _states.get(number)
    if state is None:
        raise RuntimeError(
            "The gradient of this call of a Python function cannot be computed: what it needs is "
            "not kept any more, or the call was not recorded. A call in a function without "
            "jit_compile=True keeps it for one gradient; compute all of them at once there, or "
            "compile the function."
        )
    if not state.owned:
        drop(number)
    return state
