"""Arguments and results in memory that processes of one machine share.

A block is a file without a name that lies in memory. The process that makes it owns it; a worker
opens it through `/proc`. Whoever dies, and however: the kernel frees the file when the last process
that has it open or mapped is gone, and there is nothing that anybody would have to clean up.

Large arrays go through shared memory, everything else is pickled. What a function gets is its own:
it may write to it and keep it, and then nobody uses that memory again.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import io
import itertools
import mmap
import os
import pickle
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from hostcall_runtime._executor_providers import Provider
from hostcall_runtime._locks import Executor, Future

# Where arrays begin: as wide as the CPU's vectors and lines of its cache.
_ALIGNMENT = 64

# What a process keeps for later calls: fresh memory costs more than what is written into it.
_MOST_OPEN = 64
_MOST_FREE_BLOCKS = 8
_MOST_FREE_BYTES = 1 << 30
_MOST_ATTACHED = 16

# The process, its descriptor and the file's number, by which a worker knows that it is the file.
Address = tuple[int, int, int]

# Where an array is: its offset, dtype and shape.
Place = tuple[int, Any, tuple[int, ...]]

_libc = ctypes.CDLL(None, use_errno=True)
_map = _libc.mmap
_map.restype = ctypes.c_void_p
_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_unmap = _libc.munmap
_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value

# Of this process, by their descriptors; and those that are free.
_open: set[int] = set()
_free: collections.deque[Block] = collections.deque()

_forks = 0


def _before_fork() -> None:
    global _forks
    _forks += 1


def _after_fork() -> None:
    # They are the parent's, which goes on to use them.
    _free.clear()
    _open.clear()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


class _Mapping:
    """A file in this process's memory, for as long as something refers to this.

    Not Python's, which keeps a descriptor: whoever keeps a thousand arrays would run out of them.
    """

    _address: int | None = None

    def __init__(self, file: int, size: int) -> None:
        self.size = size
        how = mmap.PROT_READ | mmap.PROT_WRITE
        address = _map(None, size, how, mmap.MAP_SHARED, file, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), f"cannot map {size} bytes of shared memory")
        self._address = address

    def memory(self) -> Any:
        """What arrays are made over: an object that lives as long as one of them does."""
        assert self._address is not None
        memory: Any = (ctypes.c_char * self.size).from_address(self._address)
        memory.mapping = self
        return memory

    def __del__(self, unmap: Callable[[int, int], Any] = _unmap) -> None:
        if self._address is not None:
            unmap(self._address, self.size)


class Block:
    """A file, in the process that owns it or in a worker, and the arrays of one call in it.

    Attributes:
      address: by which a worker finds it.
      lent_to: the parcels on their way with it, and those that have not come back as they should:
        nobody knows who still reads it.
    """

    _file = -1

    def __init__(self, file: int, address: Address) -> None:
        self._file = file
        self.address = address
        self._mapping: _Mapping | None = None
        self._memory: Any = None
        self._end = 0
        self.lent_to: set[int] = set()

    @property
    def size(self) -> int:
        """How many bytes of it this process has mapped."""
        return 0 if self._mapping is None else self._mapping.size

    def put(self, array: np.ndarray[Any, Any]) -> Place:
        """Copies an array into the block, after those that are there."""
        place = self.reserve(array.shape, array.dtype)
        self.view(place)[...] = array
        return place

    def reserve(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Place:
        """Makes room for an array, after those that are there."""
        place = self._end, dtype, shape
        self._end += -(-dtype.itemsize * prod(shape) // _ALIGNMENT) * _ALIGNMENT
        if self._end > self.size:
            self._grow()
        return place

    def view(self, place: Place) -> np.ndarray[Any, Any]:
        """The array that is at a place, over the memory of the block."""
        offset, dtype, shape = place
        array: np.ndarray[Any, Any]
        if self._memory is None:
            self._memory = self._mapped().memory()
        array = np.ndarray(shape, dtype, self._memory, offset)
        self._end = max(self._end, offset + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT)
        return array

    def let_go(self) -> Lent:
        """Lets the arrays over the block, those of `view`, live on by themselves."""
        memory, self._memory = self._memory, None
        return Lent(memory)

    def clear(self) -> None:
        """Has the arrays of another call begin at the start."""
        self._end, self._memory = 0, None

    def empty(self) -> None:
        """Gives all memory back, also that which workers have mapped and will not look at."""
        os.ftruncate(self._file, 0)

    def _mapped(self) -> _Mapping:
        size = os.fstat(self._file).st_size
        if self._mapping is None or self._mapping.size < size:  # the other process has let it grow
            self._mapping = _Mapping(self._file, size)
        return self._mapping

    def _grow(self) -> None:
        # By more than is needed: each time the pages of the new mapping have to be found anew.
        size = -(-self._end // mmap.PAGESIZE) * mmap.PAGESIZE
        if os.fstat(self._file).st_size < size:
            os.ftruncate(self._file, size)
        self._memory = None
        self._mapped()

    def __del__(self, close: Callable[[int], None] = os.close, opened: set[int] = _open) -> None:
        if self._file >= 0:
            opened.discard(self._file)
            close(self._file)


class Lent:
    """The arrays over a block that somebody has been given."""

    def __init__(self, memory: Any) -> None:
        self._memory = None if memory is None else weakref.ref(memory)
        self._forks = _forks

    def is_over(self) -> bool:
        """Whether none are left, here or in a process that was forked meanwhile."""
        is_gone = self._memory is None or self._memory() is None
        return is_gone and self._forks == _forks

    def give_back(self, block: Block) -> None:
        """Gives the block back as soon as none are left; it is lost where a child has some."""
        memory = None if self._memory is None else self._memory()
        if memory is not None:
            weakref.finalize(memory, self.give_back, block).atexit = False
        elif self.is_over():
            give_back(block)


def take() -> Block:
    """A block of this process's that nobody else uses.

    Raises:
      OSError: when there are too many.
    """
    with contextlib.suppress(IndexError):
        block = _free.pop()  # the one that the caches know best
        block.clear()
        return block
    if len(_open) >= _MOST_OPEN:
        raise OSError(f"{_MOST_OPEN} blocks are in use")
    file = os.memfd_create("hostcall")
    _open.add(file)
    return Block(file, (os.getpid(), file, os.fstat(file).st_ino))


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array of arbitrary values, in a block of its own unless too many blocks are in use."""
    # Half of them are for what has to be copied.
    if len(_open) - len(_free) >= _MOST_OPEN // 2:
        return np.empty(shape, dtype)
    try:
        block = take()
        array = block.view(block.reserve(shape, dtype))
    except OSError:
        return np.empty(shape, dtype)
    memory: Any = array.base
    memory.block = block
    block.let_go().give_back(block)
    return array


