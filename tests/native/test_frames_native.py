"""The handler of native code, called with frames made by hand; Python answers some calls."""

import gc
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.support.native.frames import (
    CODES,
    INT64,
    Buffer,
    Outcome,
    Owner,
    assert_fails,
    call,
    native,
    run_python,
    runtime,
)

CODE = native.native_code
NATIVE = runtime.handlers()["hostcall_native"]

both_threads = pytest.mark.parametrize("foreign", [False, True], ids=["own", "foreign"])


def let_go(number: int) -> weakref.ref[Owner]:
    """Unregisters native code, and returns a reference to what was to own it as long as it runs."""
    owner = Owner()
    runtime.unregister_native(number, owner)
    return weakref.ref(owner)


def c_function(
    name: str, arguments: int, *, takes_sizes: bool = False, returns_status: bool = False
) -> int:
    number: int = runtime.register_c_function(
        f"the C function {name}", CODE[name], arguments, takes_sizes, returns_status
    )
    return number


def scale(fails: bool = False, factor: float = 2.0) -> int:
    attributes = [
        ("word", 0, "grüße, länger als sechzehn".encode()),
        ("factor", CODES[np.dtype(np.float64)], struct.pack("d", factor)),
        ("fails", CODES[np.dtype(np.bool_)], struct.pack("?", fails)),
        ("offset", INT64, struct.pack("q", -1)),
    ]
    number: int = runtime.register_ffi_handler("the handler", CODE["scale"], attributes)
    return number


def call_native(number: int, *args: Any, **kwargs: Any) -> Outcome:
    said = [("callback", INT64, True, [number])]
    return call(number, *args, said=said, entry=NATIVE, **kwargs)


X = np.array([1.0, 2.0, 3.0], np.float32)


@both_threads
@pytest.mark.parametrize("token", [False, True], ids=["no token", "token"])
def test_c_functions(token: bool, foreign: bool) -> None:
    add_one = c_function("add_one", 3, takes_sizes=True)
    done = call_native(add_one, [Buffer.of(X)], [Buffer.result((3,))], token=token, foreign=foreign)
    done.assert_returned(X + 1)


@both_threads
def test_a_status_is_an_error(foreign: bool) -> None:
    status = c_function("status", 1, returns_status=True)
    for value in (0, 1, -7):
        done = call_native(status, [Buffer.of(np.int32(value))], token=True, foreign=foreign)
        said = f"returned status {value}, and not 0", "This is the C function status."
        assert_fails(done, 2, *said) if value else done.assert_returned()
    ignored = c_function("status", 1)
    assert call_native(ignored, [Buffer.of(np.int32(5))]).code == 0


def test_other_numbers_of_buffers_than_arguments() -> None:
    add_one = c_function("add_one", 3, takes_sizes=True)
    for shape, results in (((3,), 2), ((3,), 0), ((3, 1), 1)):
        operand = Buffer.of(np.zeros(shape, np.float32))
        done = call_native(add_one, [operand], [Buffer.result(shape)] * results)
        done.assert_fails_untouched(3, "a native function of 3 arguments was to be called with")
    with pytest.raises(ValueError, match="too many arguments"):
        c_function("add_one", runtime.MAX_NATIVE_ARGUMENTS + 1)


@both_threads
@pytest.mark.parametrize("token", [False, True], ids=["no token", "token"])
def test_handlers(token: bool, foreign: bool) -> None:
    done = call_native(scale(), [Buffer.of(X)], [Buffer.result((3,))], token=token, foreign=foreign)
    done.assert_returned(X * 2 - 1)
    failed = call_native(scale(fails=True), [Buffer.of(X)], [Buffer.result((3,))], token=token)
    assert (failed.code, failed.message) == (15, "grüße, länger als sechzehn")
    wrong = call_native(scale(), [Buffer.of(X.astype(np.float64))], [Buffer.result((3,))])
    assert_fails(wrong, 3, "Wrong buffer dtype")
    with pytest.raises(ValueError, match="wrong size"):
        runtime.register_ffi_handler("", CODE["scale"], [("x", INT64, bytes(17))])


def test_malformed_frames() -> None:
    for said in ([], [("callback", 11, True, [1])], [("callback", INT64, False, [1])]):
        assert call(0, said=said, entry=NATIVE).code == 3
    assert call_native(c_function("wait", 0), stage=1).code == 3


@both_threads
def test_code_that_is_gone(foreign: bool) -> None:
    add_one = c_function("add_one", 3, takes_sizes=True)
    assert let_go(add_one)() is None
    done = call_native(add_one, [Buffer.of(X)], [Buffer.result((3,))], foreign=foreign)
    done.assert_fails_untouched(9, f"host callback with the id {add_one} is gone")
    let_go(add_one)  # once more is not an error
    assert c_function("add_one", 3) > add_one


