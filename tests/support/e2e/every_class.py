"""The ops with a CPU kernel and no XLA kernel, and their classes in a compiled function.

`classify` decides by an op's definition and its shape function. The results of the tests, `seen`,
come before that.
"""

import dataclasses
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels

import hostcall
from hostcall._tf.graph import op_kinds
from tests.support.e2e import every_shapes
from tests.support.e2e.every_cases import CASES
from tests.support.e2e.every_op import X, returning_tensors, without_kernel

ONE_PROGRAM, BOUNDARY, CANNOT_BE = "one program", "boundary", "cannot be"

NUMBERS = "Numbers go in and come out, and the shapes follow from what is known at compile time"
DEPENDS = "Numbers go in and come out, and the shape of a result depends on values"
UNKNOWN = "Numbers go in and come out, and which shapes fit is not known"
FUNCTIONS = "It calls functions of TensorFlow's"
HANDLES = {
    tf.variant: "Datasets, lists or other variants go in or come out",
    tf.resource: "A resource goes in or comes out: a table, a queue, an iterator, a writer",
    tf.string: "Strings go in or come out",
}
EFFECT = "Nothing goes in or comes out: it is there for its effect"

REFERENCES = "It works on references to variables of TensorFlow 1, which no function can take"
MADE_LATER = "TensorFlow's own passes make it, when the function has been compiled"
FRAMES = "It is a part of a loop or branch of TensorFlow 1, whose function stays on the host"
REMOVED = "TensorFlow has removed it; its kernel is there for programs of old versions"
FED = "It stands for a value that a session is fed"

