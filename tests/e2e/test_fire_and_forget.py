"""`wait=False`: programs hand calls over and go on; the calls run in order, and are never lost."""

from __future__ import annotations

import concurrent.futures
import itertools
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hostcall
from hostcall_runtime import _fire_and_forget
from tests.support import executor_functions as functions
from tests.support.helpers import assert_says, eagerly, failure, jitted, partitioned, plain
from tests.support.process_pools import end_pools, one_process
from tests.support.threads import PATIENCE, in_threads
from tests.support.versions import on_the_callers_thread

X = tf.constant([1.0, 2.0, 3.0])


gates: list[Gate] = []
numbers = itertools.count()
each_mode = pytest.mark.parametrize("mode", [plain, jitted, eagerly, partitioned])
# Where it is partitioned, threads of TensorFlow's wait, and the main one for them.
WAITS_ITSELF = [on_the_callers_thread, pytest.mark.cpu("the function is partitioned")]
each_kind = pytest.mark.parametrize("kind", ["numpy", "eager"])


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    for gate in gates:
        gate.may_end.set()
    gates.clear()
    hostcall.barrier(PATIENCE)


def later(function: Callable[..., Any], **how: Any) -> Any:
    return hostcall.callback(function, result=[], wait=False, **how)


def call(callback: Any, *args: Any) -> None:
    """In a graph a callback without results returns its op."""
    callback(*args)


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a name of its own, by which `row_of` finds it."""
    function.__qualname__ += f"_{next(numbers)}_"
    return function


def row_of(function: Callable[..., Any]) -> hostcall.UnawaitedStats:
    rows = [row for row in hostcall.stats().unawaited if function.__qualname__ in row.callback]
    return rows[0] if rows else hostcall.UnawaitedStats("")


class Gate:
    """A function that begins, and does not end until it may."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self.seen: list[Any] = []
        gates.append(self)

    def __call__(self, x: Any) -> Any:
        self.has_begun.set()
        assert self.may_end.wait(PATIENCE)
        self.seen.append(np.array(x))
        return [x, {"a": object()}]  # is thrown away

    def open(self) -> None:
        self.may_end.set()
        hostcall.barrier()


def behind(hold: Any, log: Any) -> Callable[[tf.Tensor], None]:
    """A program with as many calls behind one that holds them as it is told."""

    def program(n: tf.Tensor) -> None:
        call(hold, n)
        for i in tf.range(n):
            call(log, i)

    return program


@each_mode
def test_calls_of_several_functions_run_in_the_order_of_the_program(mode: Any) -> None:
    journal: list[Any] = []
    threads = set()

    def noting(tag: str) -> Any:
        def note(*values: Any) -> None:
            journal.append((tag, *map(float, values)))
            threads.add(threading.current_thread().name)

        return hostcall.declare(note, wait=False)

    first, second = (later(noting(tag)) for tag in ("first", "second"))
    stock = noting("stock")

    def program(x: tf.Tensor) -> tf.Tensor:
        for i in tf.range(3):
            call(first, i)
            if i == 1:
                call(second, x[0], i)
            tf.numpy_function(stock, [x[1]], [])
            tf.py_function(stock, [x[2]], [])
            tf.numpy_function(stock, [], [])
            x = x + 1.0
        return x

    np.testing.assert_array_equal(mode(program)(X), X + 3.0)
    hostcall.barrier()
    each = [[("first", i), ("stock", 2 + i), ("stock", 3 + i), ("stock",)] for i in range(3)]
    each[1].insert(1, ("second", 2, 1))
    assert journal == [entry for entries in each for entry in entries]
    assert threads == {"hostcall"}


@each_mode
@each_kind
def test_a_program_does_not_wait(kind: str, mode: Any) -> None:
    gate = Gate()
    log = later(gate, kind=kind)

    def program(x: tf.Tensor) -> tf.Tensor:
        call(log, x)
        return 2.0 * x

    run = mode(program)
    np.testing.assert_array_equal(run(run(X)), 4.0 * X)
    assert gate.has_begun.wait(PATIENCE)
    assert gate.seen == []
    with pytest.raises(TimeoutError, match=r"of .*Gate.* which runs; 1 of .*Gate[^$]*in __call__"):
        hostcall.barrier(0.01)
    gate.open()
    np.testing.assert_array_equal(gate.seen, [X, 2.0 * X])


@each_mode
@each_kind
def test_functions_have_copies(kind: Any, mode: Any) -> None:
    gate, variable = Gate(), tf.Variable(tf.ones([2000]))
    log, later_values = later(gate, kind=kind), []
    reads = later(lambda: later_values.append(float(variable[0])), kind="eager")

    def program(x: tf.Tensor) -> tf.Tensor:
        call(log, x)
        call(log, variable)
        call(reads)
        return variable.assign_add(tf.ones([2000]))

    run = mode(program)
    for _ in range(3):
        run(tf.zeros([2000]))
    gate.open()
    np.testing.assert_array_equal([seen[0] for seen in gate.seen], [0, 1, 0, 2, 0, 3])
    assert later_values == [4.0] * 3  # what a function reads itself is what it is by then


