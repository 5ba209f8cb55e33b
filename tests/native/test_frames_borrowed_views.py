"""Callbacks that are lent the memory of their call; frames keep it as TensorFlow's side does."""

import gc
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import INT4, INT32, Buffer, Target, call, native, runtime

LENT = {"borrows": True, "takes_out": True, "shares_memory": True}
LARGE = 5000
X = np.arange(LARGE, dtype=np.float32)
SIZE = Buffer(INT32, [], np.int32(1500).tobytes())
ways = pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])


@pytest.fixture(autouse=True)
def buffer_provider() -> Iterator[None]:
    before = runtime.install(native.host_api())
    yield
    runtime.install(before)
    gc.collect()
    assert native.holds() == 0
    assert native.live_objects() == 0


def run(
    function: Any, *operands: Any, foreign: bool = False, results: int = 1, **lent: bool
) -> Any:
    target = Target(function, convention=lent or LENT)
    buffers = [Buffer.of(operand) for operand in operands]
    return call(target, buffers, [Buffer.result((LARGE,))] * results, foreign=foreign)


@ways
def test_arrays_lie_in_the_memory_of_the_call(foreign: bool) -> None:
    def double(x: np.ndarray, out: np.ndarray) -> None:
        assert x.base is not None
        assert out.base is not None
        assert (x.flags.writeable, out.flags.writeable) == (False, True)
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            x.flags.writeable = True
        np.multiply(x, 2, out=out)

    done = run(double, X, foreign=foreign)
    assert (done.code, done.message) == (0, "")
    assert done.array().tolist() == (X * 2).tolist()


@ways
@pytest.mark.parametrize("shares_memory", [True, False])
def test_where_nothing_can_be_lent_arrays_look_the_same(shares_memory: bool, foreign: bool) -> None:
    def double(x: np.ndarray, out: np.ndarray) -> np.ndarray:
        assert x.base is None
        assert out.base is None
        assert (x.flags.writeable, out.flags.writeable) == (False, True)
        return np.multiply(x, 2, out=out)

    few = np.arange(3, dtype=np.float32)
    target = Target(double, convention={**LENT, "shares_memory": shares_memory})
    done = call(target, [Buffer.of(few)], [Buffer.result((3,))], foreign=foreign)
    assert done.array().tolist() == [0, 2, 4]
    if not shares_memory:
        assert (
            run(double, X, **{**LENT, "shares_memory": False}).array().tolist() == (X * 2).tolist()
        )


@ways
def test_kept_arrays_are_an_error_and_stay_what_they_are(foreign: bool) -> None:
    kept: list[Any] = []

    def keep(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x
        kept.extend([x[3:], x.data, out.reshape(-1, 50)])

    done = run(keep, X, foreign=foreign)
    assert done.code == 3
    assert "still refers to an array that it borrowed" in done.message
    assert "a test" in done.message
    assert native.holds() == 2
    part, view, out = kept
    kept.clear()
    assert part.tolist() == X[3:].tolist()
    assert view.tolist() == X.tolist()
    out += 1
    assert out.ravel().tolist() == (X + 1).tolist()


@ways
def test_the_tuple_of_several_results_is_only_lent_too(foreign: bool) -> None:
    kept: list[Any] = []

    def keep(x: np.ndarray, out: tuple[np.ndarray, ...]) -> Any:
        out[0][...], out[1][...] = x, -x
        if keeping:
            kept.append(out)
        return list(out)

    keeping = False
    done = run(keep, X, foreign=foreign, results=2)
    assert done.array(0).tolist() == X.tolist()
    assert done.array(1).tolist() == (-X).tolist()
    keeping = True
    assert "still refers" in run(keep, X, foreign=foreign, results=2).message
    kept.clear()


@ways
@pytest.mark.parametrize(
    "wrong", [lambda out: 3, lambda out: out.copy(), lambda out: [out, out], lambda out: []]
)
def test_another_value_than_out_is_an_error(wrong: Any, foreign: bool) -> None:
    done = run(lambda x, out: wrong(out), X, foreign=foreign)
    assert done.code == 3
    assert "callback returns a value that is not `out`" in done.message


@ways
def test_an_exception_may_hold_what_was_lent(foreign: bool) -> None:
    held: list[Any] = []

    def fail(x: np.ndarray, out: np.ndarray) -> None:
        held.append(KeyError("why"))
        held[0].array = x[1:]
        raise held[0]

    assert run(fail, X, foreign=foreign).code == 2
    assert held[0].array.tolist() == X[1:].tolist()
    del held[0].array
    # As long as the exception is kept, by hostcall.last_error too, so is what its frames have.
    traceback.clear_frames(held[0].__traceback__)


@ways
def test_the_shape_of_an_out_array_may_be_changed(foreign: bool) -> None:
    def reshape(x: np.ndarray, out: np.ndarray) -> None:
        out.shape = (50, 100)
        out[...] = x.reshape(50, 100)

    assert run(reshape, X, foreign=foreign).array().tolist() == X.tolist()
    few = np.arange(6, dtype=np.float32)

    def change(x: np.ndarray, out: np.ndarray) -> None:
        out.shape = (2, 3)

    done = call(Target(change, convention=LENT), [Buffer.of(few)], [Buffer.result((6,))])
    assert done.code == 3
    assert "has shape (2, 3), but its declared shape is (6,)" in done.message
    assert done.untouched


@ways
def test_bounded_arguments_and_sub_byte_values(foreign: bool) -> None:
    def total(x: np.ndarray) -> Any:
        assert not x.flags.writeable
        return np.float32(x.sum())

    borrows = {"borrows": True, "shares_memory": True}
    done = call(
        Target(total, convention=borrows),
        [Buffer.of(X), SIZE],
        [Buffer.result(())],
        dynamic_operands=[0, 0],
        foreign=foreign,
    )
    assert done.array() == X[:1500].sum()

    def negate(x: np.ndarray, out: np.ndarray) -> None:
        assert x.dtype.name == out.dtype.name == "int4"
        out[...] = -x

    bits = np.tile(np.arange(-7, 8, dtype=np.int8), 400)
    done = call(
        Target(negate, convention=LENT),
        [Buffer.of(bits)],
        [Buffer.result(bits.shape, np.int8)],
        sub_byte_operands=[0, INT4],
        sub_byte_results=[0, INT4],
        foreign=foreign,
    )
    assert done.array().tolist() == (-bits).tolist()


@ways
def test_a_result_of_bounded_size_cannot_be_written_before(foreign: bool) -> None:
    target = Target(lambda x, out: None, convention=LENT)
    done = call(
        target,
        [Buffer.of(X)],
        [Buffer.result((LARGE,)), Buffer(INT32, [], bytes(4))],
        dynamic_results=[0, 0],
        foreign=foreign,
    )
    assert done.code == 3
    assert done.untouched
