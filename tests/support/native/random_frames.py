"""Random call frames for the fuzzer, and what has to come of each."""

import collections
import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from hostcall_runtime._device_arrays import DeviceArray
from tests.support.native import gpu_arrays, random_results
from tests.support.native.early_frames import start_and_take
from tests.support.native.frames import (
    CODES,
    INT4,
    INT8,
    INT32,
    PAIRS,
    UNKNOWN_DTYPES,
    Attribute,
    Buffer,
    Outcome,
    Target,
    attributes,
    call,
    random_array,
)
from tests.support.native.gpu_arrays import ByDlpack, ByInterface

DEPTH = 3  # how deep callbacks make calls themselves


@dataclasses.dataclass
class Frame:
    """A call to make, whose callback returns `values` if all goes well.

    A callback that `lends` takes arrays where they lie. `fails` is None where either is right.
    """

    operands: list[Buffer] = dataclasses.field(default_factory=list)
    results: list[Buffer] = dataclasses.field(default_factory=list)
    values: list[np.ndarray] = dataclasses.field(default_factory=list)
    expected: list[bytes] = dataclasses.field(default_factory=list)
    pairs: dict[str, Any] = dataclasses.field(default_factory=dict)
    attributes: list[Attribute] | None = None
    token: bool = False
    foreign: bool = False
    on_device: bool = False
    lends: bool = False
    fails: bool | None = False
    partly_written: bool = False

    def __str__(self) -> str:
        sides = [[(one.code, *one.dims) for one in side] for side in (self.operands, self.results)]
        return (
            f"operands {sides[0]}, results {sides[1]}, pairs {self.pairs}, "
            f"attributes {self.attributes}, token {self.token}, foreign {self.foreign}, "
            f"on device {self.on_device}, lends {self.lends}, "
            f"returned {[(one.dtype.name, one.shape) for one in self.values]}"
        )