def found_block(array: np.ndarray[Any, Any]) -> tuple[Block, Place] | None:
    """Where an array lies that `empty` has made, or a part of one; None if it is none."""
    memory: Any = array.base
    while isinstance(memory, np.ndarray):
        memory = memory.base
    block = getattr(memory, "block", None)
    if block is None or not array.flags.c_contiguous or block.address[0] != os.getpid():
        return None
    return block, (array.ctypes.data - ctypes.addressof(memory), array.dtype, array.shape)


def give_back(block: Block) -> None:
    """Takes a block that nobody refers to, for another call."""
    if block.lent_to:
        return
    size = block.size + sum(other.size for other in list(_free))
    if len(_free) < _MOST_FREE_BLOCKS and size <= _MOST_FREE_BYTES:
        _free.append(block)
    else:
        block.empty()


_attached: collections.OrderedDict[Address, Block] = collections.OrderedDict()


def attach(address: Address) -> Block:
    """In a worker: the block that another process has.

    Raises:
      OSError: when this process cannot open it.
    """
    block = _attached.pop(address, None)
    if block is None:
        process, descriptor, number = address
        file = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        block = Block(file, address)
        if os.fstat(file).st_ino != number:
            raise FileNotFoundError(f"file {number} of process {process} is gone")
    block.clear()
    _attached[address] = block
    while len(_attached) > _MOST_ATTACHED:
        _attached.popitem(last=False)
    return block


def detach(block: Block) -> None:
    """In a worker: forgets a block, arrays of which are still there."""
    _attached.pop(block.address, None)


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
            return empty_array(shape, dtype)
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
            blocks = [take()]
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
    lent: list[Lent] = []
    reply = Reply()
    if packed is not None:
        try:
            blocks = [attach(address) for address in addresses]
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
        results = blocks[0] if blocks else attach(addresses[0])
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
        detach(block)


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
        found = found_block(value) if self._in_place else None
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
