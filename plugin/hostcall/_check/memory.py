"""Checks of whose memory results and arguments lie in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hostcall._check import lines
from hostcall._check.facts import Finding, NotChecked
from hostcall._check.trial import Outcome, Trial, same


def aliasing(trial: Trial) -> Iterator[Outcome]:
    """A result stays what it is when the function is called again."""
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
    """Nothing refers to arrays that the function has borrowed, once it has returned."""
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
    """All of `out` is written, and nothing else returned."""
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
    # The function may write these very bytes.
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
    """What one of several results is called in `out`."""
    structure = trial.subject.outputs.structure
    if isinstance(structure, dict) and len(structure) == len(trial.subject.outputs.dtypes):
        return str(sorted(structure)[index])
    return index


def _left(array: np.ndarray, poison: int) -> np.ndarray:
    """Which elements of an array have the bytes alone that were there before the call."""
    if array.dtype == object:  # strings
        return np.array([one is None for one in array.flat], bool).reshape(array.shape)
    if array.dtype == bool or not array.size:
        return np.asarray(array == bool(poison & 1))
    bytes_of = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    left = np.all(bytes_of.reshape(array.size, -1) == poison, axis=1)
    return np.asarray(left.reshape(array.shape))