@each_mode
def test_functions_may_write_to_what_they_are_given(mode: Any) -> None:
    def spoils(x: np.ndarray) -> None:
        x[:] = -1.0

    spoil = later(spoils)
    hostcall.declare(spoils, wait=False)

    def program(x: tf.Tensor) -> tf.Tensor:
        y = x + 1.0
        call(spoil, y)
        tf.numpy_function(spoils, [x], [])
        hostcall.callback(hostcall.barrier, result=[])()
        return x, y

    x, y = mode(program)(tf.constant([3.0] * 2000))
    np.testing.assert_array_equal(x, [3.0] * 2000)
    np.testing.assert_array_equal(y, [4.0] * 2000)


@each_mode
def test_dtypes_strings_and_structures_arrive(mode: Any) -> None:
    seen: list[Any] = []
    log = later(lambda *values, **keywords: seen.append((*values, keywords)))

    def program(x: tf.Tensor) -> None:
        call(log, tf.cast(x, tf.bfloat16), tf.cast(x, tf.complex64), tf.cast(x, tf.int8))
        log({"a": x, "b": [x[0]]}, scale=2.0)
        call(log, tf.constant(["a", "bc"]), "lone")

    mode(program)(X)
    hostcall.barrier()
    (*numbers, _), (structure, keywords), (strings, lone, _) = seen
    assert [each.dtype for each in numbers] == [tf.bfloat16, np.complex64, np.int8]
    np.testing.assert_array_equal(numbers[0].astype(np.float32), X)
    np.testing.assert_array_equal(structure["a"], X)
    assert (structure["b"], keywords) == ([1.0], {"scale": 2.0})
    assert (list(strings), lone) == ([b"a", b"bc"], b"lone")


@each_mode
def test_a_full_queue_has_programs_wait(mode: Any) -> None:
    most: list[int] = []
    gate = Gate()

    @named
    def note(x: Any) -> None:
        row = row_of(note)
        most.append(row.handed_over - row.run)

    program = mode(behind(later(gate), later(note, queue=2)))
    runs = threading.Thread(target=program, args=[tf.constant(20)])
    runs.start()
    while row_of(note).waiting < 2:
        assert runs.is_alive()
    assert runs.is_alive()
    gate.may_end.set()
    runs.join(PATIENCE)
    hostcall.barrier()
    assert len(most) == 20
    assert max(most) <= 3  # two that wait, and the one that runs


@pytest.mark.full_run("sends a signal")
@pytest.mark.parametrize("mode", [pytest.param(jitted, marks=WAITS_ITSELF), eagerly])
def test_ctrl_c_ends_the_wait_for_room(mode: Any) -> None:
    gate = Gate()

    @named
    def note(x: Any) -> None:
        gate(x)

    log = later(note, queue=1)
    run = mode(lambda x: call(log, x))
    run(X)
    assert gate.has_begun.wait(PATIENCE)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    who = threading.Thread(target=interrupt_main_thread_that_waits_for_room)
    who.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            [run(X) for _ in range(2)]
    finally:
        who.join()
        signal.signal(signal.SIGINT, before)
    gate.open()
    run(X)
    hostcall.barrier()
    assert len(gate.seen) == 3  # without the one that has waited for room


def interrupt_main_thread_that_waits_for_room() -> None:
    """Not before: finalizers of TensorFlow's, where one would be lost, run at the end of a call."""
    while not _fire_and_forget._moved._waiters:  # type: ignore[attr-defined]
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # which does not end a wait of Python


@each_mode
def test_a_full_queue_drops_the_oldest(mode: Any) -> None:
    seen: list[int] = []
    gate = Gate()
    note = named(lambda i: seen.append(int(i)))
    log = later(note, queue=2, when_full="drop_oldest")
    mode(behind(later(gate), log))(tf.constant(10))
    gate.open()
    assert seen == [8, 9]
    row = row_of(note)
    assert (row.handed_over, row.run, row.errors, row.dropped, row.waiting) == (10, 2, 0, 8, 0)
    hostcall.stats(reset=True)
    assert row_of(note).handed_over == 0


