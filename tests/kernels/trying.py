"""Calls with values that make graph mode raise, tried compiled: in processes that may crash."""

import functools
import json
import re
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.kernels import bad_values
from tests.kernels.bad_values import Trial
from tests.kernels.call import Call

STOCK, HOSTCALL = "stock", "hostcall"
# How a value comes to the op: as an argument, which XLA takes for a constant where it needs one, or
# out of something that only the run knows.
GRAPH = "graph"
ARGUMENT, AT_RUN_TIME = WAYS = "as an argument", "known at run time"

SAME, CRASH, SILENT, OTHER = "same", "crash", "silent", "another error"
REFUSED, UNNAMED = "refused when compiled", "no name of the op"
LATE, LEFT_OUT = "after a later call of Python", "left out, as another such value crashed"
DIFFERENCES = (CRASH, SILENT, OTHER, REFUSED, UNNAMED, LATE, LEFT_OUT)

# So many values of one input that graph mode refuses in the same words are tried compiled.
_ALIKE = 2
# A kernel that takes a value for a size must not fill the memory of the machine.
_MEMORY = 12 << 30
_NUMBER = r"-?(\b|(?<=_))(\d+(\.\d+)?(e[+-]?\d+)?|inf|nan)\b"
_NUMBERS = re.compile(rf"{_NUMBER}(,? ?{_NUMBER})*")
_NODE = re.compile(r"\{\{node ([^}]*)\}\}")
_NO_KERNEL = "No OpKernel was registered"
# What XLA says of an op that it cannot compile with these operands.
_REFUSALS = ("compile-time constant", "No registered", "Detected unsupported operations")

Row = dict[str, Any]


def tried(numbers: list[int], seed: int, mode: str, journal: str, ended: dict[str, int]) -> None:
    """Try calls, and write what comes of them to the end of a file.

    Args:
      numbers: those of the calls.
      seed: the seed of the calls.
      mode: STOCK or HOSTCALL.
      journal: the file. Before each step that may end the process, it gets the step's name.
      ended: the names of the steps that ended a process, which are left out, and their calls.
    """
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    calls = bad_values.calls(seed)
    with Path(journal).open("a", encoding="utf-8") as file:

        def write(**row: Any) -> None:
            print(json.dumps(row), file=file, flush=True)

        for number in numbers:
            write(begun=number)
            known = {step: call == number for step, call in ended.items()}
            for row in _Tries(calls[number], mode, lambda step: write(step=step), known).rows():
                write(number=number, **row)


class _Tries:
    """The tries of one call."""

    def __init__(
        self, call: Call, mode: str, announce: Callable[[str], None], ended: dict[str, bool]
    ) -> None:
        self._call = call
        self._mode = mode
        self._announce = announce
        self._ended = ended
        self._alike: Counter[tuple[str, str]] = Counter()

    def rows(self) -> Iterator[Row]:
        """Yield the number of trials, and what comes of those that graph mode refuses."""
        specs = [tf.TensorSpec(array.shape, array.dtype) for array in _arrays(self._call)]
        graph = tf.function(lambda *inputs: self._call.run([*inputs]), autograph=False)
        try:
            function = graph.get_concrete_function(*specs)
        except Exception:  # it has no kernel, or knows more than a user's program
            return
        count = 0
        for trial in bad_values.trials(self._call):
            count += 1
            error = self._error_of(function, GRAPH, trial)
            if error is None:
                continue
            is_meant = trial.place or self._call.kind
            if isinstance(error, Exception) and is_meant and not _is_of_system(error):
                yield from self._compiled(trial, error)
            if not trial.place:
                break
        yield {"trials": count}

    def _error_of(
        self, function: Callable[..., Any], way: str, trial: Trial, what: str = ""
    ) -> Exception | str | None:
        """Return the error that a trial raises, if it does; CRASH or LEFT_OUT after a crash."""
        # What ends graph mode says nothing that tells its values: all of the input are left out.
        step = f"{way}|{self._call.op}|{trial.place}|{what}"
        if step in self._ended:
            return CRASH if self._ended[step] else LEFT_OUT
        self._announce(step)
        try:
            function(*map(tf.constant, trial.arrays))
        except Exception as error:
            return error
        return None

    def _compiled(self, trial: Trial, error: Exception) -> Iterator[Row]:
        pattern = _pattern(error)
        self._alike[trial.place, pattern] += 1
        if self._alike[trial.place, pattern] > _ALIKE:
            return
        row: Row = {"place": trial.place, "what": trial.what, "error": type(error).__name__}
        row |= {"pattern": pattern, "message": first_line(error), "values": self._values(trial)}
        for way in WAYS:
            if way == ARGUMENT or trial.place:
                verdict, said = self._verdict(way, trial, error, pattern)
                row |= {way: verdict, f"{way} said": said}
        yield row

    def _verdict(
        self, way: str, trial: Trial, expected: Exception, pattern: str
    ) -> tuple[str, str]:
        program = self._program(way, trial.place)
        found = self._error_of(program, way, trial, pattern)
        if found is None:
            return SILENT, ""
        if isinstance(found, str):
            return found, ""
        said = first_line(found)
        if any(text in str(found) for text in _REFUSALS):
            return REFUSED, said
        if type(found) is not type(expected):
            return OTHER, f"{type(found).__name__}: {said}"
        if self._mode == HOSTCALL and program.later_ran:
            return LATE, said
        named = self._mode == STOCK or any(name in str(found) for name in self._names(expected))
        return (SAME if named else UNNAMED), said

    def _names(self, expected: Exception) -> list[str]:
        nodes = [name.rpartition("/")[2] for name in _NODE.findall(str(expected))]
        return nodes or [self._call.op]

    @functools.cache  # noqa: B019 - it lives no longer than the tries of a call
    def _program(self, way: str, place: str) -> "_Program":
        return _Program(self._call, self._mode, place if way == AT_RUN_TIME else "")

    def _values(self, trial: Trial) -> str:
        names = bad_values.places(self._call)
        values = [a.tolist() for n, a in zip(names, trial.arrays, strict=True) if n == trial.place]
        return str(values)[:120]


