"""Callbacks of exported programs: their sources, names and manifest entries."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from hostcall._callbacks.callback_spec import (
    CallbackSpec,
    EagerSpec,
    Origin,
    Recording,
    spec_of_callback_id,
)
from hostcall._functions import callback, source_location
from hostcall._functions.user_function import Source
from hostcall._saving.functions import qualified_name, reason
from hostcall_mlir.exporting import custom_calls, function_lookup, manifests, structures
from hostcall_runtime._errors import NotExportableError
from hostcall_runtime._registry import target_of


def source_of(callback_id: int) -> Source:
    """Return the callback of an id; raise a NotExportableError if it cannot be exported."""
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
    # The numbers of tensors in their place are the leaves of a structure.
    arguments = tuple(spec.inputs.pack([*range(spec.inputs.size)]))
    results = spec.outputs.pack([*range(len(spec.outputs.dtypes))])
    return Source(
        spec.user,
        structures.structure_of(arguments, f"an argument of {spec.description}"),
        structures.structure_of(results, f"a result of {spec.description}"),
        tuple(spec.outputs.dtypes) if spec.takes_tensors else (),
        isinstance(spec, EagerSpec) and spec.differentiable,
    )


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
    entries: dict[str, manifests.Callback]
    places: dict[int, str | None]
    with_states: frozenset[int]


def find(numbers: Iterable[int], place: str) -> Exported:
    """Name the callbacks of these ids, and describe them for the manifest.

    Raises:
      NotExportableError: when some cannot be exported; one error for all of them.
    """
    sources: dict[int, Source] = {}
    entries: dict[int, manifests.Callback] = {}
    problems: dict[str, None] = {}
    for number in numbers:
        try:
            sources[number] = source_of(number)
            entries[number] = _entry(sources[number])
        except NotExportableError as error:
            problems[str(error)] = None
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise NotExportableError(_NO_NAME.format(place=place, listed=listed))
    with_states = frozenset(number for number, source in sources.items() if source.has_state)
    exported = Exported({}, {}, {}, with_states)
    conventions: dict[str, list[Any]] = collections.defaultdict(list)
    for number, source in sources.items():
        entry = entries[number]
        stem = source.user.given_name or str(entry.function)
        convention = entry, source.dtypes
        if convention not in conventions[stem]:
            conventions[stem].append(convention)
        index = conventions[stem].index(convention)
        name = f"{stem}#{index + 1}" if index else stem
        exported.entries[name] = msgspec.structs.replace(entry, name=name)
        exported.names[number] = name
        # Without the directories, which exist on one machine only.
        called_at = source_location.split_description(source.user.description)[3]
        exported.places[number] = called_at.rpartition("/")[2] or None
    return exported


def with_calls(
    exported: Exported, module: Any, numbers: Sequence[int]
) -> tuple[manifests.Callback, ...]:
    """Return the manifest's entries, each with its calls in the finished program.

    `numbers` are the callback ids of the program's host calls, in their order.
    """
    calls: dict[str, list[Any]] = {name: [] for name in exported.entries}
    for op, number in zip(custom_calls.host_calls(module), numbers, strict=True):
        call = manifests.call_of(op, exported.places[number])
        calls[exported.names[number]].append(call)
    return tuple(
        msgspec.structs.replace(entry, calls=tuple(calls[name]))
        for name, entry in exported.entries.items()
        if calls[name]  # the others were in dead code
    )


def _found_at(source: Source, function: Any) -> str | None:
    """Return the function's qualified name; None if the user has named the callback."""
    if source.user.given_name is None:
        name = qualified_name(function)
        if name is None:
            raise NotExportableError(f"{source.user.description}: {reason(function)}")
        return name
    if not custom_calls.is_name(source.user.given_name):
        raise NotExportableError(
            f"{source.user.description}: its name {source.user.given_name!r} has spaces or "
            "brackets in it"
        )
    return None


def _entry(source: Source) -> manifests.Callback:
    """Return a callback's manifest entry, without its name and calls."""
    called, names, fixed = callback.parts(source.user.function)
    declared = source.user.options
    return manifests.Callback(
        name="",
        function=_found_at(source, called),
        kind="eager" if source.user.takes_tensors else "numpy",
        signature=function_lookup.signature_of(called),
        arguments=source.arguments,
        results=source.results,
        borrow=declared.borrow,
        out=declared.out,
        timeout=declared.timeout,
        concurrent=declared.concurrent,
        keywords=names,
        fixed={name: _written(name, value, source) for name, value in fixed.items()},
    )


def _written(name: str, value: Any, source: Source) -> str:
    """Return a value as a Python literal that gives the value back."""
    text = callback.literal(value)
    if text is not None:
        return text
    raise NotExportableError(
        f"{source.user.description}: {name}={value!r} is passed by keyword, and a program can only "
        "hold None, bools, numbers, strings, and tuples, lists and dicts of these. Make it the "
        f"default of {name}, or choose it in the function by a string"
    )
