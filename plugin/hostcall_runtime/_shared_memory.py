"""Arguments and results in memory that processes of one machine share.

Large arrays go through shared memory; everything else is pickled. A function owns its arguments: it
may write to them and keep them. Memory that it keeps is not used for other calls.

A block is a file without a name that lies in memory. The process that makes it owns it; a worker
opens it through `/proc`. The kernel frees the file when the last process that has it open or mapped
is gone. So nothing is left to clean up, whichever process dies, and however.
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

from hostcall_runtime import _trees
from hostcall_runtime._locks import Executor, Future

_ALIGNMENT = 64  # the alignment of arrays: the width of the CPU's vectors and of its cache lines

# Limits of what a process keeps for later calls: fresh memory costs more than writing to it.
_MOST_OPEN = 64
_MOST_FREE_BLOCKS = 8
_MOST_FREE_BYTES = 1 << 30
_MOST_ATTACHED = 16

# The process, its descriptor, and the inode number, by which a worker recognizes the file.
Address = tuple[int, int, int]

# The place of an array in a block: its offset, dtype and shape.
Place = tuple[int, Any, tuple[int, ...]]

_libc = ctypes.CDLL(None, use_errno=True)
_map = _libc.mmap
_map.restype = ctypes.c_void_p
_map.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_unmap = _libc.munmap
_unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value

# The descriptors of this process's own blocks, and the blocks that are free.
_open: set[int] = set()
_free: collections.deque[SharedBlock] = collections.deque()

_forks = 0


def _before_fork() -> None:
    global _forks
    _forks += 1


def _after_fork() -> None:
    # The blocks are the parent's, which goes on using them.
    _free.clear()
    _open.clear()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


class _Mapping:
    """A file mapped into memory while this lives; Python's own mappings keep a descriptor each."""

    _address: int | None = None

    def __init__(self, file: int, size: int) -> None:
        self.size = size
        how = mmap.PROT_READ | mmap.PROT_WRITE
        address = _map(None, size, how, mmap.MAP_SHARED, file, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), f"cannot map {size} bytes of shared memory")
        self._address = address

    def memory(self) -> object:
        """Return an object to make arrays over, which lives as long as one of them does."""
        assert self._address is not None
        memory: Any = (ctypes.c_char * self.size).from_address(self._address)
        memory.mapping = self
        return memory

    def __del__(self, unmap: Callable[[int, int], Any] = _unmap) -> None:
        if self._address is not None:
            unmap(self._address, self.size)


