"""Checks of side effects: purity, memory that calls share, and calls from several threads."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import io
import itertools
import pickle
import random
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hostcall._check import lines
from hostcall._check.arguments import Sample
from hostcall._check.report import Finding, NotChecked, Suggestion
from hostcall._check.trial import Outcome, Trial, same, same_twice
from hostcall_runtime._errors import counted

# Larger values and those of frameworks are left out, as pickling them may take seconds.
_MOST_BYTES = 1 << 24
_FRAMEWORKS = ("jax", "jaxlib", "keras", "tensorflow", "torch")


def state_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return a hash of each value that a function refers to and could change, by a name for it.

    The values are closure variables, globals, defaults, attributes of its object, and global random
    generators. Objects of frameworks and those that cannot be pickled are left out.
    """
    while isinstance(function, functools.partial):
        function = function.func
    found: dict[str, Any] = {
        "NumPy's global random generator": np.random.get_state(legacy=False),
        "the random generator of module random": random.getstate(),
    }
    owner = getattr(function, "__self__", None)
    if owner is None and not isinstance(function, types.FunctionType):
        owner = function
    if owner is not None and not isinstance(owner, type | types.ModuleType):
        attributes = getattr(owner, "__dict__", {})
        found |= {f"attribute {name}": value for name, value in attributes.items()}
    code = getattr(function, "__func__", function)
    if isinstance(code, types.FunctionType):
        variables = inspect.getclosurevars(code)
        named = {**variables.globals, **variables.nonlocals}
        found |= {f"variable {name}": value for name, value in named.items()}
        found |= {f"default {i}": value for i, value in enumerate(code.__defaults__ or ())}
    hashes = {name: _hash(value) for name, value in found.items() if not _is_code(value)}
    return {name: value for name, value in hashes.items() if value is not None}


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the names of the values that differ."""
    return [name for name, value in after.items() if before.get(name, value) != value]


@contextlib.contextmanager
def printing() -> Iterator[io.StringIO]:
    """Yield a stream that gets a copy of the text printed meanwhile."""
    seen = io.StringIO()
    with contextlib.redirect_stdout(_Both(sys.stdout, seen)):
        yield seen


class _Both(io.TextIOBase):
    def __init__(self, shown: Any, seen: io.StringIO) -> None:
        self._shown, self._seen = shown, seen

    def write(self, text: str) -> int:
        self._seen.write(text)
        return int(self._shown.write(text) or 0)

    def flush(self) -> None:
        self._shown.flush()


def _is_code(value: object) -> bool:
    return isinstance(
        value, type | types.ModuleType | types.FunctionType | types.BuiltinFunctionType
    )


def _is_of_framework(value: object) -> bool:
    """Return whether a framework defines the value's class: pickling it may take seconds."""
    return any(cls.__module__.partition(".")[0] in _FRAMEWORKS for cls in type(value).__mro__)


def _hash(value: object) -> str | None:
    try:
        if getattr(value, "nbytes", 0) > _MOST_BYTES or _is_of_framework(value):
            return None
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:  # pickling runs user code
        return None


def arguments(trial: Trial) -> Iterator[Outcome]:
    """Check that calls do not change arguments that may lie in the program's own memory."""
    subject = trial.subject
    if not subject.eager and subject.declared.is_callback:
        yield NotChecked("arguments", "a hostcall.callback gets arrays of its own, to write to")
        return
    tried = trial.base
    before = [tensor.numpy() for tensor in tried.sample.tensors]
    after = [np.asarray(value) for value in tried.called.arguments]
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        if not same([np.asarray(one)], [other]):
            names = lines.names(subject)
            name = names[number] if number < len(names) else "x"
            what = (
                f"it changes argument {number}: {lines.shown(np.asarray(one))} has become "
                f"{lines.shown(other)}"
            )
            cause = "it writes into an array that may be a tensor's own memory"
            yield Finding("arguments", what, cause, f"{name} = np.array({name})")


def purity(trial: Trial) -> Iterator[Outcome]:
    """Check that a function declared pure repeats its results and has no side effects."""
    subject = trial.subject
    if not subject.is_pure:
        yield NotChecked("purity", "the function is declared stateful")
        return
    function = subject.user_function
    _ = trial.first_results
    with printing() as printed:
        states = [state_of(function)]
        _ = trial.again
        states.append(state_of(function))
        if trial.repeats:
            subject.call(trial.base.sample)
            states.append(state_of(function))
    line = f"{_claim(trial)}    # in the place of {_claimed(trial)}"
    if not trial.repeats:
        what = f"two calls with equal arguments: {_difference(trial)}"
        cause = "random numbers, the time, or state of the function's own"
        yield Finding("purity", what, cause, line)
        return
    # A change that not every call makes, such as filling a cache, is no side effect.
    steps = [set(changes(*pair)) for pair in itertools.pairwise(states)]
    changed = sorted(set.intersection(*steps))
    if changed:
        what = f"each call changes {', '.join(changed)}"
        cause = "programs may leave out calls of pure functions, share them, or make them again"
        yield Finding("purity", what, cause, line)
    elif printed.getvalue():
        what = f"calls print {counted(len(printed.getvalue()), 'character')}"
        cause = "programs may leave out calls of pure functions, share them, or make them again"
        yield Finding("purity", what, cause, line)


