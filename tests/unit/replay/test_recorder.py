"""plugin/hostcall/_replay/recorder.py and replayer.py: threads, processes and interrupts."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hostcall._replay.calls import ReplayError
from hostcall._replay.recorder import Recorder
from hostcall._replay.replayer import Reader, Replayer
from hostcall_runtime import _interception
from hostcall_runtime._interception import Site
from tests.support.threads import in_threads

X = np.array([1.0, 2.0])
PURE = Site("module:pure", "pure", ordered=False)
ORDERED = Site("module:stateful", "stateful")


@contextlib.contextmanager
def recording(file: str) -> Iterator[Recorder]:
    recorder = Recorder(file, overwrite=False)
    yield recorder
    recorder.close()


def refused(replayer: Replayer, site: Site, *args: Any) -> str:
    with pytest.raises(ReplayError) as error:
        replayer.call(site, np.negative, args, {})
    return str(error.value)


def test_calls_that_overlapped_come_in_any_order(file: str) -> None:
    both = threading.Barrier(2)

    def meet(x: Any) -> Any:
        both.wait()
        return -x

    with recording(file) as recorder:
        for first in (1, 3):
            in_threads(2, lambda i, n=first: recorder.call(ORDERED, meet, [X + n + i], {}))  # type: ignore[misc]
    replayer = Replayer(file)
    for i in (2, 1, 4, 3):
        np.testing.assert_array_equal(replayer.call(ORDERED, np.abs, [X + i], {}), -X - i)
    replayer.close(None)
    replayer = Replayer(file)
    assert "come in another order" in refused(replayer, ORDERED, X + 3)


def test_a_call_is_found_behind_many_alike_of_another_op(file: str) -> None:
    first, second = (
        Site("module:pure", "pure", np.negative, node, ordered=False) for node in ("a", "b")
    )
    with recording(file) as recorder:
        for _ in range(100):
            recorder.call(first, np.negative, [X], {})
        recorder.call(second, np.abs, [X], {})
    np.testing.assert_array_equal(Replayer(file).call(second, np.exp, [X], {}), X)


def test_functions_that_nothing_tells_apart_are_refused(file: str) -> None:
    both = threading.Barrier(2)

    def function(sign: int) -> Any:
        return lambda x: (both.wait(), sign * x)[1]

    functions = [function(1), function(-1)]
    sites = [Site("module:<lambda>", "a lambda", each, ordered=False) for each in functions]
    with recording(file) as recorder:
        in_threads(2, lambda i: recorder.call(sites[i], functions[i], [X], {}))
    replayer = Replayer(file)
    text = refused(replayer, Site("module:<lambda>", "a lambda", ordered=False), X)
    assert "calls 1 and 2 of it have these arguments" in text
    assert "hostcall.callback(..., name=...)" in text


def test_arguments_that_cannot_be_recorded_are_told_of(file: str) -> None:
    class Elsewhere:
        """An array on a device."""

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise TypeError("NumPy cannot read it")

    told = pytest.warns(RuntimeWarning, match=r"pure takes what cannot be recorded: .*Elsewhere")
    with recording(file) as recorder, told:
        assert recorder.call(PURE, lambda x: 7, [Elsewhere()], {}) == 7
    assert Replayer(file).call(PURE, lambda x: 8, [Elsewhere()], {}) == 7


def test_an_interrupt_is_no_result(file: str) -> None:
    def interrupted(x: Any) -> Any:
        raise KeyboardInterrupt

    with recording(file) as recorder, pytest.raises(KeyboardInterrupt):
        recorder.call(PURE, interrupted, [X], {})
    assert Reader(file).calls == []


def test_a_call_that_has_not_ended_is_told_of(file: str) -> None:
    recorder = Recorder(file, overwrite=False)
    began, go_on = threading.Event(), threading.Event()
    results: list[Any] = []

    def wait(x: Any) -> Any:
        began.set()
        go_on.wait()
        return -x

    thread = threading.Thread(
        target=lambda: results.append(recorder.call(PURE, wait, [X], {})), daemon=True
    )
    thread.start()
    began.wait()
    with pytest.warns(RuntimeWarning, match="1 call had not ended at the end"):
        recorder.close()
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(results, [-X])
    np.testing.assert_array_equal(recorder.call(PURE, np.negative, [X], {}), -X)
    assert Reader(file).calls == []


def test_a_forked_process_does_not_replay(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(file) as recorder:
        recorder.call(PURE, np.negative, [X], {})
    replayer = Replayer(file)
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert "in a forked process" in refused(replayer, PURE, X)


def test_a_function_in_another_module_answers_where_it_is_the_only_one(file: str) -> None:
    with recording(file) as recorder:
        recorder.call(PURE, np.negative, [X], {})
    for name in ("other:pure", "pure"):
        replayer = Replayer(file)
        found = replayer.call(Site(name, "pure"), np.abs, [X], {})
        np.testing.assert_array_equal(found, -X)
    assert "no call of a function" in refused(Replayer(file), Site("module:other", "other"), X)


def test_threads_of_a_call_are_within_it(file: str) -> None:
    def inner() -> None:
        recorder.call(PURE, np.negative, [X], {})

    def outer(x: Any) -> Any:
        thread = threading.Thread(target=_interception.carried(inner))
        thread.start()
        thread.join()
        with contextlib.suppress(ValueError):
            _interception.carried(int)("no number")
        inner()
        return x

    with recording(file) as recorder:
        recorder.call(ORDERED, outer, [X], {})
        inner()
    reader = Reader(file)
    assert [reader.names[call.callback] for call in reader.calls] == ["module:stateful", PURE.name]