class _Program:
    """A compiled function with a call, beside calls of Python if hostcall compiles it."""

    def __init__(self, call: Call, mode: str, hidden: str) -> None:
        self.later_ran = False
        self._call = call
        self._is_beside = mode == HOSTCALL
        self._hidden = hidden
        self._function = tf.function(self._run, autograph=False, jit_compile=True)

    def __call__(self, *tensors: Any) -> Any:
        self.later_ran = False
        return self._function(*tensors)

    def _run(self, *tensors: Any) -> Any:
        hide = _by_python if self._is_beside else _by_chance
        names = bad_values.places(self._call)
        inputs = [
            hide(tensor) if self._hidden and name == self._hidden else tensor
            for name, tensor in zip(names, tensors, strict=True)
        ]
        if not self._is_beside:
            return self._call.run(inputs)
        tf.numpy_function(lambda: None, [], [])
        results = self._call.run(inputs)
        tf.numpy_function(self._note_later, [], [])
        return results

    def _note_later(self) -> None:
        self.later_ran = True


def _by_chance(tensor: Any) -> Any:
    """Return the same values, which XLA does not know when it compiles."""
    if tensor.dtype.is_bool:
        return tf.logical_and(tensor, tf.random.uniform([]) < 1)
    return tensor + tf.cast(tf.floor(tf.random.uniform([])), tensor.dtype)


def _by_python(tensor: Any) -> Any:
    same = tf.numpy_function(lambda array: array, [tensor], tensor.dtype)
    return tf.ensure_shape(same, tensor.shape)


def _is_of_system(error: Exception) -> bool:
    """Return whether an error is none of values: no kernel, or no memory."""
    return _NO_KERNEL in str(error) or isinstance(error, tf.errors.ResourceExhaustedError)


def _arrays(call: Call) -> list[Any]:
    return [np.asarray(array) for array in call.flat()]


def first_line(error: Exception) -> str:
    """Return what an error says, without what TensorFlow adds to it."""
    text = getattr(error, "message", None) or str(error)
    lines = [
        re.sub(r"\{\{function_node [^}]*\}\} ?", "", line).strip() for line in text.split("\n")
    ]
    said = ("Graph execution error", "Detected at node", "File ", "[[{{node", "Stack trace for op")
    rest = [line for line in lines if line and not line.startswith(said)]
    return rest[0].partition(" [Op:")[0][:200] if rest else ""


def _pattern(error: Exception) -> str:
    """Return what an error says without its numbers, which tells it from others of an op."""
    return _NUMBERS.sub("N", first_line(error))