@each_mode
@each_kind
def test_the_next_call_raises_once(kind: str, mode: Any) -> None:
    seen: list[Any] = []

    @named
    def fails(x: Any) -> None:
        seen.append(float(x))
        if x < 0.0:
            raise functions.SimulatorError(7)

    log, other = later(fails, kind=kind), later(lambda x: None)
    run = mode(lambda x: (call(other, x), call(log, x), x + 1.0)[2])
    run(tf.constant(-1.0))
    while not row_of(fails).errors:
        pass
    error = failure(run, tf.constant(1.0))
    assert isinstance(error, tf.errors.InvalidArgumentError)  # as for any ValueError
    early = "raised by an earlier call, which no program waited for"
    assert_says(error.message, early, "in fails\n")
    raised = hostcall.last_error(error)
    assert isinstance(raised, functions.SimulatorError)
    assert raised.sensor == 7
    assert run(tf.constant(2.0)) == 3.0
    hostcall.barrier()
    assert seen == [-1.0, 2.0]  # the call that has told of the other one was not made


def test_the_barrier_raises_what_nobody_was_told() -> None:
    def fails(x: Any) -> None:
        raise KeyError(int(x))

    gate = Gate()
    log, hold = later(fails), later(gate)
    run = jitted(lambda x: call(log, x))
    run(1)
    with pytest.raises(KeyError, match="1") as caught:
        hostcall.barrier()
    (note,) = caught.value.__notes__
    assert_says(note, ".fails (", "test_fire_and_forget.py")
    hostcall.barrier()
    hold(1)
    for x in (1, 2):
        run(x)
    gate.may_end.set()
    two = "2 failed calls that no program waited for"
    with pytest.raises(ExceptionGroup, match=two) as several:
        hostcall.barrier()
    assert [error.args for error in several.value.exceptions] == [(1,), (2,)]
    hostcall.barrier()


def test_functions_that_end_their_thread_do_not_end_the_queue() -> None:
    def ends(x: Any) -> None:
        raise SystemExit(3)

    seen: list[Any] = []
    jitted(lambda x: (call(later(ends), x), call(later(seen.append), x))[1])(1.0)
    with pytest.raises(BaseExceptionGroup, match="1 failed call ") as caught:
        hostcall.barrier()  # which does not end the process either
    assert isinstance(caught.value.exceptions[0], SystemExit)
    assert seen == [1.0]


@each_mode
def test_late_calls_are_errors_of_theirs(mode: Any) -> None:
    gate = Gate()
    seen: list[Any] = []
    hold, log = later(gate, timeout=1.0), later(seen.append)
    mode(lambda x: (call(hold, x), call(log, x))[1])(1.0)
    with pytest.raises(TimeoutError, match=r"timeout of 1\.0 s[^$]*in __call__"):
        hostcall.barrier()
    assert seen == [1.0]
    gate.may_end.set()


@each_mode
def test_calls_of_an_executor_run_one_by_one(mode: Any) -> None:
    seen: list[tuple[str, int]] = []
    at_once = threading.Lock()

    def note(i: Any) -> None:
        assert at_once.acquire(blocking=False)
        seen.append((threading.current_thread().name[:4], int(i)))
        at_once.release()

    with concurrent.futures.ThreadPoolExecutor(4, "pool") as pool:
        one, other = later(note, executor=pool), later(lambda i: note(i), executor=pool)

        def program(n: tf.Tensor) -> None:
            for i in tf.range(n):
                call(one, 2 * i)
                call(other, 2 * i + 1)

        mode(program)(tf.constant(10))
        hostcall.barrier()
    assert seen == [("pool", i) for i in range(20)]


def test_calls_of_other_processes() -> None:
    def on_process(function: Any, *args: Any) -> None:
        log = later(function, executor=one_process)
        for arg in args:
            jitted(lambda x: call(log, x))(arg)
        hostcall.barrier()

    result = hostcall.BoundedSpec([9], tf.float32)
    journal = hostcall.callback(functions.journal, result=result, executor=one_process)
    on_process(functions.counted, 0.0, 1.0, 2.0)
    np.testing.assert_array_equal(jitted(journal)(X), [0.0, 1.0, 2.0])
    with pytest.raises(functions.SimulatorError):
        on_process(functions.fails, 5.0)
    with pytest.raises(hostcall.ExecutorError, match="has broken"):
        on_process(functions.ends, X)
    on_process(functions.counted, 0.0)
    np.testing.assert_array_equal(jitted(journal)(X), [0.0])
    end_pools()


def test_an_executor_that_is_none_is_told_at_once() -> None:
    log = later(functions.doubled, executor=lambda: 3)
    error = failure(jitted(lambda x: call(log, x)), X)
    assert isinstance(hostcall.last_error(error), hostcall.ExecutorError)


def nested(inner_mode: Any, seen: list[int], **how: Any) -> Any:
    """A callback that runs a program with more calls than its queue has room for."""
    log = later(lambda i: seen.append(int(i)), queue=1)

    @inner_mode
    def inner(n: tf.Tensor) -> None:
        for i in tf.range(n):
            call(log, i)

    return later(lambda n: inner(int(n)), kind="eager", **how)


