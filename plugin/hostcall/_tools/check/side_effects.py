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

from hostcall._tools.check import lines
from hostcall._tools.check.report import Suggestion
from hostcall._tools.check.subject import POISON, Called
from hostcall._tools.check.trial import (
    DIFFERS,
    Outcome,
    SkipError,
    Trial,
    differences,
    differing,
    skip_if,
)
from hostcall_runtime._errors import counted

# Larger values and those of frameworks are left out, as pickling them may take seconds.
_MOST_BYTES = 1 << 24
_FRAMEWORKS = ("jax", "jaxlib", "keras", "tensorflow", "torch")
_CODE = type | types.ModuleType | types.FunctionType | types.BuiltinFunctionType


def _state_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return a hash of each value that a function refers to and could change, by a name for it."""
    # The values are closure variables, globals, defaults, attributes of its object, and global
    # random generators. Objects of frameworks and those that cannot be pickled are left out.
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
    hashes = {name: _hash(value) for name, value in found.items()}
    return {name: value for name, value in hashes.items() if value is not None}


def _hash(value: object) -> str | None:
    if isinstance(value, _CODE):
        return None
    try:
        packages = {cls.__module__.partition(".")[0] for cls in type(value).__mro__}
        if getattr(value, "nbytes", 0) > _MOST_BYTES or not packages.isdisjoint(_FRAMEWORKS):
            return None
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:  # pickling runs user code
        return None


def arguments(trial: Trial) -> Iterator[Outcome]:
    """Check that calls do not change arguments that may lie in the program's own memory."""
    subject, called = trial.subject, trial.base
    skip_if(
        not subject.eager and subject.is_callback,
        "a hostcall.callback gets arrays of its own, to write to",
    )
    before = [np.asarray(tensor.numpy()) for tensor in called.sample.tensors]
    after = [np.asarray(value) for value in called.arguments]
    for number, one, other in differing(before, after, rounding=0.0):
        name = lines.name(subject, number)
        what = f"it changes argument {number}: {lines.shown(one)} has become {lines.shown(other)}"
        cause = "it writes into an array that may be a tensor's own memory"
        yield trial.finding(what, cause, f"{name} = np.array({name})")


def purity(trial: Trial) -> Iterator[Outcome]:
    """Check that a function declared pure repeats its results and has no side effects."""
    subject = trial.subject
    skip_if(not subject.is_pure, "the function is declared stateful")
    function = subject.user_function
    _ = trial.first_results
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        states = [_state_of(function)]
        _ = trial.again
        states.append(_state_of(function))
        if trial.repeats:
            subject.call(trial.base.sample)
            states.append(_state_of(function))
    sys.stdout.write(printed.getvalue())
    line = _stateful(trial)
    if not trial.repeats:
        found = f"the second raises {trial.again.raised}"
        if trial.again.error is None:
            again = subject.arrays(trial.again)
            found = differences(trial.first_results, again, ", then ")[0]
        what = f"two calls with equal arguments: {found}"
        yield trial.finding(what, "random numbers, the time, or state of the function's own", line)
        return
    # A change that not every call makes, such as filling a cache, is not a side effect.
    steps = [
        {name for name, value in after.items() if before.get(name, value) != value}
        for before, after in itertools.pairwise(states)
    ]
    cause = "programs may leave out calls of pure functions, share them, or make them again"
    if changed := sorted(set.intersection(*steps)):
        yield trial.finding(f"each call changes {', '.join(changed)}", cause, line)
    elif text := printed.getvalue():
        yield trial.finding(f"calls print {counted(len(text), 'character')}", cause, line)


def _stateful(trial: Trial) -> str:
    """Return the line that declares a function as stateful, with the options that it replaces."""
    how, is_callback = trial.subject.options, trial.subject.is_callback
    claimed = "pure=True" if how.pure else "stateful=False"
    if how.table is not None:
        claimed = f"{'stateful=False, ' if is_callback else ''}memo={how.memo!r}"
    claim = "pure=False" if how.pure else "stateful=True"
    if how.table is not None and not is_callback:
        claim = "memo=False"
    return f"{claim}    # in the place of {claimed}"


def aliasing(trial: Trial) -> Iterator[Outcome]:
    """Check that a result stays the same when the function is called again."""
    subject = trial.subject
    skip_if(not subject.outputs.dtypes, "it has no results")
    skip_if(
        subject.options.shares_memory, "results of functions that borrow arrays are copied at once"
    )
    before = trial.first_results
    _ = trial.again
    try:
        trial.variants(2)
    except SkipError as why:
        yield trial.partly(str(why))
    now = subject.arrays(trial.base)
    for index, one, later in differing(before, now, rounding=0.0):
        what = (
            f"a call changes what the call before it returned: result {index} was "
            f"{lines.shown(one)} and has become {lines.shown(later)}"
        )
        cause = "it returns the same array each time; TensorFlow does not copy it where it can"
        name = "y" if len(now) == 1 else f"y{index}"
        yield trial.finding(what, cause, f"return {name}.copy()")
        return