class Fuzzer:
    """One thread's share: a random number generator, and what it counts."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.codes = collections.Counter[int]()
        self.steady = Target(lambda *_: None)

    def step(self, depth: int = 0) -> None:
        """Makes a random frame, calls the handler with it, and checks what comes of it."""
        frame = self.a_frame()
        title = self.rng.choice(["it", "\udcff", ""])
        convention = {"on_device": frame.lends}
        target = Target(self.a_function(frame, depth), title=title, convention=convention)
        done = self.call(frame, self.spoil(frame, target))
        self.codes[done.code] += 1
        check(frame, done)

    def call(self, frame: Frame, number: int) -> Outcome:
        is_plain = not (frame.token or frame.on_device or frame.attributes)
        if is_plain and self.rng.random() < 0.5:
            how = {"foreign": frame.foreign, **frame.pairs}
            return start_and_take(number, frame.operands, frame.results, **how)
        return call(
            number,
            frame.operands,
            frame.results,
            foreign=frame.foreign,
            token=frame.token,
            on_device=frame.on_device,
            said=frame.attributes,
            **frame.pairs,
        )

    def a_shape(self) -> list[int]:
        rng = self.rng
        if rng.random() < 0.01:
            return [1] * rng.choice([33, 63, 64])
        if rng.random() < 0.01:
            return [rng.randrange(10_000, 300_000)]
        return [rng.choice([0, 1, 1, 2, 3, 7, 16]) for _ in range(rng.choice([0, 1, 1, 2, 3, 5]))]

    def an_array(self) -> np.ndarray:
        return random_array(self.rng, self.a_shape(), self.rng.choice(list(CODES)))

    def a_frame(self) -> Frame:
        """A well-formed frame, with the results that its callback is to return."""
        rng = self.rng
        token, foreign, on_device = (rng.random() < share for share in (0.3, 0.5, 0.3))
        frame = Frame(token=token, foreign=foreign, on_device=on_device)
        frame.operands = [Buffer.of(self.an_array()) for _ in range(rng.choice([0, 1, 1, 2, 4]))]
        frame.values = [self.an_array() for _ in range(rng.choice([0, 1, 1, 2, 4]))]
        frame.results = [Buffer.of(value) for value in frame.values]
        frame.expected = [value.tobytes() for value in frame.values]
        frame.lends = rng.random() < 0.2
        if rng.random() < 0.2 and not frame.lends:
            self.narrow(frame)
        if rng.random() < 0.3:
            self.bound_operands(frame)
        if rng.random() < 0.3:
            self.bound_results(frame)
        return frame

    def narrow(self, frame: Frame) -> None:
        """Passes int4 the way that XLA does, in bytes of int8."""
        for name, buffers in (
            ("sub_byte_operands", frame.operands),
            ("sub_byte_results", frame.results),
        ):
            for index, buffer in enumerate(buffers):
                if buffer.code == INT4:
                    buffer.code = INT8
                    frame.pairs.setdefault(name, []).extend([index, INT4])

    def bound_operands(self, frame: Frame) -> None:
        pairs, sizes = [], []
        for index, operand in enumerate(frame.operands):
            for dim, size in enumerate(operand.dims):
                if self.rng.random() < 0.3:
                    pairs += [index, dim]
                    sizes.append(Buffer.of(np.int32(self.rng.randint(0, size))))
        frame.pairs["dynamic_operands"] = pairs
        frame.operands += sizes

    def bound_results(self, frame: Frame) -> None:
        pairs, sizes = [], []
        for index, value in enumerate(frame.values):
            result = frame.results[index]
            dims = list(result.dims)
            for dim, size in enumerate(dims):
                if self.rng.random() < 0.3:
                    # Many dimensions that grow a little make gigabytes.
                    dims[dim] += self.rng.choice([0, 1, 2]) if math.prod(dims) < 10**6 else 0
                    pairs += [index, dim]
                    sizes.append(np.int32(size))
            whole = np.zeros(dims, value.dtype)
            whole[tuple(slice(size) for size in value.shape)] = value
            frame.results[index] = Buffer(result.code, dims, whole.tobytes())
            frame.expected[index] = whole.tobytes()
        frame.pairs["dynamic_results"] = pairs
        frame.results += [Buffer.of(size) for size in sizes]
        frame.expected += [size.tobytes() for size in sizes]

    def a_function(self, frame: Frame, depth: int) -> Callable[..., Any]:
        """The callback: it returns what the frame wants, or something else."""
        rng = self.rng
        if frame.lends and frame.on_device and "dynamic_results" not in frame.pairs:
            returned: Any = [self.a_foreign_array(value) for value in frame.values]
        else:
            returned = random_results.as_declared(rng, frame.values)
        kind = rng.random()
        if kind < 0.1:
            error = random_results.an_error(rng)
            frame.fails = True
            return lambda *_: _throw(error)
        if kind < 0.3:
            returned = self.wrong(frame, returned)
        if kind > 0.95 and depth < DEPTH:
            return lambda *_: (self.step(depth + 1), returned)[1]
        return lambda *arguments: (_look_at(arguments), returned)[1]

    def a_foreign_array(self, value: np.ndarray) -> Any:
        """The value as an array of another library, where that has the dtype."""
        kinds: list[Callable[[np.ndarray], Any]] = [np.asarray, ByDlpack, ByInterface]
        kind = self.rng.choice(kinds)
        has_dtype = value.dtype in gpu_arrays.DTYPES
        by_name = value.dtype.isbuiltin == 1
        return kind(value) if (by_name if kind is ByInterface else has_dtype) else value

    def wrong(self, frame: Frame, returned: Any) -> Any:
        rng, values = self.rng, list[Any](frame.values)
        if not values or rng.random() < 0.2:
            frame.fails = True
            return (
                [*values, np.float32(1)] if rng.random() < 0.5 or not values else values[1:] or ()
            )
        index = rng.randrange(len(values))
        if rng.random() < 0.1 and len(values) > 1:
            # Either the array is still right when it is copied, or the call fails.
            frame.fails, frame.partly_written = None, True
            values[-1] = _Meddles(values[0], values[-1])
            return values
        frame.fails = True
        values[index] = random_results.a_wrong_one(rng, frame.values[index])
        return values

    def spoil(self, frame: Frame, target: Target) -> int:
        """Perhaps breaks the frame itself; returns the callback's number."""
        rng = self.rng
        if rng.random() > 0.2:
            return target.id
        frame.fails = True
        ways: list[Callable[[], int | None]] = [
            lambda: rng.choice([0, -1, 10**9, -(2**63), 2**63 - 1]),
            lambda: Target(lambda: None).id,
            lambda: frame.operands.insert(0, self.unknown()),
            lambda: frame.results.insert(0, self.unknown()),
            lambda: frame.operands.append(Buffer(CODES[np.dtype(np.float32)], [1] * 65, bytes(4))),
            lambda: frame.operands.append(Buffer(INT8, [rng.choice([-1, 2**62]), 2, 2], b"")),
            lambda: frame.results.append(Buffer(INT8, [2**62, -1], bytes(1))),
            lambda: self.odd_pairs(frame),
            lambda: self.odd_attributes(frame, target),
        ]
        number = rng.choice(ways)()
        return target.id if number is None else number

    def unknown(self) -> Buffer:
        dims = self.a_shape()
        return Buffer(self.rng.choice(UNKNOWN_DTYPES), dims, bytes(math.prod(dims)))

    def odd_pairs(self, frame: Frame) -> None:
        """Pairs that may be harmless, or out of range, or one number too many."""
        rng = self.rng
        name = rng.choice(PAIRS)
        odd = [-1, 0, 1, 2, 3, INT4, INT8, INT32, 63, 255, 256 + INT32, 2**32, 2**63 - 1, -(2**63)]
        pairs = [rng.choice(odd) for _ in range(rng.choice([1, 2, 2, 3, 4, 40]))]
        frame.pairs[name] = frame.pairs.get(name, []) + pairs
        frame.fails = True if len(pairs) % 2 else None
        if rng.random() < 0.3:
            sides = frame.operands, frame.results
            for side in sides:
                side.append(Buffer.of(np.int32(rng.choice([-1, 0, 1, 2**31 - 1, -(2**31)]))))

    def odd_attributes(self, frame: Frame, target: Target) -> None:
        rng = self.rng
        said = attributes(target, **frame.pairs)
        at = rng.randrange(len(said))
        name, code, scalar, values = said.pop(at)
        odd: list[Attribute] = rng.choice(
            [
                [],
                [("z" + name, code, scalar, values)],
                [(name, INT32, scalar, values)],
                [(name, code, not scalar, [0])],
                [(name, code, scalar, values)] * 2,
            ]
        )
        frame.attributes = said[:at] + odd + said[at:]


