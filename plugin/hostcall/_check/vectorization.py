"""Checks that one call for a batch is the calls for its elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import batches, structures
from hostcall._callbacks.specs import Spec
from hostcall._check import lines
from hostcall._check.arguments import Sample
from hostcall._check.facts import Finding, NotChecked
from hostcall._check.lending import Called
from hostcall._check.trial import Outcome, Trial, same
from hostcall._functions.vmap_methods import BROADCAST_ALL, OF_BATCHES

_SIZE = 3
_ROUNDING = 1e-4

_CAUSES = {
    "shared": "an argument that is the same for all elements has an axis of size 1 in front, and "
    'all of them with vmap_method="broadcast_all"',
    "shape": "it reduces, or adds, the axis in front, which is that of the batch",
    "values": "it mixes elements of the batch: it wants axis=-1, say, where it has axis=0 or none",
}


def vectorization(trial: Trial) -> Iterator[Outcome]:
    """With a `vmap_method`, a call for a batch returns what a loop does."""
    subject = trial.subject
    method = subject.declaration.vmap_method
    if method not in OF_BATCHES:
        yield NotChecked("vectorization", "no vmap_method is declared that makes one call")
        return
    tensors = trial.base.sample.tensors
    if not tensors or not subject.outputs.dtypes or subject.inputs.composite:
        yield NotChecked("vectorization", "it has no arguments or no results that are tensors")
        return
    if not trial.repeats:
        yield NotChecked("vectorization", "two calls do not return the same")
        return
    shared: list[int | None] = [None]
    if method != BROADCAST_ALL and len(tensors) > 1:
        shared += range(len(tensors))
    for number in shared:
        outcome = _of_batch(trial, number)
        if outcome is not None:
            yield outcome
            return


def _of_batch(trial: Trial, shared: int | None) -> Outcome | None:
    """What one batch shows.

    Args:
      trial: the run.
      shared: the argument that is the same for all elements, or None.
    """
    subject = trial.subject
    base = trial.base.sample
    tried = trial.variants(_SIZE)
    if isinstance(tried, str):
        return NotChecked("vectorization", tried)
    elements = [one.sample for one in tried]
    if shared is not None:
        elements = [_with(sample, shared, base.tensors[shared]) for sample in elements]
    single: list[list[np.ndarray]] = []
    for sample in elements:
        called = subject.call(sample)
        if called.error is not None:
            return NotChecked("vectorization", f"with other values it raises {called.raised}")
        single.append(subject.arrays(called))
    try:
        wanted = [np.stack(results) for results in zip(*single, strict=True)]
    except ValueError:
        return NotChecked("vectorization", "the results of elements differ in their shapes")
    called = _call(trial, elements, shared)
    where = "" if shared is None else f", argument {shared} the same for all"
    shape = "shape" if shared is None else "shared"
    what = f"for a batch of {_SIZE}{where}"
    if called.error is not None:
        return _finding(trial, f"{what}, it raises {called.raised}", shape)
    flat = structures.Outputs(batches.without_shapes(subject.outputs.structure), strict=True)
    results = called.outs or flat.flatten(called.returned, subject.function)
    pairs = zip(results, subject.outputs.dtypes, strict=True)
    got = [subject.as_array(value, dtype) for value, dtype in pairs]
    for index, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            found = f"result {index} is {one.dtype} of shape {one.shape}"
            want = f"{other.dtype} of shape {other.shape}"
            return _finding(trial, f"{what}, {found}, and a loop returns {want}", shape)
        if not same([one], [other], _ROUNDING):
            found = f"result {index} is {lines.shown(one)}"
            text = f"{what}, {found}, and a loop returns {lines.shown(other)}"
            return _finding(trial, text, "values")
    return None


def _call(trial: Trial, elements: Sequence[Sample], shared: int | None) -> Called:
    subject = trial.subject
    tensors = []
    for number, parts in enumerate(zip(*(sample.tensors for sample in elements), strict=True)):
        tensors.append(tf.stack(parts[:1] if number == shared else parts))
    specs: list[Spec] = []
    if subject.declaration.out:
        specs = [batches.led(spec, _SIZE) for spec in subject.specs(elements[0].specs)]
    return subject.call_on(subject.values(Sample(tuple(tensors))), specs)


def _with(sample: Sample, number: int, tensor: Any) -> Sample:
    tensors = list(sample.tensors)
    tensors[number] = tensor
    return Sample(tuple(tensors), sample.promised)


def _finding(trial: Trial, what: str, cause: str) -> Finding:
    method = trial.subject.declaration.vmap_method
    better = "broadcast_all" if cause == "shared" else "sequential"
    line = f'vmap_method="{better}"    # in the place of vmap_method="{method}"'
    return Finding("vectorization", what, _CAUSES[cause], line)
