"""Native code whose calls Python answers, with frames made by hand."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.native.test_frames_native import Owner, X, both_threads, c_function, call_native, scale
from tests.support.native.frames import Buffer, Outcome, runtime

Answer = Callable[[list[Any], Callable[[], Any]], Any]


@pytest.fixture
def add_one() -> Iterator[int]:
    number = c_function("add_one", 3, takes_sizes=True)
    yield number
    runtime.unregister_native(number, Owner())


def answered(number: int, answer: Answer | None, foreign: bool = False) -> Outcome:
    runtime.answer_native(number, answer)
    return call_native(number, [Buffer.of(X)], [Buffer.result((3,))], foreign=foreign)


@both_threads
def test_python_answers_or_calls_the_code(add_one: int, foreign: bool) -> None:
    seen: list[Any] = []

    def run_it(args: list[Any], run: Callable[[], Any]) -> Any:
        results = run()
        seen.append((args, results))
        return [results[0] * 100]  # what the code has written counts

    done = answered(add_one, run_it, foreign)
    np.testing.assert_array_equal(done.array(), X + 1)
    [([given], [result])] = seen
    np.testing.assert_array_equal(given, X)
    np.testing.assert_array_equal(result, X + 1)
    done = answered(add_one, lambda args, run: [args[0] * 5], foreign)
    np.testing.assert_array_equal(done.array(), X * 5)
    done = answered(add_one, None, foreign)
    np.testing.assert_array_equal(done.array(), X + 1)


@both_threads
@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (lambda args, run: (9, "not \0 recorded"), 9, r"not \x00 recorded"),
        (lambda args, run: [], 3, "shape (0,)"),
        (lambda args, run: [X, X], 3, "2 values"),
        (lambda args, run: [X.astype(np.float64)], 3, "is double, but expects float"),
        (lambda args, run: [X[:2]], 3, "shape (2,)"),
        (lambda args, run: None, 3, "0 values"),
        (lambda args, run: [None], 13, "is None"),
        (lambda args, run: 1 / 0, 13, "ZeroDivisionError"),
        (lambda args, run: ("no code", "text"), 13, ""),
    ],
)
def test_answers_that_will_not_do(
    add_one: int, foreign: bool, answer: Answer, code: int, text: str
) -> None:
    done = answered(add_one, answer, foreign)
    assert done.code == code, done.message
    assert text in done.message
    assert done.untouched


def test_the_code_runs_once_and_within_the_call(add_one: int) -> None:
    kept: list[Any] = []

    def twice(args: list[Any], run: Callable[[], Any]) -> Any:
        kept.append(run)
        run()
        with pytest.raises(RuntimeError, match="can be made once"):
            run()
        raise KeyError("after the code has run")

    done = answered(add_one, twice)
    np.testing.assert_array_equal(done.array(), X + 1)
    with pytest.raises(RuntimeError, match="can be made once, in the call"):
        kept[0]()
    done = answered(add_one, lambda args, run: kept.append(run) or [args[0]])
    np.testing.assert_array_equal(done.array(), X)
    with pytest.raises(RuntimeError, match="can be made once, in the call"):
        kept[1]()


@both_threads
def test_errors_of_the_code_are_the_programs(foreign: bool) -> None:
    told: list[str] = []

    def run_it(args: list[Any], run: Callable[[], Any]) -> Any:
        try:
            return run()
        except RuntimeError as error:
            told.append(str(error))
            return 9, "something else"

    status = c_function("status", 1, returns_status=True)
    plain = call_native(status, [Buffer.of(np.int32(7))], foreign=foreign)
    runtime.answer_native(status, run_it)
    done = call_native(status, [Buffer.of(np.int32(7))], foreign=foreign)
    assert (done.code, done.message) == (plain.code, plain.message)
    fails = scale(fails=True)
    plain = call_native(fails, [Buffer.of(X)], [Buffer.result((3,))], foreign=foreign)
    runtime.answer_native(fails, run_it)
    done = call_native(fails, [Buffer.of(X)], [Buffer.result((3,))], foreign=foreign)
    assert (done.code, done.message) == (plain.code, plain.message)
    assert len(told) == 2
    assert all(told)


def test_owners_and_answers_are_let_go(add_one: int) -> None:
    owner, answer = Owner(), Owner()
    watched = weakref.ref(owner), weakref.ref(answer)

    def drop(args: list[Any], run: Callable[[], Any], held: Any = answer) -> Any:
        nonlocal owner
        runtime.unregister_native(add_one, owner)
        del owner
        gc.collect()
        assert watched[0]() is not None  # the code is still to run
        return run()

    done = answered(add_one, drop)
    np.testing.assert_array_equal(done.array(), X + 1)
    del drop, answer
    gc.collect()
    assert [it() for it in watched] == [None, None]
    runtime.answer_native(add_one, lambda args, run: args)  # of no id: no error
