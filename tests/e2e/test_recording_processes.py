"""Recordings in several processes: programs without their modules, and processes that die."""

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.stress.template import Template

pytestmark = pytest.mark.full_run("kills processes")

_PROGRAM = """
import json, os, signal, sys, threading
import numpy as np
import tensorflow as tf
import hostcall

FOLDER = {folder!r}
sys.path.insert(0, FOLDER)
import camera

hostcall.declare(camera.take, result=lambda number: tf.TensorSpec([4], tf.float32))


@tf.function(jit_compile=True)
def look(number):
    with tf.GradientTape() as tape:
        tape.watch(number)
        seen = tf.numpy_function(camera.take, [number], tf.float32)
        liked = tf.py_function(camera.like, [number], tf.TensorSpec([], tf.float32))
    return seen * liked, tape.gradient(liked, number)


def run(count):
    return [[v.numpy().tobytes().hex() for v in look(tf.constant(float(i)))] for i in range(count)]
"""

_CAMERA = """
import numpy as np
import tensorflow as tf

numbers = np.random.default_rng()

def take(number):
    return numbers.standard_normal(4).astype(np.float32)

def like(number):
    return number * number * float(numbers.standard_normal())
"""

_NO_CAMERA = """
def take(number):
    raise OSError("there is no camera")

def like(number):
    raise OSError("there is no camera")
"""


@pytest.fixture
def run(
    fresh_python: Template, tmp_path: pathlib.Path, auto_route: None
) -> Callable[..., tuple[int, Any]]:
    """Runs the program with a camera or without, and then some lines; what they print."""

    def run(camera: str, lines: str) -> tuple[int, Any]:
        (tmp_path / "camera.py").write_text(camera)
        program = _PROGRAM.format(folder=str(tmp_path)) + f"FILE = {str(tmp_path / 'run')!r}\n"
        sys.dont_write_bytecode = True  # of a module that has the same age and another text
        ended = fresh_python.run_program(program + lines)
        printed = ended.printed.splitlines()
        assert printed, ended.said
        return ended.status, json.loads(printed[-1])

    return run


def test_a_process_without_the_module_gets_the_same(run: Callable[..., Any]) -> None:
    lines = "with hostcall.record(FILE): print(json.dumps(run(3)))\n"
    _, recorded = run(_CAMERA, lines)
    _, replayed = run(_NO_CAMERA, lines.replace("record", "replay"))
    assert replayed == recorded


def test_what_a_process_that_dies_has_recorded(run: Callable[..., Any]) -> None:
    die = """
context = hostcall.record(FILE)
context.__enter__()
print(json.dumps(run(3)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    replay = """
import warnings
with warnings.catch_warnings(record=True) as told, hostcall.replay(FILE):
    warnings.simplefilter("always")
    results = run(3)
print(json.dumps([results, [str(warning.message) for warning in told]]))
"""
    status, recorded = run(_CAMERA, die)
    assert status != 0
    _, (replayed, told) = run(_NO_CAMERA, replay)
    assert replayed == recorded
    assert "was not ended" in told[0]
    assert "holds the 9 calls" in told[0]


def test_processes_that_want_the_same_file(run: Callable[..., Any]) -> None:
    lines = """
import warnings
from hostcall._replay.replayer import RecordingReader
said = {}
def told(how):
    try:
        with how(FILE):
            pass
    except Exception as error:
        return type(error).__name__ + ": " + str(error)

with hostcall.record(FILE):
    run(1)
    reading, writing = os.pipe()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        child = os.fork()
        if child == 0:
            camera.take = None
            answer = [told(hostcall.record), hostcall.callback(lambda x: x, result=lambda x: x)]
            answer[1](1.0)
            answer[1] = [str(w.message) for w in warned if "forked" in str(w.message)]
            answer.append(told(RecordingReader))
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    said["child"] = json.loads(open(reading).read())
    run(1)
said["second"] = told(hostcall.record)
print(json.dumps(said))
"""
    _, said = run(_CAMERA, lines)
    assert "called within hostcall.record" in said["child"][0]
    assert "the calls of a forked process are not recorded" in said["child"][1][0]
    assert "a process records to" in said["child"][2]
    assert "FileExistsError" in said["second"]
    _, results = run(_NO_CAMERA, "with hostcall.replay(FILE): print(json.dumps(run(1) + run(1)))")
    assert len(results) == 2
