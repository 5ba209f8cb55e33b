"""Calls that the devices of a program make together: one for each shard, and all end at once."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.errors import raising
from tests.support.native.frames import (
    INT32,
    Buffer,
    Outcome,
    Target,
    attributes,
    call,
    native,
    run_python,
    runtime,
)

TIMEOUT = 60
ALONE = {"shards": 1, "devices": 1}
JOINT = runtime.handlers()["hostcall_joint"]


class Devices(ThreadPoolExecutor):
    """Devices, each with a thread of its own, that make calls in the runs of programs."""

    def begin(
        self, target: Target, shard: int, value: Any, shards: int, devices: int, **how: Any
    ) -> Future[Outcome]:
        """A device comes to a call with one array, and takes one like it."""
        operands = [Buffer.of(np.int32(shard)), Buffer.of(value)]
        results = [Buffer.result(np.shape(value))]
        said = attributes(target, {"shards": shards, "devices": devices})
        return self.submit(
            call, target, operands, results, entry=JOINT, said=said, foreign=True, **how
        )

    def meet(self, target: Target, values: Sequence[tuple[int, Any]], **how: Any) -> list[Outcome]:
        """Make one call on devices that have these shards and arrays, and return its outcomes."""
        shards = len({shard for shard, _ in values})
        begun = [self.begin(target, *value, shards, len(values), **how) for value in values]
        return [one.result() for one in begun]


@pytest.fixture
def devices() -> Iterator[Devices]:
    with Devices(8) as made:
        yield made
    assert native.live_objects() == 0


def array(first: float) -> np.ndarray:
    return np.arange(first, first + 100, dtype=np.float32)


def test_devices_of_one_shard_share_a_call(devices: Devices) -> None:
    seen: list[float] = []
    target = Target(lambda x: [seen.append(float(x[0])), x * 2][1])
    for run in range(1, 20):
        done = devices.meet(target, [(k % 4, array(k % 4)) for k in range(8)], run=run)
        assert [one.code for one in done] == [0] * 8
        for k, one in enumerate(done):
            np.testing.assert_array_equal(one.array(), array(k % 4) * 2)
        assert sorted(seen) == [0, 1, 2, 3]
        seen.clear()


def test_runs_do_not_mix(devices: Devices) -> None:
    target = Target(lambda x: x + 1)
    first = [devices.begin(target, 0, array(run), 1, 2, run=run) for run in (50, 51)]
    second = [devices.begin(target, 0, array(run), 1, 2, run=run) for run in (51, 50)]
    for run, one in zip((50, 51, 51, 50), first + second, strict=True):
        np.testing.assert_array_equal(one.result(TIMEOUT).array(), array(run) + 1)


def test_who_waits_or_arrives_in_a_run_that_has_failed_gets_its_error(devices: Devices) -> None:
    called: list[Any] = []
    target = Target(lambda x: [called.append(x), x][1])
    waits = devices.begin(target, 0, array(0), 1, 2, run=80)
    other = devices.begin(target, 0, array(0), 1, 2, run=81)
    failing = Target(raising(ValueError("no such thing")))
    devices.meet(failing, [(0, array(0))], run=80)  # by itself
    arrives = devices.begin(target, 0, array(0), 1, 2, run=80)
    for one in (waits, arrives):
        assert "no such thing" in one.result(TIMEOUT).message
    assert called == []
    assert devices.begin(target, 0, array(0), 1, 2, run=81).result(TIMEOUT).code == 0
    assert other.result(TIMEOUT).code == 0


def test_a_shard_that_nobody_has_is_an_error(devices: Devices) -> None:
    target = Target(np.copy)
    assert "malformed" in devices.begin(target, 5, array(0), 2, 2, run=95).result(TIMEOUT).message
    both = [devices.begin(target, 0, array(0), 2, 2, run=96) for _ in range(2)]
    assert all("malformed" in one.result(TIMEOUT).message for one in both)


@pytest.mark.parametrize(
    "operands",
    [
        [],
        [Buffer.of(np.float32(0))],
        [Buffer.of(np.zeros(2, np.int32))],
        [Buffer(INT32, [], np.int32(-1).tobytes())],
    ],
)
def test_malformed_frames(operands: list[Buffer]) -> None:
    target = Target(np.copy)
    done = call(target, operands, entry=JOINT, said=attributes(target, ALONE), run=97)
    assert "malformed" in done.message


def test_bounded_sizes_are_malformed() -> None:
    target = Target(np.copy)
    said = attributes(target, ALONE, dynamic_operands=[0, 0])
    operands = [Buffer.of(np.int32(n)) for n in (0, 1, 1)]
    assert "malformed" in call(target, operands, entry=JOINT, said=said, run=98).message


NO_THREADS = """
import resource, sys
import numpy as np
from tests.native.test_frames_joint import JOINT, Devices, array
from tests.support.native.frames import Buffer, Target, attributes, call

def threads():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Threads:"))

target = Target(np.copy, convention={"concurrent": sys.argv[1] == "concurrent"})
before = threads()
with Devices(1) as devices:
    first = devices.begin(target, 0, array(0), 1, 2, run=1)
    while threads() < before + 2:  # the device's, and XLA's, which waits
        pass
    limit = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 20), limit[1]))
    operands, results = [Buffer.of(np.int32(0)), Buffer.of(array(0))], [Buffer.result((100,))]
    said = attributes(target, {"shards": 1, "devices": 2})
    second = call(target, operands, results, entry=JOINT, said=said, run=1)
    resource.setrlimit(resource.RLIMIT_AS, limit)
    print(first.result().code, second.code)
"""


@pytest.mark.parametrize("kind", ["ordered", "concurrent"])
def test_all_devices_hear_that_no_thread_can_be_started(kind: str) -> None:
    done = run_python("-c", NO_THREADS, kind)
    assert (done.stdout, done.stderr, done.returncode) == ("8 8\n", "", 0)