class _Meddles:
    """Changes an array that has been returned, while NumPy makes an array of this."""

    def __init__(self, other: np.ndarray, value: np.ndarray) -> None:
        self.other, self.value = other, value

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        try:
            self.other.shape = (1, *self.other.shape)
        except (AttributeError, ValueError):
            self.other.resize((9, 9))
        return self.value


def _throw(error: BaseException) -> None:
    raise error


def _look_at(arguments: tuple[Any, ...]) -> None:
    """Reads and writes all that the callback was given: it is its own."""
    for argument in arguments:
        if isinstance(argument, DeviceArray):
            _read(argument)
            continue
        argument.tobytes()
        if isinstance(argument, np.ndarray):
            argument[...] = np.zeros((), argument.dtype)


def _read(array: DeviceArray) -> None:
    if array.device == "cpu":
        np.asarray(array).tobytes()
    elif array.dtype in gpu_arrays.DTYPES:
        gpu_arrays.by_dlpack(array)
        if array.dtype.isbuiltin == 1:
            assert array.__cuda_array_interface__["shape"] == array.shape


def check(frame: Frame, done: Outcome) -> None:
    """Raises AssertionError unless the call ended as it has to."""
    if done.code == 0:
        assert frame.fails is not True, f"it should have failed: {frame}"
        if frame.fails is False:
            assert done.data == frame.expected, f"wrong results: {frame}"
    else:
        assert frame.fails is not False, f"it failed: {done.message}\n{frame}"
        assert done.message
        assert done.untouched or frame.partly_written, f"results were written: {frame}"
