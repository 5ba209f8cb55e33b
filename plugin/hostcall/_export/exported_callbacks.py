"""Callbacks of exported programs: their sources, names and manifest entries."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import tensorflow as tf

from hostcall._callbacks.callback_spec import CallbackSpec, Origin, Recording, spec_of_callback_id
from hostcall._callbacks.eager_spec import EagerSpec
from hostcall._export.function_interface import structure_of
from hostcall._functions import callback, source_location
from hostcall._functions.exportable import Source, on_device
from hostcall._saving.functions import qualified_name, reason
from hostcall_mlir import exporting
from hostcall_mlir.exporting import Callback
from hostcall_runtime._errors import NotExportableError
from hostcall_runtime._registry import target_of


def source_of(callback_id: int) -> Source:
    """Return the callback of an id.

    Raises:
      NotExportableError: when it cannot be exported.
    """
    spec, recording = spec_of_callback_id(callback_id)
    if spec is not None:
        return _of_spec(spec, recording)
    target = target_of(callback_id)
    if target is None or isinstance(target.origin, Origin):
        raise NotExportableError("a callback that is gone")
    if target.origin is None:
        raise NotExportableError(
            f"{target.description}: programs can be exported with calls of hostcall.jax.call and "
            "of hostcall.callback objects, and not with JAX's own callbacks, whose results have no "
            "structure that another process could know"
        )
    source: Source = target.origin.source()
    return source


def _of_spec(spec: CallbackSpec, recording: Recording) -> Source:
    if recording or (isinstance(spec, EagerSpec) and spec.order):
        raise NotExportableError(
            f"{spec.description}: the program computes its gradient, which only the process knows "
            "how to that has made the call. Give it a gradient of its own: hostcall.callback(..., "
            "grad=...), or export a function without the gradient"
        )
    if spec.inputs.composite or spec.outputs.composite:
        raise NotExportableError(
            f"{spec.description}: it takes or returns tensors that are made of several"
        )
    if spec.declaration.on_device:
        raise on_device(spec.description)
    arguments = tuple(spec.inputs.pack(_placeholders(spec.inputs.size)))
    results = spec.outputs.pack(_placeholders(len(spec.outputs.dtypes)))
    return Source(
        spec.user,
        structure_of(arguments, _is_placeholder, f"an argument of {spec.description}"),
        structure_of(results, _is_placeholder, f"a result of {spec.description}"),
        tuple(spec.outputs.dtypes) if spec.takes_tensors else (),
        isinstance(spec, EagerSpec) and spec.differentiable,
    )


def _placeholders(count: int) -> list[tf.TensorSpec]:
    return [tf.TensorSpec([], tf.float32) for _ in range(count)]


def _is_placeholder(leaf: object) -> bool:
    return isinstance(leaf, tf.TensorSpec)


_NO_NAME = """\
{place}: another process could not find

{listed}

Define each at the top level of a module that the other process can import too, and use it from
there. Or give it a name, and the function itself where the program is loaded:

    hostcall.callback(function, name="solver", result=...)            # here, in the program
    hostcall_mlir.load(directory, callbacks={{"solver": function}})     # there"""


@dataclasses.dataclass(frozen=True)
class Exported:
    """The callbacks of a program.

    Attributes:
      names: their names in the program, by callback id.
      entries: their manifest entries without the calls, by name.
      places: `file:line` of the calls, by callback id.
      with_states: the ids of callbacks whose last result is the handle of a tape residual.
    """

    names: dict[int, str]
    entries: dict[str, Callback]
    places: dict[int, str | None]
    with_states: frozenset[int]


