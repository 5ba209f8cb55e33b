"""Callbacks that are lent the memory of their call; frames keep it as TensorFlow's side does."""

import gc
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import Buffer, Target, assert_fails, call, native, runtime

LENT = {"borrows": True, "takes_out": True, "shares_memory": True}
LARGE = 5000
X = np.arange(LARGE, dtype=np.float32)
ways = pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])


@pytest.fixture(autouse=True)
def buffer_provider() -> Iterator[None]:
    before = runtime.install(native.host_api())
    yield
    runtime.install(before)
    gc.collect()
    assert native.holds() == 0
    assert native.live_objects() == 0


def run(function: Any, foreign: bool) -> Any:
    target = Target(function, convention=LENT)
    return call(target, [Buffer.of(X)], [Buffer.result((LARGE,))], foreign=foreign)


@ways
def test_arrays_lie_in_the_memory_of_the_call(foreign: bool) -> None:
    def double(x: np.ndarray, out: np.ndarray) -> None:
        assert x.base is not None
        assert out.base is not None
        assert (x.flags.writeable, out.flags.writeable) == (False, True)
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            x.flags.writeable = True
        np.multiply(x, 2, out=out)

    done = run(double, foreign)
    done.assert_returned(X * 2)


@ways
def test_kept_arrays_are_an_error_and_stay_what_they_are(foreign: bool) -> None:
    kept: list[Any] = []

    def keep(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x
        kept.extend([x[3:], x.data, out.reshape(-1, 50)])

    done = run(keep, foreign)
    assert_fails(done, 3, "still refers to an array that it borrowed", "a test")
    assert native.holds() == 2
    part, view, out = kept
    kept.clear()
    assert part.tolist() == X[3:].tolist()
    assert view.tolist() == X.tolist()
    out += 1
    assert out.ravel().tolist() == (X + 1).tolist()


@ways
def test_an_exception_may_hold_what_was_lent(foreign: bool) -> None:
    held: list[Any] = []

    def fail(x: np.ndarray, out: np.ndarray) -> None:
        held.append(KeyError("why"))
        held[0].array = x[1:]
        raise held[0]

    assert run(fail, foreign).code == 2
    assert held[0].array.tolist() == X[1:].tolist()
    del held[0].array
    # As long as the exception is kept, by hostcall.last_error too, so is what its frames have.
    traceback.clear_frames(held[0].__traceback__)


@ways
def test_the_shape_of_an_out_array_may_be_changed(foreign: bool) -> None:
    def reshape(x: np.ndarray, out: np.ndarray) -> None:
        out.shape = (50, 100)
        out[...] = x.reshape(50, 100)

    assert run(reshape, foreign).array().tolist() == X.tolist()
    few = np.arange(6, dtype=np.float32)

    def change(x: np.ndarray, out: np.ndarray) -> None:
        out.shape = (2, 3)

    done = call(Target(change, convention=LENT), [Buffer.of(few)], [Buffer.result((6,))])
    done.assert_fails_untouched(3, "has shape (2, 3), but its declared shape is (6,)")
