"""The memory of large arguments, which comes back for the next call's."""

import os
import pickle
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import given, run_python, runtime
from tests.support.threads import in_threads

MOST_KEPT = 1 << 28
LARGE = 300_000  # floats
ways = pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])
# Sanitizers watch the memory of the C library's, which arrays lie in there.
comes_back = pytest.mark.skipif(
    "HOSTCALL_BUILD" in os.environ, reason="in a sanitized build no memory comes back"
)


def values(seed: int, size: int = LARGE) -> np.ndarray:
    return np.random.default_rng(seed).random(size, np.float32)


def allocator(array: np.ndarray | None = None) -> str:
    """NumPy's name of what allocates, or what has allocated an array."""
    name = np._core.multiarray.get_handler_name  # type: ignore[attr-defined]
    return str(name() if array is None else name(array))


@ways
@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, LARGE, 3_000_000])
def test_arrays_are_as_any_others(size: int, foreign: bool) -> None:
    array = given(values(0, size), foreign)
    np.testing.assert_array_equal(array, values(0, size))
    assert array.base is None
    assert (array.flags.owndata, array.flags.writeable, array.flags.c_contiguous) == (True,) * 3
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array)), array)
    assert allocator() == "default_allocator"
    assert allocator(array.copy()) == "default_allocator"


@comes_back
@ways
def test_memory_comes_back(foreign: bool) -> None:
    address = given(values(0), foreign).ctypes.data
    for seed in range(5):
        array = given(values(seed, LARGE - seed), foreign)
        assert array.ctypes.data == address
        np.testing.assert_array_equal(array, values(seed, LARGE - seed))
        del array
    assert runtime.kept_array_memory() >= LARGE * 4


@ways
def test_memory_is_not_given_twice(foreign: bool) -> None:
    kept = [given(values(seed), foreign) for seed in range(5)]
    for seed, array in enumerate(kept):
        np.testing.assert_array_equal(array, values(seed))


def test_what_is_kept_has_an_end() -> None:
    for size in (10_000_000, 12_000_000):
        arrays = [given(np.full(size, i, np.float32)) for i in range(9)]
        assert [array[-1] for array in arrays] == list(range(9))
        del arrays
        assert runtime.kept_array_memory() <= MOST_KEPT


@comes_back
@pytest.mark.parametrize("size", [0, 1, 1000, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE])
def test_arrays_that_change_their_size(size: int) -> None:
    array = given(values(0))
    array.resize(size, refcheck=False)
    expected = np.zeros(size, np.float32)
    expected[:LARGE] = values(0)[:size]
    np.testing.assert_array_equal(array, expected)
    array.resize(LARGE, refcheck=False)
    np.testing.assert_array_equal(array[:size], expected[:LARGE])
    assert not array[size:].any()


@comes_back
def test_a_small_array_that_grows() -> None:
    array = given(values(0, 1000))
    assert allocator(array) == "default_allocator"
    array = given(values(0))
    assert allocator(array) == "hostcall"
    array.resize(1000, refcheck=False)
    array.resize(LARGE, refcheck=False)
    np.testing.assert_array_equal(array[:1000], values(0)[:1000])
    assert not array[1000:].any()


def test_threads_get_memory_of_their_own() -> None:
    def keep_some(thread: int) -> None:
        kept: list[Any] = []
        for seed in range(thread * 1000, thread * 1000 + 30):
            kept.append((seed, given(values(seed))))
            if len(kept) > 3:
                kept.pop(seed % 3)
            for before, array in kept:
                np.testing.assert_array_equal(array, values(before))

    in_threads(6, keep_some)


def test_a_forked_child_has_memory_too() -> None:
    done = run_python("-m", "tests.support.native.forked", "while_an_array_is_kept")
    assert done.returncode == 0, done.stderr
