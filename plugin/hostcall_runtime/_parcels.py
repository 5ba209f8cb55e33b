"""Calls on their way to processes of this machine, and what they return on its way back.

Large arrays go through shared memory, everything else is pickled. What a function gets is its own:
it may write to it and keep it, and then nobody uses that memory again.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hostcall_runtime import _shared_blocks
from hostcall_runtime._executor_types import Executor, Future
from hostcall_runtime._shared_blocks import Address, Block, Place

# From how many bytes on an array goes through shared memory.
LARGE = 1 << 18

# Whether workers can open the memory of this process, as far as it is known.
_is_reachable = True


def takes_parcels(executor: Executor) -> bool:
    """Whether the executor's workers are processes of this machine."""
    if isinstance(executor, concurrent.futures.ProcessPoolExecutor):
        return True
    return "loky" in type(executor).__module__.split(".")


@dataclasses.dataclass(slots=True)
class Reply:
    """What a worker answers.

    Attributes:
      value: what the function has returned, where it is not packed.
      packed: what it has returned, as bytes, with the large arrays in the block.
      is_kept: whether something in the worker still refers to the memory of the block.
      is_uncalled: whether the worker could not open the block, and has not called the function.
      began, ended: when the function was called and has returned, by the clock of this machine.
    """

    value: Any = None
    packed: bytes | None = None
    is_kept: bool = False
    is_uncalled: bool = False
    began: float = 0.0
    ended: float = 0.0


class Parcel:
    """A call on its way.

    Attributes:
      content: what the executor is to call, and with which arguments.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], timed: bool) -> None:
        self._block: Block | None = None
        self.content: tuple[Any, ...] = (function, *args)
        packed = None
        if _is_reachable:
            try:
                self._block = _shared_blocks.take()
                if _holds_large(args):
                    packed = _pack(args, self._block)
                    self._block.let_go()
            except Exception:  # the executor may know how to send it, or says why it does not
                self._block = None
        if self._block is not None:
            how = (self._block.address, timed)
            self.content = (_run, how, packed, function, *(args if packed is None else ()))

    def opened(self, reply: Any, lends: bool) -> Any:
        """What the function has returned.

        Args:
          reply: what the executor has returned.
          lends: whether arrays may lie in shared memory, for somebody who soon drops them.
        """
        block, self._block = self._block, None
        returned = value(reply)
        if block is None:
            return returned
        if isinstance(reply, Reply):
            if reply.packed is not None:
                returned = _unpack(reply.packed, block, copies=not lends)
            if reply.is_kept:
                return returned
        block.let_go().give_back(block)
        return returned

    def keep_for(self, future: Future) -> None:
        """Keeps what a call that nobody waits for any more may still read."""
        block = self._block
        future.add_done_callback(lambda _: block)


def is_uncalled(reply: Any) -> bool:
    """Whether the worker could not call the function; no call goes through shared memory then."""
    global _is_reachable
    if isinstance(reply, Reply) and reply.is_uncalled:
        _is_reachable = False
        return True
    return False


def times(reply: Any) -> tuple[float, float]:
    """When the function was called and has returned, by the worker's clock; zeros if not known."""
    return (reply.began, reply.ended) if isinstance(reply, Reply) else (0.0, 0.0)


def value(reply: Any) -> Any:
    """What the function has returned, where it did not go through a parcel."""
    return reply.value if isinstance(reply, Reply) else reply


def timed(function: Callable[..., Any], *args: Any) -> Reply:
    """In the worker: calls the function, and tells how long that took."""
    began = time.monotonic()
    returned = function(*args)
    return Reply(returned, began=began, ended=time.monotonic())


def _run(
    how: tuple[Address, bool], packed: bytes | None, function: Callable[..., Any], *args: Any
) -> Any:
    """In the worker: calls the function.

    Args:
      how: the block, and whether anybody wants to know the times.
      packed: the arguments, with the large arrays in the block.
      function: the function.
      *args: the arguments, where they are not packed.
    """
    address, timed = how
    block: Block | None = None
    lent: _shared_blocks.Lent | None = None
    reply = Reply()
    if packed is not None:
        try:
            block = _shared_blocks.attach(address)
        except OSError:
            return Reply(is_uncalled=True)
        args = _unpack(packed, block)
        lent = block.let_go()
    try:
        reply.began = time.monotonic()
        returned = function(*args)
        reply.ended = time.monotonic()
    except BaseException:
        if block is not None:
            _shared_blocks.detach(block)  # the traceback refers to the arguments
        raise
    del args
    if packed is None and not _holds_large(returned):
        if not timed:
            return returned
        reply.value = returned
        return reply
    try:
        block = block or _shared_blocks.attach(address)
        reply.packed = _pack(returned, block)
        block.let_go()
    except Exception:  # the executor may know how to send it, or says why it does not
        reply.value = returned
    del returned
    reply.is_kept = lent is not None and not lent.is_over()
    if reply.is_kept and block is not None:
        _shared_blocks.detach(block)
    return reply


def _holds_large(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_large, value))
    if isinstance(value, dict):
        return any(map(_holds_large, value.values()))
    return _is_large(value)


def _is_large(value: Any) -> bool:
    return type(value) is np.ndarray and value.nbytes >= LARGE and not value.dtype.hasobject


def _pack(value: Any, block: Block) -> bytes:
    file = io.BytesIO()
    _Pickler(file, block).dump(value)
    return file.getvalue()


def _unpack(packed: bytes, block: Block, copies: bool = False) -> Any:
    return _Unpickler(io.BytesIO(packed), block, copies).load()


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, block: Block) -> None:
        super().__init__(file, protocol=5)
        self._block = block

    def persistent_id(self, value: Any) -> Place | None:
        return self._block.put(value) if _is_large(value) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, block: Block, copies: bool) -> None:
        super().__init__(file)
        self._block = block
        self._copies = copies

    def persistent_load(self, place: Place) -> np.ndarray[Any, Any]:
        array = self._block.view(place)
        return array.copy() if self._copies else array