def test_no_id_is_that_of_an_entry_that_is_free() -> None:
    for _ in range(1100):  # each entry of the table was used
        let_go(c_function("status", 1, returns_status=True))
    outcome = call_native(0, [Buffer.of(np.int32(0))])
    assert "with the id 0 is gone" in outcome.message


@both_threads
def test_a_call_under_way_keeps_what_holds_the_code(foreign: bool) -> None:
    wait = c_function("wait", 0)
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(call_native, wait, foreign=foreign)
        native.await_call()
        alive = let_go(wait)
        gc.collect()
        assert alive() is not None
        native.let_go()
        assert outcome.result().code == 0
    assert alive() is None


@both_threads
@pytest.mark.parametrize("depth", [0, 1, 7, 8, 9, 20])
def test_a_call_within_calls_keeps_what_holds_the_code(depth: int, foreign: bool) -> None:
    outer, inner = (c_function("status", 1, returns_status=True) for _ in range(2))
    owners: list[weakref.ref[Owner]] = []

    def call_status(number: int) -> None:
        assert call_native(number, [Buffer.of(np.int32(0))], foreign=foreign).code == 0

    numbers = iter([*[outer] * (depth - 1), inner])

    def nested(arrays: list[Any], run: Callable[[], Any]) -> Any:
        call_status(next(numbers))
        return run()

    def innermost(arrays: list[Any], run: Callable[[], Any]) -> Any:
        owners.append(let_go(inner))
        gc.collect()
        assert owners[0]() is not None
        return run()

    runtime.answer_native(outer, nested)
    runtime.answer_native(inner, innermost)
    call_status(outer if depth > 0 else inner)
    assert [owner() for owner in owners] == [None]


def test_a_forked_child_lets_go_of_code_too() -> None:
    done = run_python("-m", "tests.support.native.forked", "before_native_code_is_let_go_of")
    assert done.returncode == 0, done.stderr


def test_an_asynchronous_call_keeps_it_for_ever() -> None:
    later = runtime.register_ffi_handler("later", CODE["later"], [])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call_native, later)
        native.await_call()
        alive = let_go(later)
        native.let_go()
        outcome = waiting.result()
    assert (outcome.code, outcome.message) == (10, "late")
    assert alive() is not None
    assert native.live_objects() == 0


def test_code_that_comes_and_goes_while_threads_call_it() -> None:
    ids: list[int] = []
    owners: list[weakref.ref[Owner]] = []
    done = threading.Event()

    def keep_calling() -> None:
        while not done.is_set():
            for number in ids[-3:]:
                outcome = call_native(number, [Buffer.of(np.int32(0))])
                assert outcome.code == 0 or "is gone" in outcome.message

    with ThreadPoolExecutor(4) as pool:
        calling = [pool.submit(keep_calling) for _ in range(4)]
        for _ in range(300):
            number = c_function("status", 1, returns_status=True)
            ids.append(number)
            runtime.answer_native(number, lambda arrays, run: run())
            runtime.answer_native(number, None)
            owners.append(let_go(number))
        done.set()
        for one in calling:
            one.result()
    gc.collect()
    assert [owner for owner in owners if owner() is not None] == []


def test_nothing_leaks_of_calls() -> None:
    numbers = [c_function("status", 1, returns_status=True), scale(fails=True)]
    for number in numbers * 10:
        call_native(number, [Buffer.of(np.int32(1))], [])
    assert native.live_objects() == 0
    for number in numbers:
        let_go(number)


Answer = Callable[[list[Any], Callable[[], Any]], Any]


@pytest.fixture
def add_one() -> Iterator[int]:
    number = c_function("add_one", 3, takes_sizes=True)
    yield number
    let_go(number)


def answered(number: int, answer: Answer | None, foreign: bool = False) -> Outcome:
    runtime.answer_native(number, answer)
    return call_native(number, [Buffer.of(X)], [Buffer.result((3,))], foreign=foreign)


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
    answered(add_one, answer, foreign).assert_fails_untouched(code, text)


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


def test_owners_and_answers_are_let_go(add_one: int) -> None:
    answer = Owner()
    watched = [weakref.ref(answer)]

    def drop(args: list[Any], run: Callable[[], Any], held: Any = answer) -> Any:
        watched.append(let_go(add_one))
        gc.collect()
        assert watched[1]() is not None  # the code is still to run
        return run()

    done = answered(add_one, drop)
    np.testing.assert_array_equal(done.array(), X + 1)
    del drop, answer
    gc.collect()
    assert [it() for it in watched] == [None, None]
    runtime.answer_native(add_one, lambda args, run: args)  # of no id: no error
