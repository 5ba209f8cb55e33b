"""Calls that nobody waits for, where a process ends or forks: none is lost, none runs twice."""

from collections.abc import Callable

import pytest

from tests.support.stress.template import Template

pytestmark = pytest.mark.full_run("ends processes, by signals too")

BEGIN = """
import concurrent.futures, multiprocessing, os, signal, sys, threading
import tensorflow as tf, hostcall
from hostcall_runtime import _fire_and_forget

def later(function, **how):
    callback = hostcall.callback(function, result=[], wait=False, **how)
    @tf.function(jit_compile=True, autograph=False)
    def program(n):
        for i in range(n):
            callback(tf.constant(i))
    return program

def write(*words):
    os.write(1, " ".join(map(str, words)).encode() + b"\\n")
"""

AT_EXIT = """
may_go_on = threading.Event()
pool = concurrent.futures.ThreadPoolExecutor(1)
def processes():
    from concurrent.futures import process  # at exit it is too late to import this
    return process.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

def waits(i):
    may_go_on.wait()
    write("waits", i)
def fails(i):
    raise KeyError(int(i))

del __file__  # there is none for another process to run
later(waits, queue=3)(3)
later(lambda i: write("pool", i), executor=pool)(2)
later(bool, executor=processes)(2)
later(fails)(1)

def after_the_main_thread():
    threading.main_thread().join()
    later(lambda i: write("late", i))(1)
threading.Thread(target=after_the_main_thread).start()
_fire_and_forget._register_early(may_go_on.set)  # called first
sys.exit(3)
"""


def test_all_calls_are_made_before_the_process_ends(fresh_python: Template) -> None:
    ended = fresh_python.run_program(BEGIN + AT_EXIT)
    assert ended.status == 3
    lines = ended.printed.splitlines()
    assert [line for line in lines if line.startswith("waits")] == [f"waits {i}" for i in range(3)]
    assert [line for line in lines if line.startswith("pool")] == ["pool 0", "pool 1"]
    assert "late 0" in lines
    assert ended.said.startswith("hostcall: a call that no program waited for has failed")
    assert ended.said.count("KeyError: 0\n") == 1
    assert ended.said.count("Error") == 1, ended.said
    assert "of hostcall.callback of fails (" in ended.said


HANGS = """
_fire_and_forget._NOTICES = 0.01, 600.0
has_begun, was_told = threading.Event(), threading.Event()
signal.signal(signal.SIGINT, signal.default_int_handler)
tell = _fire_and_forget.write_error
def tell_and_go_on(text):
    tell(text)
    was_told.set()
_fire_and_forget.write_error = tell_and_go_on

def hangs(i):
    has_begun.set()
    was_told.wait()
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # which does not end a wait of Python
    threading.Event().wait()

later(hangs)(3)
has_begun.wait()
"""


def test_it_is_said_what_the_end_waits_for_and_ctrl_c_ends_that(fresh_python: Template) -> None:
    ended = fresh_python.run_program(BEGIN + HANGS)
    assert ended.status == 0
    notice, interrupted = ended.said.split("hostcall: Ctrl-C")
    assert "It waits for a call of hostcall.callback of hangs (" in notice
    assert "which runs; 2 of hangs (" in notice
    assert ", in hangs\n" in notice
    assert "calls that were never made: 2 of hangs (" in interrupted


FORKS = """
def later(function):  # a forked child cannot compile
    callback = hostcall.callback(function, result=[], wait=False)
    return lambda n: [callback(i) for i in range(n)]

may_go_on = threading.Event()
def fails(i):
    raise KeyError(int(i))
def waits(i):
    may_go_on.wait(30.0)
    write("parent", i)

failing = later(fails)
failing(1)
parents = later(waits)
parents(2)
def run_child():
    hostcall.barrier()  # neither the parent's calls nor its errors
    assert not [row for row in hostcall.stats().unawaited if row.waiting]
    later(lambda i: write("child", i))(2)

child = os.fork()
if child == 0:
    try:
        run_child()
        hostcall.barrier()
        os._exit(7)
    finally:
        os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
process = multiprocessing.get_context("fork").Process(target=run_child)
process.start()
process.join()  # which makes its calls before it ends
assert process.exitcode == 0

later(lambda i: write("parent", "after", i))(2)
may_go_on.set()
try:
    hostcall.barrier()
except KeyError:
    write("parent fails")
"""


def test_forked_children_have_queues_of_their_own(run_python: Callable[..., str]) -> None:
    lines = run_python(BEGIN + FORKS).splitlines()
    assert lines == [
        *("child 0", "child 1") * 2,
        *("parent 0", "parent 1", "parent after 0", "parent after 1"),
        "parent fails",
    ]