def _difference(trial: Trial) -> str:
    error = trial.again.called.error
    if error is not None:
        return f"the second raises {trial.again.called.raised}"
    again = trial.subject.arrays(trial.again.called)
    for index, (one, other) in enumerate(zip(trial.first_results, again, strict=True)):
        if not same_twice([one], [other]):
            return f"result {index} is {lines.shown(one)}, then {lines.shown(other)}"
    return "other results"


def _claimed(trial: Trial) -> str:
    how = trial.subject.declaration
    if how.table is not None:
        stateless = "stateful=False, " if trial.subject.declared.is_callback else ""
        return f"{stateless}memo={how.memo!r}"
    return "pure=True" if how.pure else "stateful=False"


def _claim(trial: Trial) -> str:
    how = trial.subject.declaration
    if how.table is not None and not trial.subject.declared.is_callback:
        return "memo=False"
    return "pure=False" if how.pure else "stateful=True"


def aliasing(trial: Trial) -> Iterator[Outcome]:
    """Check that a result stays the same when the function is called again."""
    subject = trial.subject
    if not subject.outputs.dtypes:
        yield NotChecked("aliasing", "it has no results")
        return
    if subject.declaration.shares_memory:
        yield NotChecked("aliasing", "results of functions that borrow arrays are copied at once")
        return
    before = trial.first_results
    _ = trial.again
    tried = trial.variants(2)
    if isinstance(tried, str):
        yield NotChecked("aliasing", tried, partly=True)
    now = subject.arrays(trial.base.called)
    for index, (one, later) in enumerate(zip(before, now, strict=True)):
        if not same([one], [later]):
            what = (
                f"a call changes what the call before it returned: result {index} was "
                f"{lines.shown(one)} and has become {lines.shown(later)}"
            )
            cause = "it returns the same array each time; TensorFlow does not copy it where it can"
            name = "y" if len(now) == 1 else f"y{index}"
            yield Finding("aliasing", what, cause, f"return {name}.copy()")
            return


def borrowed(trial: Trial) -> Iterator[Outcome]:
    """Check that no reference to borrowed arrays is left once the function has returned."""
    subject = trial.subject
    how = subject.declaration
    if not how.shares_memory:
        yield NotChecked("borrowed", "it borrows no arrays")
        return
    if not trial.base.called.kept:
        return
    names = lines.names(subject)
    if how.out and not how.borrow:
        kept, option = "out", "out=True"
    elif how.on_device:
        kept, option = names[0] if names else "x", "memory='device'"
    else:
        kept, option = names[0] if names else "x", "borrow=True"
    what = f"it has returned, and something still refers to an array that it got by {option}"
    cause = "it keeps the array, or a part of it, in a list, a cache or an attribute"
    yield Finding("borrowed", what, cause, f"kept = np.array({kept})")


def out(trial: Trial) -> Iterator[Outcome]:
    """Check that the function writes all of `out` and returns no other value."""
    subject = trial.subject
    if not subject.declaration.out:
        yield NotChecked("out", "it is not declared with out=True")
        return
    called = trial.base.called
    if called.wrong_out:
        what = "it returns a value that is not `out`"
        cause = "it makes an array of its own"
        yield Finding("out", what, cause, "out[...] = y    # and return nothing")
        return
    specs = subject.specs(trial.base.sample.specs)
    left = [_left(array, 0x55) for array in called.outs]
    if not any(map(np.any, left)):
        return
    # The function may have written these very bytes, so another call uses others.
    second = subject.call_on(subject.values(trial.base.sample), specs, 0xAA)
    if second.error is not None:
        yield NotChecked("out", f"a second call raises {second.raised}")
        return
    for index, (first, array) in enumerate(zip(left, second.outs, strict=True)):
        unwritten = first & _left(array, 0xAA)
        if np.any(unwritten):
            place = tuple(int(axis) for axis in np.argwhere(unwritten)[0])
            number = int(unwritten.sum())
            what = (
                f"it leaves {number} of {array.size} elements of `out` for result {index} as they "
                f"were, that at {place} for one"
            )
            cause = "`out` holds arbitrary values before the call, and no zeros"
            name = "out" if len(called.outs) == 1 else f"out[{_place(trial, index)!r}]"
            yield Finding("out", what, cause, f"{name}.fill(0)    # before it writes a part")
            return


