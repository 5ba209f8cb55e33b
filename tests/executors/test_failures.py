"""`executor=`: whatever goes wrong on an executor is an error, and the next call works."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import jax
import numpy as np
import pytest

import hostcall
import hostcall.jax
from tests.support import executor_functions as functions
from tests.support import executors
from tests.support.executors import KINDS, OF_PROCESSES, X, assert_next_call_works, on
from tests.support.helpers import assert_says, each_mode, failure, jitted, plain
from tests.support.threads import PATIENCE

each_kind = pytest.mark.parametrize("kind", OF_PROCESSES)


def said_by(program: Any, *args: Any) -> str:
    raised = hostcall.last_error(failure(program, *(args or (X,))))
    assert isinstance(raised, hostcall.ExecutorError), raised
    return str(raised)


def in_thread(program: Callable[[Any], Any]) -> concurrent.futures.Future[Any]:
    """Run a program on a thread that may go on for ever, and return the future of its result."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            future.set_result(program(X))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def call_that_waits(
    executor: Any, folder: Path, mode: Any = jitted
) -> tuple[concurrent.futures.Future[Any], int]:
    """A call that has begun, and the process that makes it."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    function = functools.partial(functions.waits_to_be_killed, str(pipe))
    called = in_thread(mode(on(executor, function)))
    return called, int(pipe.read_text())


class BreaksMeanwhile(concurrent.futures.ProcessPoolExecutor):
    """A pool that breaks while it takes a call: Python's tells of its closed pipe alone."""

    def submit(self, *_: Any, **__: Any) -> Any:
        raise OSError("handle is closed")


@each_mode
def test_a_pool_that_breaks_while_it_takes_a_call(mode: Any) -> None:
    with BreaksMeanwhile(1) as given, concurrent.futures.ThreadPoolExecutor(1) as next_one:
        said = said_by(mode(on(given, functions.doubled)))
        assert_says(said, "has broken", "handle is closed")
        made = iter([given, next_one])
        double = mode(on(lambda: next(made), functions.doubled))
        np.testing.assert_array_equal(double(X), 2.0 * X)


