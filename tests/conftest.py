"""Settings and fixtures of all tests; TensorFlow reads the settings once, when it starts."""

import contextlib
import gc
import inspect
import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import process_pools
from tests.support.device import DEVICE, JAX_IS_ON_A_GPU, on_device  # before TensorFlow: a flag
from tests.support.installed import TENSORFLOW
from tests.support.stress.processes import LIMIT, Worker
from tests.support.stress.template import Template

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

if TENSORFLOW:
    import tensorflow as tf
    from tensorflow.python.eager import context

    from tests.support.versions import is_older_than

    # Two logical CPUs, for the tests that distribute over several devices.
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()],
    )


# The folders of tests that kill processes, send signals, take ports, race clocks, fill memory or
# take minutes. In other folders the mark `full_run` says so.
FULL_RUN = frozenset(
    {
        "dynamic",
        "executors",
        "executors_heavy",
        "kernels",
        "serving",
        "stress",
        "upstream",
        "wheels",
    }
)
# Files with few tests that take long. They come first, so that no CPU waits for them in the end.
LONG = (
    "unit/test_benchmarks.py",
    "stress/test_memory.py",
    "dynamic/test_dynamic.py",
    "upstream/test_upstream.py",
    "upstream/test_compiled.py",
    "wheels/test_building.py",
    "executors/test_processes.py",
    "executors_heavy/test_mpi.py",
    "executors_heavy/test_ray.py",
    "stress/test_exit.py",
    "stress/test_fork.py",
    "unit/test_users_types.py",
)
# How many cases of one test are in a sample, where --cases does not say it.
CASES = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--route",
        choices=["auto", "custom_call", "partition"],
        default="auto",
        help="of the script ops in all tests; tests of the custom call alone need 'auto'",
    )
    parser.addoption(
        "--part",
        choices=["all", "sample", "rest"],
        default="all",
        help="'sample' leaves out what depends on the machine, and has some cases of each test; "
        "'rest' is what it leaves out, and enough cases of tests marked `pairwise` or `each_value`",
    )
    parser.addoption("--cases", type=int, default=CASES, help="of each test, in a sample")
    parser.addoption("--seed", default="0", help="of the sample's cases")


def pytest_configure(config: pytest.Config) -> None:
    route = config.getoption("--route")
    if route == "auto":
        return
    os.environ["HOSTCALL_ROUTE"] = route  # for the processes that tests start

    import hostcall  # it reads the variable in this process, unless it was imported before

    hostcall.configure(route=route)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {"custom_call"} if config.getoption("--route") == "partition" else set()
    left_out |= {"cpu"} if DEVICE or JAX_IS_ON_A_GPU else set()
    others = {item for item in items if any(map(item.get_closest_marker, left_out))}
    others |= {item for item in items if any(map(_wants_newer, item.iter_markers("tensorflow")))}
    if (part := config.getoption("--part")) != "all":
        left = [item for item in items if item not in others]
        sample = _sample(left, config.getoption("--seed"), config.getoption("--cases"))
        others |= sample | _superfluous(left) if part == "rest" else {*items} - sample
    config.hook.pytest_deselected(items=[*others])
    items[:] = [item for item in items if item not in others]
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """Return where the file of a test stands in `LONG`, or the place behind all of them."""
    file = item.nodeid.partition("::")[0].removeprefix("tests/")
    return LONG.index(file) if file in LONG else len(LONG)


def _sample(items: list[pytest.Item], seed: str, cases: int) -> set[pytest.Item]:
    """Return the tests that do not depend on the machine, with few cases of each."""
    for_sample = [
        item
        for item in items
        if item.nodeid.split("/")[1] not in FULL_RUN and not item.get_closest_marker("full_run")
    ]
    return {
        item
        for name, several in _by_test(for_sample).items()
        for item in random.Random(f"{seed} {name}").sample(several, min(cases, len(several)))
    }


