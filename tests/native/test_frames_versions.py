"""The handlers in XLA of older versions, whose FFI lacks some of what theirs has."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.native.frames import Buffer, Target, assert_fails, call, native, runtime

AGES = {0: (0, 2), 1: (0, 1)}


@pytest.fixture(params=AGES, ids=["newest", "2.20"], autouse=True)
def age(request: pytest.FixtureRequest) -> Iterator[int]:
    native.set_age(request.param)
    yield request.param
    native.set_age(0)


def test_each_handler_says_the_version_that_xla_takes(age: int) -> None:
    handlers = [runtime.cuda_handler(), *runtime.handlers().values()]
    assert runtime.ffi_api_version() == AGES[0]
    assert [native.api_version(entry) for entry in handlers] == [AGES[age]] * len(handlers)


@pytest.mark.parametrize("foreign", [False, True], ids=["at once", "later"])
def test_calls_return(foreign: bool) -> None:
    x = np.array([1.0, 2.0], np.float32)
    target = Target(lambda x: x + 1)
    done = call(target, [Buffer.of(x)], [Buffer.result(x.shape)], foreign=foreign)
    done.assert_returned(x + 1)
    assert native.live_objects() == 0


@pytest.mark.parametrize("foreign", [False, True], ids=["at once", "later"])
def test_calls_fail(foreign: bool) -> None:
    def fail() -> None:
        raise ValueError("no such value")

    done = call(Target(fail), foreign=foreign)
    assert_fails(done, 3, "no such value")
    assert native.live_objects() == 0