@each_kind
@each_mode
def test_a_worker_that_ends(mode: Any, kind: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    ends = on(KINDS[kind], functools.partial(functions.exits, str(journal)))
    said = said_by(mode(lambda x: ends(x)))
    (process,) = journal.read_text().splitlines()  # it was called once
    assert process in said or kind != "dask"
    assert "of functools.partial" in said or "exits" in said
    assert_next_call_works(kind)
    executors.close_dask()


@each_mode
def test_a_worker_that_ends_before_its_pool_watches_it(mode: Any, tmp_path: Path) -> None:
    given: Any = concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
    given.submit(time.sleep, 600)  # the pool ends it, too
    start = given._adjust_process_count

    def start_late() -> None:
        while given._executor_manager_thread_wakeup._reader.poll():
            pass
        start()

    given._adjust_process_count = start_late
    ends = functools.partial(functions.exits, str(tmp_path / "journal"))
    error = in_thread(mode(on(given, ends))).exception(PATIENCE)
    assert isinstance(hostcall.last_error(error), hostcall.ExecutorError)


@each_kind
def test_functions_and_arguments_that_cannot_be_sent(kind: str) -> None:
    lock = threading.Lock()
    holds = on(KINDS[kind], functools.partial(functions.holds_a_lock, lock))
    scaled = on(KINDS[kind], functions.scaled)
    because = "cannot pickle '_thread.lock' object"
    said = said_by(jitted(holds))
    assert_says(said, "cannot send the function of", "holds_a_lock", because)
    said = said_by(jitted(lambda x: scaled(x, factor=lock)))
    assert_says(said, "cannot send", "scaled", because)
    assert_next_call_works(kind)


@pytest.mark.pairwise
@each_kind
@pytest.mark.parametrize(
    ("function", "what"),
    [
        (functions.returns_a_lock, "returned a lock"),
        (functions.returns_what_cannot_be_read, "returned a Unreadable"),
        (functions.raises_what_cannot_be_sent, "raised HoldsALockError"),
        (functions.raises_what_cannot_be_read, "raised UnreadableError"),
    ],
)
@each_mode
def test_results_and_exceptions_that_cannot_be_sent(
    mode: Any, function: Callable[..., Any], what: str, kind: str
) -> None:
    program = on(KINDS[kind], function)
    said = said_by(mode(lambda x: program(x)))
    send = f"has {what}, and its worker cannot send that to this process"
    assert_says(said, send, function.__name__)
    if what == "raised HoldsALockError":
        assert_says(said, "sensor 5", "in raises_what_cannot_be_sent\n")
    assert_next_call_works(kind)


@pytest.mark.parametrize("kind", ["threads", "forkserver"])
@each_mode
def test_a_call_that_is_cancelled_in_the_queue(mode: Any, kind: str) -> None:
    pool = KINDS[kind]()
    held = [pool.submit(functions.lasts, 0.5) for _ in range(3)]  # processes take two at once
    double = on(pool, functions.doubled)
    called = in_thread(mode(lambda x: double(x)))
    while pool_size(pool) < 4:
        time.sleep(0.01)
    pool.shutdown(wait=False, cancel_futures=True)
    assert_says(said_by(called.result, PATIENCE), "was cancelled before", "of doubled (")
    assert "was shut down" in said_by(mode(double))
    assert held[0].result(PATIENCE) == 0.5
    assert_next_call_works(kind)


def pool_size(pool: Any) -> int:
    """Return how many calls the pool has been given that have not ended."""
    waiting = getattr(pool, "_work_queue", None)  # of threads, whose pool takes one out
    return len(pool._pending_work_items) if waiting is None else 1 + waiting.qsize()


@each_mode
def test_an_executor_of_dask_that_is_shut_down(mode: Any, tmp_path: Path) -> None:
    executor = KINDS["dask"]()
    called, victim = call_that_waits(executor, tmp_path, mode)
    executor.shutdown(wait=False)
    said = said_by(called.result, PATIENCE)
    os.kill(victim, signal.SIGKILL)
    assert "its client or its cluster was closed" in said
    assert "was shut down" in said_by(mode(on(executor, functions.doubled)))
    assert_next_call_works("dask")
    executors.close_dask()


def test_what_dask_loses(tmp_path: Path) -> None:
    """The only worker, the scheduler, the client; then a maker brings what is there again."""
    clients: list[Any] = []
    double = jitted(on(lambda: clients[-1].get_executor(pure=False), functions.doubled))
    with executors.separate_cluster(tmp_path) as (client, scheduler, worker):
        clients.append(client)
        executor = client.get_executor(pure=False)
        np.testing.assert_array_equal(double(X), 2.0 * X)
        (folder := tmp_path / "of the worker").mkdir()
        called, process = call_that_waits(executor, folder)
        worker.kill()
        assert f"(process {process})" in said_by(called.result, PATIENCE)
        assert worker.pid == process
        called = in_thread(jitted(on(executor, functions.doubled)))  # waits for a worker
        scheduler.kill()
        closed = "its client or its cluster was closed, or the connection"
        assert closed in said_by(called.result, PATIENCE)
        client.close()
        for program in (jitted(on(executor, functions.doubled)), double):
            assert_says(said_by(program), "was shut down: Client is closed", "of doubled (")
    clients.append(KINDS["dask"]()._client)
    np.testing.assert_array_equal(double(X), 2.0 * X)


def lose_worker_of_first_result(client: Any) -> None:
    """Have Dask kill the worker that has a result when it is about to fetch that, once."""
    fetch, workers = client._gather_remote, client.cluster.workers

    async def kill_and_fetch(*args: Any) -> Any:
        client._gather_remote = fetch
        (key,) = client._gather_keys
        ((address,),) = (await client.scheduler.who_has(keys=[key])).values()
        (victim,) = (worker for worker in workers.values() if worker.worker_address == address)
        os.kill(victim.pid, signal.SIGKILL)
        while address in (await client.scheduler.identity())["workers"]:
            await asyncio.sleep(0.01)
        return await fetch(*args)

    client._gather_remote = kill_and_fetch


@pytest.mark.parametrize("retries", [0, 1])
def test_a_result_that_is_lost_with_its_worker(retries: int) -> None:
    executor = KINDS["dask"]()
    np.testing.assert_array_equal(jitted(on(executor, functions.doubled))(X), 2.0 * X)
    lose_worker_of_first_result(executor._client)
    double = on(executor, functions.doubled, stateful=False, retries=retries)
    called = in_thread(jitted(lambda x: double(x)))
    if retries:
        np.testing.assert_array_equal(called.result(PATIENCE), 2.0 * X)
    else:
        assert "was lost before its result was here" in said_by(called.result, PATIENCE)
    assert_next_call_works("dask")
    executors.close_dask()


def test_a_client_of_dask_is_no_executor() -> None:
    with pytest.raises(TypeError, match=r"executor=client\.get_executor\(pure=False\)"):
        on(KINDS["dask"]()._client, functions.doubled)
    with pytest.raises(TypeError, match="neither an executor"):
        on(distributed, functions.doubled)


def test_a_plain_graph_within_a_call_on_a_full_pool_is_late() -> None:
    """TensorFlow does not tell its calls what they are part of."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        inner = plain(on(pool, functions.doubled, timeout=0.1))
        raised = hostcall.last_error(failure(jitted(on(pool, lambda x: inner(x).numpy())), X))
        late = "has not returned within its timeout of 0.1 s"
        assert_says(raised, late, "It had not begun on its executor")
        np.testing.assert_array_equal(plain(on(pool, functions.doubled))(X), 2.0 * X)


@pytest.mark.parametrize("route", ["auto", "partition"])
@pytest.mark.parametrize("size", [1, 2])
def test_calls_within_calls_of_several_threads(size: int, route: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(size) as pool, hostcall.scope(route=route):
        inner = jitted(on(pool, functions.doubled))
        middle = jitted(on(pool, lambda x: inner(x).numpy() + 1, stateful=False))
        outer = jitted(on(pool, lambda x: middle(x).numpy() + 1))
        for future in [in_thread(outer) for _ in range(4)]:
            np.testing.assert_array_equal(future.result(PATIENCE), 2.0 * X + 2.0)


def test_calls_of_jax_within_calls_on_a_full_pool() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        call = functools.partial(hostcall.jax.call, executor=pool)
        inner = jax.jit(lambda x: call(functions.doubled, x, x))
        outer = jax.jit(lambda x: call(lambda x: np.asarray(inner(x)) + 1, x, x))
        called = in_thread(lambda x: np.asarray(outer(x.numpy())))
        np.testing.assert_array_equal(called.result(PATIENCE), 2.0 * X + 1.0)


def test_a_call_waits_for_a_pool_that_works() -> None:
    """Its threads are in functions that wait for something else than a program."""
    go_on, begun = threading.Event(), threading.Event()
    running: list[str] = []

    def wait(x: Any) -> Any:
        running.append(threading.current_thread().name)
        begun.set()
        assert go_on.wait(PATIENCE)
        return x

    with concurrent.futures.ThreadPoolExecutor(1, "executor") as pool:
        program = jitted(on(pool, wait))
        calls = [in_thread(program) for _ in range(2)]
        assert begun.wait(PATIENCE)
        assert not concurrent.futures.wait(calls, 0.2).done
        assert running == ["executor_0"]
        go_on.set()
        for call in calls:
            np.testing.assert_array_equal(call.result(PATIENCE), X)
    assert running == ["executor_0"] * 2
