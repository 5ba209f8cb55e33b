"""Memory that a process shares with the workers of its executors.

A block is a file without a name that lies in memory. The process that makes it owns it; a worker
opens it through `/proc`. Whoever dies, and however: the kernel frees the file when the last process
that has it open or mapped is gone, and there is nothing that anybody would have to clean up.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import mmap
import os
import weakref
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

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


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
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


def found(array: np.ndarray[Any, Any]) -> tuple[Block, Place] | None:
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
