"""The callbacks of one loaded program, registered with the runtime of this process."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import NamedTuple

import jax
from jaxlib.mlir import ir

import hostcall_runtime
from hostcall_mlir.ir import custom_calls
from hostcall_mlir.program import function_lookup
from hostcall_mlir.program.function_lookup import Function
from hostcall_mlir.program.manifest_schema import Callback, Manifest

_programs = itertools.count(1)


class Registered(NamedTuple):
    """The callbacks of a program.

    Attributes:
      targets: what has to live as long as the program may run.
      one_by_one: the ids of those whose calls do not begin early.
    """

    targets: list[hostcall_runtime.Target]
    one_by_one: list[int]


@functools.cache
def register_handlers() -> None:
    """Tells JAX's CPU what to do at a host call, and at what `hostcall-overlap` makes of one."""
    runtime = hostcall_runtime.prepared()
    for target, handler in {
        custom_calls.TARGET: runtime.handler(),
        **runtime.early_handlers(),
    }.items():
        jax.ffi.register_ffi_target(target, handler, platform="cpu", api_version=1)


def register(
    module: ir.Module,
    manifest: Manifest,
    functions: Mapping[str, Function],
    classes: Mapping[str, type],
) -> Registered:
    """Writes callback ids in the place of the names in a program.

    Calls from different lines have different ids, so that errors can tell which it was.

    Args:
      module: the program.
      manifest: its manifest.
      functions: those of its callbacks, by name.
      classes: the namedtuples in structures, by name.
    """
    program = next(_programs)
    left = {callback.name: iter(callback.calls) for callback in manifest.callbacks}
    callbacks = {callback.name: callback for callback in manifest.callbacks}
    ids: dict[tuple[str, str | None], int] = {}
    registered = Registered([], [])
    for op in custom_calls.host_calls(module):
        name = custom_calls.callback_of(op)
        assert isinstance(name, str), "the program has been compared with its manifest"
        key = name, next(left[name]).location
        if key not in ids:
            callback = callbacks[name]
            called = function_lookup.host_function(callback, functions[name], classes)
            target = _target(callback, called, key[1])
            label = f"{name}/exported {program}.{len(registered.targets)}"
            ids[key] = hostcall_runtime.register(
                target,
                label,
                label=target.description,
                borrows=callback.borrow,
                takes_out=callback.out,
                concurrent=callback.concurrent,
            )
            registered.targets.append(target)
            # The others read or write arrays where the program has them.
            if not callback.concurrent or callback.borrow or callback.out:
                registered.one_by_one.append(ids[key])
        custom_calls.set_callback(op, ids[key])
    return registered


def _target(
    callback: Callback, function: Function, location: str | None
) -> hostcall_runtime.Target:
    place = f", called at {location}" if location else ""
    description = f"callback {callback.name} of an exported program{place}"
    if callback.timeout is not None:
        function = hostcall_runtime.within(callback.timeout, function, description)
    return hostcall_runtime.Target(function, callback.name, description)