# Dtypes of quantized values and of parts of bytes, which are rare.
_RARE = {tf.qint16, tf.quint16, tf.qint32, tf.qint8, tf.quint8}
_SUB_BYTE = {"int2", "uint2", "int4", "uint4", "float4_e2m1fn"}
_FED = {"Placeholder", "PlaceholderV2"}
_FRAMES = {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"}
_MADE_LATER = {"Recv", "Send", "XlaLaunch", "XlaLaunchV2"}


@dataclasses.dataclass(frozen=True)
class Class:
    """The class of an op in a compiled function.

    Attributes:
      kind: ONE_PROGRAM, BOUNDARY or CANNOT_BE.
      reason: why, a sentence without its full stop.
    """

    kind: str
    reason: str


def ops_without_kernel() -> Iterator[Any]:
    """The OpDefs of the ops that have a CPU kernel and no XLA kernel, for no dtypes."""
    without_kernel(tf.function(lambda: X).get_concrete_function())  # XLA registers its kernels
    devices: dict[str, set[str]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        devices.setdefault(kernel.op, set()).add(kernel.device_type)
    for name in sorted(devices):
        definition = op_kinds.op_def_or_none(name)
        has_kernel = devices[name] & {"CPU", "DEFAULT"} and "XLA_CPU_JIT" not in devices[name]
        if definition is not None and has_kernel:
            yield definition


def classify(definition: Any) -> Class:
    """Return the class of an op, by its OpDef and its shape function."""
    if reason := _impossible(definition):
        return Class(CANNOT_BE, reason)
    if any(attr.type in ("func", "list(func)") for attr in definition.attr):
        return Class(BOUNDARY, FUNCTIONS)
    dtypes = every_shapes.dtypes(definition)
    for dtype, reason in HANDLES.items():
        if dtype in dtypes:
            return Class(BOUNDARY, reason)
    if not dtypes:
        return Class(BOUNDARY, EFFECT)
    known = every_shapes.are_known(definition)
    if known is None:
        return Class(BOUNDARY, UNKNOWN)
    return Class(ONE_PROGRAM, NUMBERS) if known else Class(BOUNDARY, DEPENDS)


def _impossible(definition: Any) -> str:
    """Why no function that is compiled can have an op, if none can."""
    if definition.name.startswith("_") or definition.name in _MADE_LATER:
        return MADE_LATER
    if any(arg.is_ref for arg in (*definition.input_arg, *definition.output_arg)):
        return REFERENCES
    if definition.name in _FRAMES:
        return FRAMES
    if definition.name in _FED:
        return FED
    removed = definition.deprecation.version
    return REMOVED if 0 < removed <= tf.version.GRAPH_DEF_VERSION else ""


@dataclasses.dataclass
class Seen:
    """The results of the tests for an op.

    Attributes:
      kind: ONE_PROGRAM if an explanation says so, otherwise BOUNDARY.
      known: whether the shapes of its results were known in a trace for a known shape.
    """

    kind: str = BOUNDARY
    known: bool = False


def seen() -> dict[str, Seen]:
    """Return the results of the tests for the ops in them, by `hostcall.explain`."""
    found: dict[str, Seen] = {}
    with tempfile.TemporaryDirectory() as folder, hostcall.scope(route="auto"):
        for name, case in CASES.items():
            program, _ = case.prepared(Path(folder) / name)
            options: Any = {"autograph": False, "jit_compile": True}
            function = tf.function(returning_tensors(program), **options)
            concrete = function.get_concrete_function(X)
            whole = hostcall.explain(concrete).functions[0].mode == "compiled"
            ops = without_kernel(concrete)
            assert case.op in ops, f"XLA has a kernel for {name}, or it is not there"
            for op in ops:
                noted = found.setdefault(op, Seen())
                noted.kind = ONE_PROGRAM if whole else noted.kind
                noted.known |= _has_known_shapes(concrete.graph, op)
    return found


def _has_known_shapes(graph: Any, name: str) -> bool:
    ops = [op for op in graph.get_operations() if op.type == name]
    return any(all(r.shape.is_fully_defined() for r in op.outputs) for op in ops)


def classes(tested: dict[str, Seen]) -> dict[str, Class]:
    """All ops that have a CPU kernel and no XLA kernel, in the order of their names.

    Args:
      tested: what the tests have seen.
    """
    found = {}
    for definition in ops_without_kernel():
        by_definition = classify(definition)
        noted = tested.get(definition.name)
        if noted is not None:
            if by_definition.reason == UNKNOWN:
                by_definition = Class("", NUMBERS if noted.known else DEPENDS)
            by_definition = Class(noted.kind, by_definition.reason)
        found[definition.name] = by_definition
    return found


def dtype_gaps() -> dict[tuple[str, str], list[str]]:
    """The dtypes for which only TensorFlow has kernels, by ops that XLA has kernels for.

    The second part of a key is the attribute that tells the dtype.
    """
    found: dict[tuple[str, str], set[int]] = {}
    registered: dict[str, list[Any]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        registered.setdefault(kernel.op, []).append(kernel)
    for name in sorted(registered):
        definition = op_kinds.op_def_or_none(name)
        if definition is None or _impossible(definition) or name.startswith("Xla"):
            continue
        for attr in definition.attr:
            if attr.type == "type":
                cpu, xla = (_allowed(attr, d, registered[name]) for d in ("CPU", "XLA_CPU_JIT"))
                found[name, attr.name] = cpu - xla if xla else set()
    return {
        key: sorted(tf.as_dtype(number).name for number in numbers)
        for key, numbers in found.items()
        if numbers
    }


def _allowed(attr: Any, device: str, registered: list[Any]) -> set[int]:
    """The dtypes of an attribute for which a device has kernels, strings and handles left out."""
    of_device = [kernel for kernel in registered if kernel.device_type == device]
    every = set(attr.allowed_values.list.type) or set(range(1, 33))
    found: set[int] = set()
    for kernel in of_device:
        stated = [c for c in kernel.constraint if c.name == attr.name]
        found |= set(stated[0].allowed_values.list.type) if stated else every
    left_out = {dtype.as_datatype_enum for dtype in (*HANDLES, *_RARE)}
    return {n for n in found - left_out if tf.as_dtype(n).name not in _SUB_BYTE}


def by_reason(found: dict[str, Class], kind: str) -> list[tuple[str, list[str]]]:
    """The reasons of a class with their ops, the most frequent reason first."""
    ops = sorted((c.reason, name) for name, c in found.items() if c.kind == kind)
    groups = [(r, [name for _, name in g]) for r, g in itertools.groupby(ops, lambda o: o[0])]
    return sorted(groups, key=lambda group: -len(group[1]))
