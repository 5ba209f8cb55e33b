"""The callbacks of one loaded program, registered with the runtime of this process."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import jax
from jaxlib.mlir import ir

import hostcall_runtime
from hostcall_mlir.ir import custom_calls
from hostcall_mlir.program import function_lookup
from hostcall_mlir.program.function_lookup import Function
from hostcall_mlir.program.manifest_schema import Callback, Manifest

_programs = itertools.count(1)


@functools.cache
def register_handler() -> None:
    """Tells JAX's CPU what to do at a host call."""
    handler = hostcall_runtime.prepared().handler()
    jax.ffi.register_ffi_target(custom_calls.TARGET, handler, platform="cpu", api_version=1)


def register(
    module: ir.Module,
    manifest: Manifest,
    functions: Mapping[str, Function],
    classes: Mapping[str, type],
) -> list[hostcall_runtime.Target]:
    """Writes callback ids in the place of the names in a program.

    Calls from different lines have different ids, so that errors can tell which it was.

    Args:
      module: the program.
      manifest: its manifest.
      functions: those of its callbacks, by name.
      classes: the namedtuples in structures, by name.

    Returns:
      What has to live as long as the program may run.
    """
    program = next(_programs)
    left = {callback.name: iter(callback.calls) for callback in manifest.callbacks}
    callbacks = {callback.name: callback for callback in manifest.callbacks}
    ids: dict[tuple[str, str | None], int] = {}
    targets: list[hostcall_runtime.Target] = []
    for op in custom_calls.host_calls(module):
        name = custom_calls.callback_of(op)
        assert isinstance(name, str), "the program has been compared with its manifest"
        key = name, next(left[name]).location
        if key not in ids:
            callback = callbacks[name]
            called = function_lookup.host_function(callback, functions[name], classes)
            target = _target(callback, called, key[1])
            label = f"{name}/exported {program}.{len(targets)}"
            ids[key] = hostcall_runtime.register(
                target,
                label,
                label=target.description,
                borrows=callback.borrow,
                takes_out=callback.out,
            )
            targets.append(target)
        custom_calls.set_callback(op, ids[key])
    return targets


def _target(
    callback: Callback, function: Function, location: str | None
) -> hostcall_runtime.Target:
    place = f", called at {location}" if location else ""
    description = f"callback {callback.name} of an exported program{place}"
    if callback.timeout is not None:
        function = hostcall_runtime.within(callback.timeout, function, description)
    return hostcall_runtime.Target(function, callback.name, description)
