"""Calls on their way to processes of this machine, and what they return on its way back.

Large arrays go through shared memory, everything else is pickled. What a function gets is its own:
it may write to it and keep it, and then nobody uses that memory again.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import itertools
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hostcall_runtime import _shared_blocks
from hostcall_runtime._executor_providers import Provider
from hostcall_runtime._executor_types import Executor, Future
from hostcall_runtime._shared_blocks import Address, Block, Place

# From how many bytes on an array goes through shared memory.
LARGE = 1 << 18

_numbers = itertools.count()

# Whether workers can open the memory of this process, as far as it is known.
_is_reachable = True


def takes_parcels(executor: Executor) -> bool:
    """Whether the executor's workers are processes of this machine."""
    if isinstance(executor, concurrent.futures.ProcessPoolExecutor):
        return True
    return "loky" in type(executor).__module__.split(".")


def empty_for(provider: Provider) -> Callable[..., np.ndarray[Any, Any]]:
    """What makes arrays, of a shape and a dtype, for arguments of calls on an executor.

    Where these go through shared memory the arrays lie there, so that nothing is copied again. They
    are for one call each, whose function may write to them.
    """

    def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        if _is_reachable and takes_parcels(provider.present):
            return _shared_blocks.empty(shape, dtype)
        return np.empty(shape, dtype)

    return empty


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
        self._number = next(_numbers)
        self._blocks: list[Block] = []  # the first is its own; arguments lie in the others
        self.content: tuple[Any, ...] = (function, *args)
        packed = None
        if not _is_reachable:
            return
        try:
            blocks = [_shared_blocks.take()]
            if _holds_large(args):
                packed = _pack(args, blocks, in_place=True)
                blocks[0].let_go()
        except Exception:  # the executor may know how to send it, or says why it does not
            return
        self._blocks = blocks
        for block in blocks:
            block.lent_to.add(self._number)
        how = (tuple(block.address for block in blocks), timed)
        self.content = (_run, how, packed, function, *(args if packed is None else ()))

    def opened(self, reply: Any, lends: bool) -> Any:
        """What the function has returned.

        Args:
          reply: what the executor has returned.
          lends: whether arrays may lie in shared memory, for somebody who soon drops them.
        """
        blocks, self._blocks = self._blocks, []
        returned = value(reply)
        if not blocks:
            return returned
        if isinstance(reply, Reply):
            if reply.packed is not None:
                returned = _unpack(reply.packed, blocks, copies=not lends)
            if reply.is_kept:
                return returned
        for block in blocks:
            block.lent_to.discard(self._number)
        blocks[0].let_go().give_back(blocks[0])
        return returned

    def keep_for(self, future: Future) -> None:
        """Keeps what a call that nobody waits for any more may still read."""
        blocks = self._blocks
        future.add_done_callback(lambda _: blocks)


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
    how: tuple[tuple[Address, ...], bool],
    packed: bytes | None,
    function: Callable[..., Any],
    *args: Any,
) -> Any:
    """In the worker: calls the function.

    Args:
      how: the blocks, and whether anybody wants to know the times. The results' is the first.
      packed: the arguments, with the large arrays in the blocks.
      function: the function.
      *args: the arguments, where they are not packed.
    """
    addresses, timed = how
    blocks: list[Block] = []
    lent: list[_shared_blocks.Lent] = []
    reply = Reply()
    if packed is not None:
        try:
            blocks = [_shared_blocks.attach(address) for address in addresses]
        except OSError:
            return Reply(is_uncalled=True)
        args = _unpack(packed, blocks)
        lent = [block.let_go() for block in blocks]
    try:
        reply.began = time.monotonic()
        returned = function(*args)
        reply.ended = time.monotonic()
    except BaseException:
        _detach(blocks)  # the traceback refers to the arguments
        raise
    del args
    if packed is None and not _holds_large(returned):
        if not timed:
            return returned
        reply.value = returned
        return reply
    try:
        results = blocks[0] if blocks else _shared_blocks.attach(addresses[0])
        reply.packed = _pack(returned, [results], in_place=False)
        results.let_go()
    except Exception:  # the executor may know how to send it, or says why it does not
        reply.value = returned
    del returned
    reply.is_kept = not all(each.is_over() for each in lent)
    if reply.is_kept:
        _detach(blocks)
    return reply


def _detach(blocks: Iterable[Block]) -> None:
    for block in blocks:
        _shared_blocks.detach(block)


def _holds_large(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_large, value))
    if isinstance(value, dict):
        return any(map(_holds_large, value.values()))
    return _is_large(value)


def _is_large(value: Any) -> bool:
    return type(value) is np.ndarray and value.nbytes >= LARGE and not value.dtype.hasobject


def _pack(value: Any, blocks: list[Block], in_place: bool) -> bytes:
    """A value as bytes, with the large arrays in the first block.

    Args:
      value: a structure of arrays.
      blocks: where they are put.
      in_place: whether arrays that lie in blocks of this process stay there; these are appended.
    """
    file = io.BytesIO()
    _Pickler(file, blocks, in_place).dump(value)
    return file.getvalue()


def _unpack(packed: bytes, blocks: Sequence[Block], copies: bool = False) -> Any:
    return _Unpickler(io.BytesIO(packed), blocks, copies).load()


# Which block an array is in, and where in that.
_Where = tuple[int, Place]


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, blocks: list[Block], in_place: bool) -> None:
        super().__init__(file, protocol=5)
        self._blocks = blocks
        self._in_place = in_place

    def persistent_id(self, value: Any) -> _Where | None:
        if not _is_large(value):
            return None
        found = _shared_blocks.found(value) if self._in_place else None
        if found is None:
            return 0, self._blocks[0].put(value)
        block, place = found
        if block not in self._blocks:
            self._blocks.append(block)
        return self._blocks.index(block), place


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, blocks: Sequence[Block], copies: bool) -> None:
        super().__init__(file)
        self._blocks = blocks
        self._copies = copies

    def persistent_load(self, where: _Where) -> np.ndarray[Any, Any]:
        number, place = where
        array = self._blocks[number].view(place)
        return array.copy() if self._copies else array