def borrowed(trial: Trial) -> Iterator[Outcome]:
    """Check that no reference to borrowed arrays is left once the function has returned."""
    how = trial.subject.options
    skip_if(not how.shares_memory, "it borrows no arrays")
    if not trial.base.kept:
        return
    option = "memory='device'" if how.on_device else "borrow=True" if how.borrow else "out=True"
    kept = "out" if option == "out=True" else lines.name(trial.subject)
    what = f"it has returned, and something still refers to an array that it got by {option}"
    cause = "it keeps the array, or a part of it, in a list, a cache or an attribute"
    yield trial.finding(what, cause, f"kept = np.array({kept})")


def out(trial: Trial) -> Iterator[Outcome]:
    """Check that the function writes all of `out` and returns no other value."""
    subject, called = trial.subject, trial.base
    skip_if(not subject.options.out, "it is not declared with out=True")
    if called.wrong_out:
        what = "it returns a value that is not `out`"
        line = "out[...] = y    # and return nothing"
        yield trial.finding(what, "it makes an array of its own", line)
        return
    left = [_left(array, POISON) for array in called.outs]
    if not any(map(np.any, left)):
        return
    # The function may have written these very bytes, so another call uses others.
    poison = 0xFF ^ POISON
    second = subject.call_on(
        subject.values(called.sample), subject.out_specs(called.sample), poison
    )
    skip_if(second.error, f"a second call raises {second.raised}")
    for index, (first, array) in enumerate(zip(left, second.outs, strict=True)):
        unwritten = first & _left(array, poison)
        if np.any(unwritten):
            place = tuple(int(axis) for axis in np.argwhere(unwritten)[0])
            what = (
                f"it leaves {int(unwritten.sum())} of {array.size} elements of `out` for result "
                f"{index} as they were, such as that at {place}"
            )
            cause = "`out` holds arbitrary values before the call, and no zeros"
            name = "out" if len(called.outs) == 1 else "out[...]"
            yield trial.finding(what, cause, f"{name}.fill(0)    # before it writes a part")
            return


def _left(array: np.ndarray, poison: int) -> np.ndarray:
    """Return a mask of the elements whose bytes are all as they were before the call."""
    if array.dtype == object:  # strings
        return np.asarray(np.equal(array, None), bool)
    bytes_of = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    left = np.all(bytes_of.reshape(array.size, array.itemsize) == poison, axis=1)
    return np.asarray(left.reshape(array.shape))


_THREADS, _CALLS = 8, 4
_SLOW = 0.1  # if a call takes this many seconds or more, each thread makes only one
_ROUNDING = 1e-5  # NumPy's libraries may add up arrays in another order in each call

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
    has_results = subject.outputs.dtypes and subject.options.call_log is None
    skip_if(not has_results, "it has no results to compare")
    trial.skip_if_spared(f"{_THREADS * (_CALLS + 1)} calls")
    skip_if(not trial.repeats, DIFFERS)
    found = _at_once(trial, trial.variants(_THREADS))
    if subject.options.lets_overlap(subject.user_function):
        if found is not None:
            yield trial.finding(found, _CAUSE, _LINE)
        return
    skip_if(
        found, f"calls run one at a time, as {_OPTION} is not declared, and should not be: {found}"
    )
    if subject.is_pure:
        yield Suggestion(trial.check, _GAIN, _OPTION)


def _at_once(trial: Trial, alone: Sequence[Called]) -> str | None:
    """Make calls again, all at once, and return a description of the first failure, or None."""
    subject, seconds = trial.subject, trial.base.seconds
    wanted = [subject.arrays(one) for one in alone]
    calls = _CALLS if seconds < _SLOW else 1
    limit = max(_SECONDS, 4 * len(alone) * calls * seconds)
    end = time.monotonic() + limit
    start = threading.Barrier(len(alone))
    wrong: list[str] = []

    def run(number: int) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            start.wait(limit)
        for _ in range(calls):
            called = subject.call(alone[number].sample)
            if called.error is not None:
                wrong.append(f"a call raises {called.raised}")
                return
            got = subject.arrays(called)
            if found := differences(got, wanted[number], ", and with one it is ", _ROUNDING):
                wrong.append(found[0])
                return

    workers = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(alone))]
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
    return f"with {_THREADS} threads {wrong[0]}" if wrong else None