class SharedBlock:
    """A file, in the process that owns it or in a worker, and the arrays of one call in it."""

    _file = -1

    def __init__(self, file: int, address: Address) -> None:
        self._file = file
        self.address = address  # by which workers find it
        self._mapping: _Mapping | None = None
        self._memory: Any = None
        self._end = 0
        # The numbers of the parcels on their way with it, and of those that did not come back
        # properly: a worker may still read the block.
        self.lent_to: set[int] = set()

    @property
    def size(self) -> int:
        """The number of its bytes that this process has mapped."""
        return 0 if self._mapping is None else self._mapping.size

    def put(self, array: np.ndarray[Any, Any]) -> Place:
        """Copy an array into the block, after the arrays that are there."""
        place = self.reserve(array.shape, array.dtype)
        self.view(place)[...] = array
        return place

    def reserve(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Place:
        """Make room for an array, after the arrays that are there."""
        place = self._end, dtype, shape
        self._end += -(-dtype.itemsize * prod(shape) // _ALIGNMENT) * _ALIGNMENT
        if self._end > self.size:
            self._grow()
        return place

    def view(self, place: Place) -> np.ndarray[Any, Any]:
        """Return the array at a place, over the memory of the block."""
        offset, dtype, shape = place
        array: np.ndarray[Any, Any]
        if self._memory is None:
            self._memory = self._mapped().memory()
        array = np.ndarray(shape, dtype, self._memory, offset)
        self._end = max(self._end, offset + -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT)
        return array

    def let_go(self) -> Lent:
        """Let the arrays that `view` has returned live on without the block's reference."""
        memory, self._memory = self._memory, None
        return Lent(memory)

    def clear(self) -> None:
        """Make the arrays of another call begin at the start."""
        self._end, self._memory = 0, None

    def empty(self) -> None:
        """Free all memory, including memory that workers have mapped and will not read."""
        os.ftruncate(self._file, 0)

    def _mapped(self) -> _Mapping:
        size = os.fstat(self._file).st_size
        if self._mapping is None or self._mapping.size < size:  # the other process has enlarged it
            self._mapping = _Mapping(self._file, size)
        return self._mapping

    def _grow(self) -> None:
        # By whole pages, so less often: the pages of each new mapping have to be found again.
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
    """The arrays over a block that a function or a caller has been given."""

    def __init__(self, memory: Any) -> None:
        self._memory = None if memory is None else weakref.ref(memory)
        self._forks = _forks

    def is_over(self) -> bool:
        """Return whether no array is left, here or in a process that was forked meanwhile."""
        is_gone = self._memory is None or self._memory() is None
        return is_gone and self._forks == _forks

    def give_back(self, block: SharedBlock) -> None:
        """Give the block back once no array is left; lose it if a forked child has some."""
        memory = None if self._memory is None else self._memory()
        if memory is not None:
            weakref.finalize(memory, self.give_back, block).atexit = False
        elif self.is_over():
            give_back(block)


def take() -> SharedBlock:
    """Return a block of this process that is not in use; raise an OSError if too many are."""
    with contextlib.suppress(IndexError):
        block = _free.pop()  # the latest one, most likely still in the CPU's caches
        block.clear()
        return block
    if len(_open) >= _MOST_OPEN:
        raise OSError(f"{_MOST_OPEN} blocks are in use")
    file = os.memfd_create("hostcall")
    _open.add(file)
    return SharedBlock(file, (os.getpid(), file, os.fstat(file).st_ino))


def empty_argument(
    executor: Executor, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """Return an arbitrary array for one call on an executor, in shared memory where it can lie."""
    too_many = len(_open) - len(_free) >= _MOST_OPEN // 2
    if too_many or not _is_reachable or not takes_parcels(executor):
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


def found_block(array: np.ndarray[Any, Any]) -> tuple[SharedBlock, Place] | None:
    """Return the block and place of an array of `empty_argument`, or of a part; else None."""
    memory: Any = array.base
    while isinstance(memory, np.ndarray):
        memory = memory.base
    block = getattr(memory, "block", None)
    if block is None or not array.flags.c_contiguous or block.address[0] != os.getpid():
        return None
    return block, (array.ctypes.data - ctypes.addressof(memory), array.dtype, array.shape)


def give_back(block: SharedBlock) -> None:
    """Keep a block without references for another call, or free its memory."""
    if block.lent_to:
        return
    size = block.size + sum(other.size for other in list(_free))
    if len(_free) < _MOST_FREE_BLOCKS and size <= _MOST_FREE_BYTES:
        _free.append(block)
    else:
        block.empty()


_attached: collections.OrderedDict[Address, SharedBlock] = collections.OrderedDict()


def attach(address: Address) -> SharedBlock:
    """Open, in a worker, the block of another process; raise an OSError if it cannot be opened."""
    block = _attached.pop(address, None)
    if block is None:
        process, descriptor, number = address
        file = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        block = SharedBlock(file, address)
        if os.fstat(file).st_ino != number:
            raise FileNotFoundError(f"file {number} of process {process} is gone")
    block.clear()
    _attached[address] = block
    while len(_attached) > _MOST_ATTACHED:
        _attached.popitem(last=False)
    return block


LARGE = 1 << 18  # the size in bytes from which on an array goes through shared memory
_numbers = itertools.count()

# Whether workers can open the memory of this process: assumed until one of them fails.
_is_reachable = True


def takes_parcels(executor: Executor) -> bool:
    """Return whether the executor's workers are processes of this machine."""
    if isinstance(executor, concurrent.futures.ProcessPoolExecutor):
        return True
    return "loky" in type(executor).__module__.split(".")


@dataclasses.dataclass(slots=True)
class Reply:
    """The reply of a worker: the function's result, or bytes if large arrays lie in the block."""

    value: Any = None
    packed: bytes | None = None
    is_kept: bool = False  # whether something in the worker still refers to the block's memory
    is_uncalled: bool = False  # whether the worker cannot open the block
    began: float = 0.0  # both times are by the clock of this machine
    ended: float = 0.0


class Parcel:
    """A call on its way to a worker; the content is what the executor is to call."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], timed: bool) -> None:
        self._number = next(_numbers)
        # The first is the parcel's own; arguments lie in the others.
        self._blocks: list[SharedBlock] = []
        self.content: tuple[Any, ...] = (function, *args)
        packed = None
        if not _is_reachable:
            return
        try:
            blocks = [take()]
            if _holds_large(args):
                packed = _pack(args, blocks, in_place=True)
                blocks[0].let_go()
        except Exception:  # the executor may know how to send it, or says why not
            return
        self._blocks = blocks
        for block in blocks:
            block.lent_to.add(self._number)
        how = (tuple(block.address for block in blocks), timed)
        self.content = (_run, how, packed, function, *(args if packed is None else ()))

    def opened(self, reply: Reply, lends: bool) -> object:
        """Return the function's result; with `lends`, its arrays may lie in shared memory."""
        blocks, self._blocks = self._blocks, []
        returned = reply.value
        if not blocks:
            return returned
        if reply.packed is not None:
            returned = _unpack(reply.packed, blocks, copies=not lends)
        if reply.is_kept:
            return returned
        for block in blocks:
            block.lent_to.discard(self._number)
        blocks[0].let_go().give_back(blocks[0])
        return returned

    def keep_for(self, future: Future) -> None:
        """Keep the blocks of an abandoned call until its future ends: it may still read them."""
        blocks = self._blocks
        future.add_done_callback(lambda _: blocks)


def is_uncalled(reply: Reply) -> bool:
    """Return whether the worker could not open the block; if so, stop using shared memory."""
    global _is_reachable
    if reply.is_uncalled:
        _is_reachable = False
    return reply.is_uncalled


def timed(function: Callable[..., Any], *args: Any) -> Reply:
    """Call the function, in the worker, and measure the time."""
    began = time.monotonic()
    returned = function(*args)
    return Reply(returned, began=began, ended=time.monotonic())


def _run(
    how: tuple[tuple[Address, ...], bool],
    packed: bytes | None,
    function: Callable[..., Any],
    *args: Any,
) -> object:
    """Call the function, in the worker."""
    # Arguments are packed if large arrays among them are in the blocks. The first is for results.
    addresses, timed = how
    blocks: list[SharedBlock] = []
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
        _forget(blocks)  # the traceback refers to the arguments
        raise
    del args
    if packed is None and not _holds_large(returned):
        reply.value = returned
        return reply if timed else returned
    try:
        results = blocks[0] if blocks else attach(addresses[0])
        reply.packed = _pack(returned, [results], in_place=False)
        results.let_go()
    except Exception:  # the executor may know how to send it, or says why not
        reply.value = returned
    del returned
    reply.is_kept = not all(each.is_over() for each in lent)
    if reply.is_kept:
        _forget(blocks)
    return reply


def _forget(blocks: Iterable[SharedBlock]) -> None:
    """Forget, in a worker, blocks whose arrays are still in use."""
    for block in blocks:
        _attached.pop(block.address, None)


def _holds_large(value: object) -> bool:
    return any(map(_is_large, _trees.leaves(value)))


def _is_large(value: object) -> bool:
    return type(value) is np.ndarray and value.nbytes >= LARGE and not value.dtype.hasobject


def _pack(value: object, blocks: list[SharedBlock], in_place: bool) -> bytes:
    """Pickle a value, its large arrays in the first block, or `in_place` in others, appended."""
    file = io.BytesIO()
    _Pickler(file, blocks, in_place).dump(value)
    return file.getvalue()


def _unpack(packed: bytes, blocks: Sequence[SharedBlock], copies: bool = False) -> Any:
    return _Unpickler(io.BytesIO(packed), blocks, copies).load()


_Where = tuple[int, Place]  # the index of an array's block, and the array's place in it


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, blocks: list[SharedBlock], in_place: bool) -> None:
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
    def __init__(self, file: io.BytesIO, blocks: Sequence[SharedBlock], copies: bool) -> None:
        super().__init__(file)
        self._blocks = blocks
        self._copies = copies

    def persistent_load(self, where: _Where) -> np.ndarray[Any, Any]:
        number, place = where
        array = self._blocks[number].view(place)
        return array.copy() if self._copies else array
