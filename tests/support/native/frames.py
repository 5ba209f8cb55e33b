"""Calls of the handler with call frames made by hand, without XLA and without TensorFlow."""

import contextlib
import dataclasses
import functools
import importlib
import math
import os
import random
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Self

import numpy as np
import pytest

from tests.support.native.modules import BUILD, ROOT, load_file, module_file

# FFI element types that have a meaning of their own here.
INT8, INT32, INT64, TOKEN, INT4 = 2, 4, 5, 17, 21

# The attributes that are pairs of numbers.
PAIRS = ("dynamic_operands", "dynamic_results", "sub_byte_operands", "sub_byte_results")

Shape = Sequence[int]
# Name, element type, whether it is a scalar, values.
Attribute = tuple[str, int, bool, Sequence[int]]


def _describe(error: BaseException, target: object) -> tuple[int, str]:
    """Describe an error as `hostcall_runtime` does, but without keeping the exception."""
    text = "\n".join(traceback.format_exception(error))
    return 3 if isinstance(error, ValueError | TypeError) else 2, text


def _load_runtime() -> ModuleType:
    if "HOSTCALL_BUILD" in os.environ:
        load_file("hostcall_runtime._runtime", module_file(BUILD, "csrc/runtime/_runtime"))
    from hostcall_runtime import prepared

    module = prepared()
    if "HOSTCALL_BUILD" in os.environ:
        module.set_error_describer(_describe)
    return module


runtime = _load_runtime()
native = load_file("_frames", module_file(BUILD, "tests/cpp/_frames"))
handler = runtime.handlers()["hostcall"]
runs = importlib.import_module("hostcall_runtime._runs")
_prepared = importlib.import_module("hostcall_runtime._registry")
# The driver of a fake GPU. Code that follows an address of its memory crashes, and it copies only
# while a thread waits.
DRIVER = BUILD / "tests" / "cpp" / "cuda" / "libfake_cuda.so"

DTYPES = {code: np.dtype(dtype) for code, dtype, _ in _prepared.DTYPES}
QUANTIZED = {code for code, _, _ in _prepared.QUANTIZED_DTYPES}
# From 50 on there are codes of ours, which XLA never passes.
UNKNOWN_DTYPES = sorted(set(range(64)) - set(DTYPES) - {TOKEN, *QUANTIZED})
CODES = {dtype: code for code, dtype in DTYPES.items()}


@dataclasses.dataclass(eq=False)
class Target:
    """A target that the runtime calls; registered for as long as it lives."""

    host_function: Callable[..., Any]
    title: str = "callback"
    description: str = "a test"
    node: str = ""
    definition: Callable[[], list[str]] = list
    to_arrays: Callable[[Any], Any] | None = None
    empty: Callable[[Shape, Any], Any] | None = None
    convention: Mapping[str, bool] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.id: int = runtime.register(self, f"{id(self)}", **self.convention)
        weakref.finalize(self, runtime.unregister, self.id).atexit = False


@dataclasses.dataclass
class Buffer:
    """An operand, or a result that is to be written."""

    code: int
    dims: Shape
    data: bytes

    @classmethod
    def of(cls, array: Any) -> Self:
        array = np.asarray(array)
        return cls(CODES[array.dtype], array.shape, array.tobytes())

    @classmethod
    def result(cls, dims: Shape, dtype: Any = np.float32) -> Self:
        dtype = np.dtype(dtype)
        return cls(CODES[dtype], dims, bytes(int(np.prod(dims)) * dtype.itemsize))


TOKEN_BUFFER = Buffer(TOKEN, [], b"")


@dataclasses.dataclass
class Outcome:
    """The outcome of a call: a status code, a message, and the bytes in memory of each result."""

    code: int
    message: str
    data: list[bytes]
    results: list[Buffer]

    def array(self, index: int = 0) -> np.ndarray:
        result = self.results[index]
        return np.frombuffer(self.data[index], DTYPES[result.code]).reshape(result.dims)

    def assert_returned(self, *expected: Any) -> None:
        """All went well, and these are the first results."""
        assert (self.code, self.message) == (0, "")
        for index, array in enumerate(expected):
            np.testing.assert_array_equal(self.array(index), array)

    def assert_fails_untouched(self, code: int, *texts: str) -> None:
        """It fails so, and no byte of a result was written."""
        assert_fails(self, code, *texts)
        assert self.untouched

    @property
    def untouched(self) -> bool:
        return all(set(data) <= {0xA5} for data in self.data)