@each_mode
@pytest.mark.parametrize("inner_mode", [eagerly, jitted, partitioned])
def test_functions_may_hand_over_calls_to_a_full_queue(inner_mode: Any, mode: Any) -> None:
    seen: list[int] = []
    outer = nested(inner_mode, seen)
    mode(lambda n: call(outer, n))(tf.constant(5))
    hostcall.barrier()
    hostcall.barrier()  # of what the functions themselves have handed over
    assert seen == [0, 1, 2, 3, 4]


def test_a_plain_graph_that_waits_for_room_in_its_own_queue_is_late() -> None:
    """TensorFlow does not tell its calls what they are part of."""
    seen: list[int] = []
    outer = nested(plain, seen, timeout=0.1)
    jitted(lambda n: call(outer, n))(tf.constant(3))
    with pytest.raises(TimeoutError, match=r"timeout of 0\.1 s"):
        hostcall.barrier()
    while len(seen) < 3:
        hostcall.barrier()


@pytest.mark.parametrize("inner_mode", [eagerly, jitted, partitioned])
def test_a_barrier_that_would_wait_for_itself_is_an_error(inner_mode: Any) -> None:
    @inner_mode
    def wait(x: tf.Tensor) -> None:
        tf.numpy_function(hostcall.barrier, [], [])

    log = later(lambda x: wait(x), kind="eager")
    jitted(lambda x: call(log, x))(X)
    with pytest.raises(Exception, match="would wait for itself"):
        hostcall.barrier()


def test_programs_of_several_threads() -> None:
    seen: list[Any] = []
    log = later(lambda t, i: seen.append((int(t), int(i))), queue=3)

    @jitted
    def program(t: tf.Tensor, n: tf.Tensor) -> None:
        for i in tf.range(n):
            call(log, t, i)

    in_threads(4, lambda t: program(tf.constant(t), tf.constant(50)))
    hostcall.barrier()
    for t in range(4):
        assert [i for thread, i in seen if thread == t] == list(range(50))


kept: list[float] = []


def keeps(x: Any) -> None:
    kept.append(float(x))


def test_saved_models_do_as_is_declared_where_they_are_loaded(tmp_path: Any) -> None:
    module = tf.Module()
    module.step = jitted(lambda x: (tf.numpy_function(keeps, [x], []), x + 1.0)[1])
    assert module.step(tf.constant(1.0)) == 2.0
    assert kept == [1.0]
    tf.saved_model.save(module, str(tmp_path))
    hostcall.declare(keeps, wait=False)
    hostcall.provide(f"{__name__}:keeps", keeps)
    loaded = tf.saved_model.load(str(tmp_path))
    gate = Gate()
    later(gate)(1.0)
    assert loaded.step(tf.constant(2.0)) == 3.0
    gate.open()
    assert kept == [1.0, 2.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wait": 0}, "wait=0 is neither True nor False"),
        ({"wait": False, "queue": 0}, "queue=0 is not a positive number"),
        ({"wait": False, "queue": 2.5}, r"queue=2\.5 is not a positive number"),
        ({"wait": False, "when_full": "drop"}, "when_full='drop' is neither"),
        ({"queue": 3}, "queue=3 is for calls that no program waits for"),
        ({"when_full": "drop_oldest"}, "when_full='drop_oldest' is for calls"),
        ({"wait": False, "borrow": True}, "borrow=True lends"),
        ({"wait": False, "out": True}, "out=True has the function write"),
        ({"wait": False, "memo": True}, "memo=True keeps"),
        ({"wait": False, "pure": True}, "pure=True says"),
    ],
)
def test_what_makes_no_sense_is_refused(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        hostcall.declare(lambda x: None, **options)
    if options.get("memo"):
        options = {**options, "stateful": False}
    with pytest.raises((TypeError, ValueError), match=message):
        hostcall.callback(lambda x: None, result=[], **options)


@each_mode
def test_functions_with_results_are_refused(mode: Any) -> None:
    def add(x: Any) -> Any:
        return x + 1

    hostcall.declare(add, wait=False)
    said = r"add \([^$]*without results[^$]*1 result \(float32\)"
    for op in (tf.numpy_function, tf.py_function):
        with pytest.raises(ValueError, match=said):
            mode(lambda x, op=op: op(add, [x], tf.float32))(X)
    log = hostcall.callback(add, result=lambda x: x, wait=False)
    with pytest.raises(ValueError, match="without results"):
        mode(log)(X)
    with pytest.raises(ValueError, match="XLA would leave it out"):
        mode(lambda x: tf.numpy_function(add, [x], [], stateful=False))(X)