def find(numbers: Iterable[int], place: str) -> Exported:
    """Name the callbacks of a program, and describe them for the manifest.

    Args:
      numbers: their callback ids in this process.
      place: the description of the export, for errors.

    Raises:
      NotExportableError: when some cannot be exported; one error for all of them.
    """
    sources: dict[int, Source] = {}
    functions: dict[int, str | None] = {}
    entries: dict[int, Callback] = {}
    problems: dict[str, None] = {}
    for number in numbers:
        try:
            sources[number] = source_of(number)
            functions[number] = _found_at(sources[number])
            entries[number] = _entry(sources[number], functions[number])
        except NotExportableError as error:
            problems[str(error)] = None
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise NotExportableError(_NO_NAME.format(place=place, listed=listed))
    with_states = frozenset(number for number, source in sources.items() if source.has_state)
    exported = Exported({}, {}, {}, with_states)
    conventions: dict[str, list[Any]] = {}
    for number, source in sources.items():
        entry = entries[number]
        stem = source.user.given_name or functions[number]
        assert stem is not None
        known = conventions.setdefault(stem, [])
        convention = entry, source.dtypes
        if convention not in known:
            known.append(convention)
        place_in_list = known.index(convention) + 1
        name = stem if place_in_list == 1 else f"{stem}#{place_in_list}"
        exported.entries[name] = _replace(entry, name=name)
        exported.names[number] = name
        exported.places[number] = _short(
            source_location.split_description(source.user.description)[3]
        )
    return exported


def with_calls(exported: Exported, module: Any, numbers: Sequence[int]) -> tuple[Callback, ...]:
    """Return the manifest's entries, each with its calls in the finished program.

    Args:
      exported: the callbacks.
      module: the program.
      numbers: the callback ids of its host calls, in their order.
    """
    calls: dict[str, list[Any]] = {name: [] for name in exported.entries}
    for op, number in zip(exporting.host_calls(module), numbers, strict=True):
        call = exporting.call_of(op, exported.places[number])
        calls[exported.names[number]].append(call)
    return tuple(
        _replace(entry, calls=tuple(calls[name]))
        for name, entry in exported.entries.items()
        if calls[name]  # the others were in dead code
    )


def _found_at(source: Source) -> str | None:
    """Return the function's qualified name; None if the user has named the callback.

    Raises:
      NotExportableError: when another process could not find the function.
    """
    if source.user.given_name is None:
        function = _parts(source)[0]
        name = qualified_name(function)
        if name is None:
            raise NotExportableError(f"{source.user.description}: {reason(function)}")
        return name
    if not exporting.is_name(source.user.given_name):
        raise NotExportableError(
            f"{source.user.description}: its name {source.user.given_name!r} has spaces or "
            "brackets in it"
        )
    return None


def _entry(source: Source, function: str | None) -> Callback:
    """Return a callback's manifest entry, without its name and calls."""
    called, names, fixed = _parts(source)
    declared = source.user.declaration
    return Callback(
        name="",
        function=function,
        kind="eager" if source.user.takes_tensors else "numpy",
        signature=exporting.signature_of(called),
        arguments=source.arguments,
        results=source.results,
        borrow=declared.borrow,
        out=declared.out,
        timeout=declared.timeout,
        concurrent=declared.concurrent,
        keywords=names,
        fixed={name: _written(name, value, source) for name, value in fixed.items()},
    )


def _parts(source: Source) -> tuple[Any, tuple[str, ...], Mapping[str, Any]]:
    """Return the user's function, the keywords of its last inputs, and its fixed arguments."""
    return callback.parts(source.user.function)


def _written(name: str, value: Any, source: Source) -> str:
    """Return a value as a Python literal.

    Raises:
      NotExportableError: when the literal does not give the value back.
    """
    text = callback.literal(value)
    if text is not None:
        return text
    raise NotExportableError(
        f"{source.user.description}: {name}={value!r} is passed by keyword, and a program can only "
        "hold None, bools, numbers, strings, and tuples, lists and dicts of these. Make it the "
        f"default of {name}, or choose it in the function by a string"
    )


def _replace(entry: Callback, **fields: Any) -> Callback:
    return msgspec.structs.replace(entry, **fields)


def _short(place: str) -> str | None:
    """Return `file:line` without the directories, which exist on one machine only."""
    return place.rpartition("/")[2] or None