def call(
    target: Target | int,
    operands: Sequence[Buffer] = (),
    results: Sequence[Buffer] = (),
    *,
    foreign: bool = False,
    token: bool = False,
    stage: int = 3,
    said: Sequence[Attribute] | None = None,
    entry: Any = None,
    on_device: bool = False,
    run: int = -1,
    **pairs: Sequence[int],
) -> Outcome:
    """Calls the handler.

    A `foreign` thread is one that Python does not know. A `token` comes last. `said` are all
    attributes, where others are wanted than those of `pairs`; `entry` is the handler, where it is
    not one of callbacks. Buffers `on_device` are in memory of DRIVER. `run` is the program's run.
    """
    if entry is None:
        entry = runtime.cuda_handler() if on_device else handler
    if said is None:
        said = attributes(target, **pairs)
    last = [TOKEN_BUFFER] if token else []
    frame = _frame([*operands, *last], [*results, *last], said)
    code, message, data = native.call(entry, *frame, foreign, stage, on_device, run)
    return Outcome(code, message.decode(), data[: len(results)], list(results))


call_on_gpu = functools.partial(call, on_device=True)


@contextlib.contextmanager
def fake_gpu() -> Iterator[None]:
    """Has DRIVER be the driver, and looks at the end whether something is left on its device."""
    runtime.load_cuda_driver(str(DRIVER))
    yield
    native.fail_cuda("", count=0)
    left = native.abandoned_copies(), native.device_allocations(), native.live_objects()
    assert left == (0, 0, 0), left


Call = Callable[..., Outcome]


@pytest.fixture(params=["host", "gpu"])
def call_there(request: pytest.FixtureRequest) -> Iterator[Call]:
    """Calls from a program on the CPU, and from one on a GPU that there is not."""
    if request.param == "host":
        yield call
        return
    with fake_gpu():
        yield call_on_gpu


def repeat(target: Target, results: Sequence[Buffer] = ()) -> None:
    """Calls the handler on a foreign thread, again and again until the process exits."""
    native.repeat(handler, *_frame([], results, attributes(target)))


def call_at_exit(target: Target) -> None:
    """Calls the handler when the interpreter is gone, and prints what comes of it."""
    native.call_at_exit(handler, *_frame([], [], attributes(target)))


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a process of its own, without TensorFlow."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "HOSTCALL_BUILD": str(BUILD), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def random_array(rng: random.Random, shape: Shape, dtype: np.dtype[Any]) -> np.ndarray:
    """An array of any bits that its dtype can have."""
    size = math.prod(shape)
    bits = np.frombuffer(rng.randbytes(size * dtype.itemsize), np.uint8)
    if dtype == np.bool_:
        bits = np.bitwise_and(bits, 1, dtype=np.uint8)
    elif dtype.name == "uint4":
        bits = np.bitwise_and(bits, 15, dtype=np.uint8)
    elif dtype.name == "int4":
        bits = (bits.view(np.int8) >> 4).view(np.uint8)
    return bits.view(dtype).reshape(shape)


def attributes(
    target: Target | int, scalars: Mapping[str, int] | None = None, /, **arrays: Sequence[int]
) -> list[Attribute]:
    """All attributes of a call, in the order that XLA has them in."""
    numbers = {"callback": target if isinstance(target, int) else target.id, **(scalars or {})}
    lists: dict[str, Sequence[int]] = {**dict.fromkeys(PAIRS, ()), **arrays}
    said: list[Attribute] = [(name, INT64, True, [number]) for name, number in numbers.items()]
    said += [(name, INT64, False, list(values)) for name, values in lists.items()]
    return sorted(said)


def given(array: np.ndarray, foreign: bool = False) -> np.ndarray:
    """The argument that a callback is given for the array, which it keeps."""
    kept: list[np.ndarray] = []
    assert call(Target(kept.append), [Buffer.of(array)], foreign=foreign).code == 0
    return kept[0]


class Owner:
    """An owner of native code."""


def assert_fails(done: Outcome, code: int, *texts: str) -> None:
    assert done.code == code, done.message
    for text in texts:
        assert text in done.message, done.message


def _frame(
    operands: Sequence[Buffer], results: Sequence[Buffer], said: Sequence[Attribute]
) -> tuple[list[Any], list[Any], list[Attribute]]:
    """Return the parts that the module `_frames` makes a call frame of."""
    return (
        [(one.code, list(one.dims), one.data) for one in operands],
        [(one.code, list(one.dims), len(one.data)) for one in results],
        list(said),
    )
