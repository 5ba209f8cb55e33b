"""Checks that calls do nothing but what is declared of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from hostcall._check import lines, observed
from hostcall._check.facts import Finding, NotChecked
from hostcall._check.trial import Outcome, Trial, same, same_twice
from hostcall_runtime._words import counted


def arguments(trial: Trial) -> Iterator[Outcome]:
    """Calls leave their arguments as they are, where these may be the program's own."""
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
    """A function that is declared pure returns the same twice, and does nothing else."""
    subject = trial.subject
    if not subject.is_pure:
        yield NotChecked("purity", "the function is declared stateful")
        return
    function = subject.user_function
    _ = trial.first_results
    with observed.printing() as printed:
        states = [observed.state_of(function)]
        _ = trial.again
        states.append(observed.state_of(function))
        if trial.repeats:
            subject.call(trial.base.sample)
            states.append(observed.state_of(function))
    line = f"{_claim(trial)}    # in the place of {_claimed(trial)}"
    if not trial.repeats:
        what = f"two calls with equal arguments: {_difference(trial)}"
        cause = "random numbers, the time, or state of the function's own"
        yield Finding("purity", what, cause, line)
        return
    # What only settles, as a cache does, is no effect.
    steps = [set(observed.changed(*pair)) for pair in itertools.pairwise(states)]
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