def _superfluous(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return cases of marked tests without which each value, or each pair, still has a case."""
    superfluous = set()
    for mark, count in (("each_value", 1), ("pairwise", 2)):
        for several in _by_test([i for i in items if i.get_closest_marker(mark)]).values():
            left = {case: _combinations(case, count) for case in several}
            while found := max(left.values(), key=len, default=()):
                left = {case: other - found for case, other in left.items() if other is not found}
            superfluous |= {*left}
    return superfluous


def _combinations(case: Any, count: int) -> set[tuple[tuple[str, str], ...]]:
    """Return the combinations of a number of a case's parameters, each with its name."""
    values = [(name, repr(value)) for name, value in case.callspec.params.items()]
    return {*itertools.combinations(values, count)}


def _by_test(items: list[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Return the cases of each test."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return cases


def _wants_newer(marker: pytest.Mark) -> bool:
    since, _ = marker.args
    return is_older_than(since)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Calls a test that is marked with `runs_in` there; its arguments go as JSON."""
    mark = pyfuncitem.get_closest_marker("runs_in")
    if mark is None:
        return None
    (fixture,) = mark.args
    process = pyfuncitem._request.getfixturevalue(fixture)
    names = inspect.signature(pyfuncitem.function).parameters
    args = [pyfuncitem.funcargs[name] for name in names]
    ended = process.run(pyfuncitem.function, *args, limit=mark.kwargs.get("limit", LIMIT))
    if isinstance(process, Template):
        ended.assert_well(mark.kwargs.get("prints", ""))
    return True


@pytest.fixture(scope="module")
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    """A process for the tests of a file, one after another; it begins with their PREPARATION."""
    with contextlib.closing(Worker(getattr(request.module, "PREPARATION", ""))) as worker:
        yield worker


@pytest.fixture(autouse=True)
def _on_device() -> Iterator[None]:
    with on_device():
        yield


@pytest.fixture(autouse=True)
def _no_seed_is_left() -> Iterator[None]:
    """A global seed ends with the test that sets it."""
    yield
    if TENSORFLOW and context.global_seed() is not None:
        tf.random.set_seed(None)


@pytest.fixture(scope="module", autouse=True)
def _collect_quickly() -> None:
    """Python's collector need not look at what is there before the tests of a file.

    It is half a million objects of TensorFlow's and JAX's alone, and many tests collect garbage.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def pools_end() -> Iterator[None]:
    """Pools of processes end with the file."""
    yield
    process_pools.end_pools()


@pytest.fixture(scope="session")
def fresh_python() -> Iterator[Template]:
    """Runs programs in processes of their own, which have imported TensorFlow and no more."""
    with contextlib.closing(Template("tensorflow", ends_soon=True)) as template:
        yield template


@pytest.fixture
def run_python(fresh_python: Template) -> Callable[..., str]:
    """Runs a script in a process of its own, with environment variables; returns its output."""

    def run(script: str, **variables: str) -> str:
        ended = fresh_python.run_program(script, **variables)
        assert ended.status == 0, ended.said
        return ended.printed

    return run


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The file of a recording."""
    return str(tmp_path / "run.hostcall")


@pytest.fixture
def machine() -> Any:
    """A machine that a function measures with."""
    from tests.support.recordings import Machine

    return Machine()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder that the tests of a file share."""
    return str(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def enabled_again() -> Iterator[None]:
    """hostcall is on after the test, for one that switches it off."""
    import hostcall

    yield
    hostcall.enable()


@pytest.fixture
def stock_errors() -> Iterator[None]:
    """Functions that XLA refuses are errors, as in stock TensorFlow."""
    import hostcall

    hostcall.configure(uncompilable="error")
    yield
    hostcall.configure(uncompilable="partition")


@pytest.fixture
def collected_stats() -> Iterator[None]:
    """Calls are counted, from none on."""
    import hostcall

    hostcall.stats(reset=True)
    hostcall.collect_stats()
    yield
    hostcall.collect_stats(False)
    hostcall.stats(reset=True)


@pytest.fixture
def auto_route() -> Iterator[None]:
    """The route "auto", for tests that set the route themselves, whatever `--route` says."""
    import hostcall

    with hostcall.scope(route="auto"):
        yield


@pytest.fixture
def partition_route() -> Iterator[None]:
    """The route "partition", for tests of partitioned functions."""
    import hostcall

    with hostcall.scope(route="partition"):
        yield


@pytest.fixture
def every_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters are compiled, however little time that saves: for tests that count them."""
    from hostcall._compiler.clusters import costs

    monkeypatch.setattr(costs, "LAUNCH", 0.0)
