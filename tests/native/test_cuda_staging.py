"""The memory that calls from GPUs copy through: pinned, bounded, and kept from call to call."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.errors import raising
from tests.support.native.frames import Buffer, Target, call_on_gpu, fake_gpu, native
from tests.support.threads import in_threads, meeting

MOST = 256 << 20
LEAST = 1 << 16


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with fake_gpu():
        # With this driver nothing is pinned: what was with the one before ends here.
        assert call_on_gpu(Target(lambda: None)).code == 0
        native.pinned()
        yield


def zeros(size: int) -> Buffer:
    return Buffer.of(np.zeros(size, np.uint8))


def take(*sizes: int) -> Any:
    """Calls with operands of these sizes, and a small result. Returns what is pinned then."""
    target = Target(lambda *xs: np.uint8(len(xs)))
    done = call_on_gpu(target, list(map(zeros, sizes)), [Buffer.result((), np.uint8)])
    assert (done.code, done.array().item()) == (0, len(sizes))
    return native.pinned()


def test_small_buffers_share_memory_which_later_calls_use_again() -> None:
    assert take(1, 100, 5000, 64) == (2 * LEAST, 2)  # one for the operands, one for the result
    for _ in range(3):
        assert take(7, 60000) == (2 * LEAST, 0)


def test_values_that_share_memory() -> None:
    arrays = [np.arange(n, dtype=np.uint8) for n in (1, 63, 64, 65, 0, 200)]
    results = [Buffer.result(array.shape, np.uint8) for array in arrays]
    target = Target(lambda *xs: [x + np.uint8(1) for x in xs])
    done = call_on_gpu(target, list(map(Buffer.of, arrays)), results)
    done.assert_returned(*(array + np.uint8(1) for array in arrays))


def test_memory_of_a_size_is_found_again() -> None:
    pinned, times = take(1_000_000)
    assert (times, pinned) == (2, 1_048_576 + LEAST)
    assert take(1_048_576) == (pinned, 0)
    assert take(990_000) == (pinned, 0)
    assert take(600_000)[1] == 1


def test_nothing_is_pinned_beyond_the_bound() -> None:
    sizes = [MOST * n // 16 for n in (3, 4, 5, 6, 7)]
    for size in sizes:
        pinned, times = take(size)
        assert times >= 1
        assert pinned <= MOST
    # The others had to go.
    assert take(sizes[0])[1] >= 1
    before = native.pinned()
    assert take(MOST + 1) == before
    pinned, times = take(MOST // 2, MOST // 2, MOST // 2)
    assert pinned <= MOST


def test_what_cannot_be_pinned_lies_in_ordinary_memory() -> None:
    native.fail_cuda("cuMemHostAlloc", count=2, code=2)
    assert take(100_000) == (0, 0)
    assert take(100_000)[1] == 2


def test_memory_returns_where_a_call_fails() -> None:
    fail = raising(ValueError("no"))
    pinned, _ = take(100_000)
    for _ in range(3):
        done = call_on_gpu(Target(fail), [zeros(100_000)], [Buffer.result((), np.uint8)])
        assert done.code != 0
        native.fail_cuda("cuMemcpyDtoHAsync_v2", first=2)
        done = call_on_gpu(Target(fail), [zeros(100_000), zeros(1)])
        assert done.code != 0
    assert native.pinned() == (pinned, 0)


def test_calls_at_the_same_time_have_memory_of_their_own() -> None:
    meet = meeting(4)

    def calls(index: int) -> None:
        x = np.full(50_000, index, np.int32)
        done = call_on_gpu(Target(meet), [Buffer.of(x)], [Buffer.result(x.shape, x.dtype)])
        done.assert_returned(x + x)

    for _ in range(3):
        in_threads(4, calls)
    assert native.pinned()[1] <= 8