def _place(trial: Trial, index: int) -> int | str:
    """Return the key or index of one of several results in `out`."""
    structure = trial.subject.outputs.structure
    if isinstance(structure, dict) and len(structure) == len(trial.subject.outputs.dtypes):
        return str(sorted(structure)[index])
    return index


def _left(array: np.ndarray, poison: int) -> np.ndarray:
    """Return a mask of the elements whose bytes are all as they were before the call."""
    if array.dtype == object:  # strings
        return np.array([one is None for one in array.flat], bool).reshape(array.shape)
    if array.dtype == bool or not array.size:
        return np.asarray(array == bool(poison & 1))
    bytes_of = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    left = np.all(bytes_of.reshape(array.size, -1) == poison, axis=1)
    return np.asarray(left.reshape(array.shape))


_THREADS, _CALLS = 8, 4

# If a call takes this many seconds or more, each thread makes only one.
_SLOW = 0.1

# NumPy's libraries may add up arrays in another order in each call.
_ROUNDING = 1e-5

# The seconds between thread switches, so short that calls interleave as much as they can.
_SWITCH_INTERVAL = 1e-6

# The time limit for all calls together, or four times what they take one by one if that is more.
# Calls that exceed it wait for each other.
_SECONDS = 60.0

_OPTION = "concurrent=True"
_GAIN = (
    "calls of several threads return what one gets, so a program may make several at once, and go "
    "on meanwhile"
)
_CAUSE = "calls share a buffer, a cache or a library's handle, and take turns at any point"
_LINE = "with lock:    # lock = threading.Lock(), around what the calls share"


def threads(trial: Trial) -> Iterator[Outcome]:
    """Check that eight threads at once get the same results as one, if calls may overlap."""
    subject = trial.subject
    if not subject.outputs.dtypes or subject.declaration.line is not None:
        yield NotChecked("threads", "it has no results to compare")
        return
    if trial.is_spared:
        yield trial.spared("threads", f"{_THREADS * (_CALLS + 1)} calls")
        return
    if not trial.repeats:
        yield NotChecked("threads", "two calls do not return the same")
        return
    tried = trial.variants(_THREADS)
    if isinstance(tried, str):
        yield NotChecked("threads", tried)
        return
    samples = [one.sample for one in tried]
    wanted = [subject.arrays(one.called) for one in tried]
    found = _at_once(trial, samples, wanted)
    if subject.declaration.lets_overlap(subject.user_function):
        if found is not None:
            yield Finding("threads", found, _CAUSE, _LINE)
    elif found is not None:
        why = f"calls run one at a time, as {_OPTION} is not declared, and should not be: {found}"
        yield NotChecked("threads", why)
    elif subject.is_pure:
        yield Suggestion("threads", _GAIN, _OPTION)


def _at_once(
    trial: Trial, samples: Sequence[Sample], wanted: Sequence[list[np.ndarray]]
) -> str | None:
    """Make all calls at once, and return a description of the first failure, or None."""
    subject = trial.subject
    calls = _CALLS if trial.seconds < _SLOW else 1
    limit = max(_SECONDS, 4 * len(samples) * calls * trial.seconds)
    end = time.monotonic() + limit
    start = threading.Barrier(len(samples))
    wrong: list[str] = []

    def run(number: int) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            start.wait(limit)
        for _ in range(calls):
            called = subject.call(samples[number])
            if called.error is not None:
                wrong.append(f"with {_THREADS} threads a call raises {called.raised}")
                return
            got = subject.arrays(called)
            if not same(got, wanted[number], _ROUNDING):
                wrong.append(_thread_difference(got, wanted[number]))
                return

    workers = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(samples))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(max(0.0, end - time.monotonic()))
    finally:
        sys.setswitchinterval(interval)
    if any(worker.is_alive() for worker in workers):
        return f"calls of {_THREADS} threads have not ended after {limit:.0f} seconds"
    return wrong[0] if wrong else None


def _thread_difference(got: list[np.ndarray], wanted: list[np.ndarray]) -> str:
    for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if not same([one], [other], _ROUNDING):
            return (
                f"with {_THREADS} threads result {index} is {lines.shown(one)}, and with one it is "
                f"{lines.shown(other)}"
            )
    return f"with {_THREADS} threads there are other results than with one"
