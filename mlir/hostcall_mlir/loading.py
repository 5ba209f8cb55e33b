"""The function `hostcall_mlir.load`, which compiles an exported program for a JAX device."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxlib.mlir import ir

import hostcall_runtime
from hostcall_mlir import runner
from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector, Failure
from hostcall_mlir.passes import overlap, pipeline, tokens, value_errors
from hostcall_mlir.program import files as _program
from hostcall_mlir.program import function_lookup, manifests, structures
from hostcall_mlir.program.function_lookup import Function
from hostcall_mlir.program.manifests import Input, Manifest, ProgramError
from hostcall_mlir.runner import Run
from hostcall_runtime._errors import interrupt_behind
from hostcall_runtime._runs import RunningProgram

_programs = itertools.count(1)


@functools.cache
def register_handlers() -> None:
    """Register the CPU handlers for all custom calls of the runtime."""
    runtime = hostcall_runtime.prepared()
    for target, handler in runtime.handlers().items():
        jax.ffi.register_ffi_target(target, handler, platform="cpu", api_version=1)


def register(
    module: ir.Module,
    manifest: Manifest,
    functions: Mapping[str, Function],
    classes: Mapping[str, type],
) -> tuple[list[hostcall_runtime.Target], list[int]]:
    """Register the callbacks of a program, and write their ids in the place of their names."""
    # Returned are the callbacks, and the ids of those whose calls never begin early.
    # Calls from different lines get different ids, so that an error tells which call failed.
    program = next(_programs)
    left = {callback.name: iter(callback.calls) for callback in manifest.callbacks}
    callbacks = {callback.name: callback for callback in manifest.callbacks}
    ids: dict[tuple[str, str | None], int] = {}
    targets: list[hostcall_runtime.Target] = []
    one_by_one: list[int] = []
    for op in custom_calls.host_calls(module):
        name = custom_calls.callback_of(op)
        assert isinstance(name, str), "the program has been compared with its manifest"
        key = name, next(left[name]).location
        if key not in ids:
            callback = callbacks[name]
            called = function_lookup.host_function(callback, functions[name], classes)
            unique = f"{name}/exported {program}.{len(targets)}"
            target, ids[key] = function_lookup.register(callback, called, key[1] or "", unique)
            targets.append(target)
            # `borrow` and `out` use arrays in the program's own memory.
            if not callback.concurrent or callback.borrow or callback.out:
                one_by_one.append(ids[key])
        custom_calls.set_callback(op, ids[key])
    return targets, one_by_one


_WITH_HOST_CALLS = ("cpu",)  # the JAX platforms on which XLA's programs can make host calls


def load(
    directory: str | os.PathLike[str],
    *,
    callbacks: Mapping[str, Callable[..., Any]] | None = None,
    imports: bool = True,
    partitioned: bool = False,
    device: jax.Device | None = None,
) -> LoadedProgram:
    """Load a program that `hostcall.export` has written; JAX is needed, TensorFlow is not.

    The functions that the program calls are imported by the names that they had at the export, from
    the modules that `hostcall_mlir.allow` or `HOSTCALL_ALLOW` names: a program itself says which
    functions it calls, and with what. The import begins only after all files have passed their
    checks.

    Args:
      directory: the program's directory.
      callbacks: functions of NumPy arrays to call, by the names of callbacks. The name "f" is also
        for "f#2" if "f#2" itself is not given. These functions take precedence over imports.
      imports: whether functions that `callbacks` lacks are imported.
      partitioned: whether to compile the program in parts, with the host calls between them. It
        then runs on devices whose programs cannot call back, and on other devices more slowly.
      device: the device to run on; JAX's default device if it is left out.

    Returns:
      A compiled `LoadedProgram`, which is called like the exported function.

    Raises:
      ProgramError: if a file is missing or invalid, a function is missing or not allowed, or XLA
        cannot compile the program; the text lists the problems and the remedies. It is a
        ValueError.
      TypeError: if `device` is not a JAX device, or `callbacks` is not a dict.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def sort(x):
      ...     return tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> hostcall.export(sort, tf.TensorSpec([3], tf.float32)).save(directory)

      In another process, which needs no TensorFlow:

      >>> hostcall_mlir.allow("numpy:sort")
      >>> program = hostcall_mlir.load(directory)
      >>> program(np.array([3, 1, 2], np.float32))
      Array([1., 2., 3.], dtype=float32)
    """
    if device is not None and not isinstance(device, jax.Device):
        raise TypeError(f"device is {device!r}, and has to be one of jax.devices().")
    program = _program.read(directory)
    try:
        return LoadedProgram(program, callbacks or {}, imports, partitioned, device)
    except ProgramError as error:
        raise ProgramError(f"{os.fspath(directory)}: {error}") from error.__cause__


class LoadedProgram:
    """A program that is ready to run, from any thread.

    Attributes:
      manifest: its arguments, results and callbacks.
      text: the program in StableHLO, for people; long constants are left out.
      variables: the values of the variables by name, as JAX arrays. A call reads all of them when
        it begins. When it has ended, it replaces those that the program assigns, all at once. You
        can set values between calls.

    Examples:
      >>> class Counter(tf.Module):
      ...     def __init__(self):
      ...         self.count = tf.Variable(0, name="count")
      ...
      ...     @tf.function(jit_compile=True)
      ...     def step(self, x):
      ...         self.count.assign_add(1)
      ...         return tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> counter = Counter()
      >>> spec = tf.TensorSpec([3], tf.float32)
      >>> hostcall.export(counter.step, spec, variables="inputs").save(directory)

      In another process, which needs no TensorFlow:

      >>> hostcall_mlir.allow("numpy:sort")
      >>> program = hostcall_mlir.load(directory)
      >>> for _ in range(3):
      ...     _ = program(np.zeros(3, np.float32))
      >>> {name: int(value) for name, value in program.variables.items()}
      {'count': 3}
    """

    def __init__(
        self,
        program: _program.Program,
        callbacks: Mapping[str, Callable[..., Any]],
        imports: bool,
        partitioned: bool,
        device: jax.Device | None,
    ) -> None:
        self.manifest: Manifest = program.manifest
        self.text = program.text
        functions, self._classes = function_lookup.find_functions(self.manifest, callbacks, imports)
        if device is None:  # that on which JAX puts arrays by default
            (device,) = jax.device_put(np.zeros((), np.bool_)).devices()
        self._device = device
        module = program.module()
        private.prepare_handlers(custom_calls.targets_in(module))
        with module.context, ir.Location.unknown():
            # Kept here, since the runtime holds callbacks weakly.
            self._targets, keep = register(module, self.manifest, functions, self._classes)
            self._run = _compile(module, self._device, partitioned, keep)
        self._variables = self.manifest.inputs_of("variable")
        self._lock = threading.Lock()
        self.variables: dict[str, Any] = {**program.variables}
        self.variables = dict(zip(self.variables, self._read_variables(), strict=True))

    def __repr__(self) -> str:
        return f"<LoadedProgram {manifests.title_of(self.manifest)}>"

    def __call__(self, *args: Any) -> Any:
        """Run the program, and return when it has ended.

        Args:
          *args: NumPy or JAX arrays in the structure of the exported function's arguments, with
            exactly the dtypes and shapes that it was exported for.

        Returns:
          JAX arrays in the structure of the function's results. They have 64 bits if the function's
          results have, whatever jax_enable_x64 says.

        Raises:
          TypeError: if the arguments have another structure (also a ValueError).
          ValueError: if an array has another dtype or shape, or `variables` lacks a variable or has
            one that the program lacks.
          KeyboardInterrupt: for Ctrl-C in a callback.
          jax.errors.JaxRuntimeError: if a callback fails; the callback's exception is the
            cause, and `hostcall_mlir.last_error` returns it.
        """
        arguments = [self._read(value, entry) for entry, value in self.manifest.with_inputs(args)]
        outputs = _raising_causes(self._run, [*arguments, *self._read_variables()])
        assigned = {
            entry.name: output
            for entry, output in zip(self.manifest.outputs, outputs, strict=True)
            if entry.kind == "variable"
        }
        with self._lock:
            self.variables.update(assigned)
        results = runner.without_padding(outputs, self.manifest)
        return structures.pack(self.manifest.results, results, self._classes)

    call = __call__  # the name in `hostcall.load`'s functions, too

    def _read_variables(self) -> list[jax.Array]:
        """Return the values of all variables at one moment."""
        with self._lock:
            values = {**self.variables}
        names = [entry.name for entry in self._variables]
        if missing := [name for name in names if name not in values]:
            raise ValueError(
                f"variables of {self.manifest.function} have no values any more: {missing}"
            )
        if unknown := [name for name in values if name not in names]:
            raise ValueError(
                f"{self.manifest.function} has no variables {unknown}: it has {names or 'none'}"
            )
        return [self._read(values[entry.name], entry) for entry in self._variables]

    def _read(self, value: Any, entry: Input) -> jax.Array:
        what = f"{entry.kind} '{entry.name}' of {self.manifest.function}"
        return runner.to_device(value, entry.spec, self._device, what)


def _raising_causes(run: Run, arrays: Sequence[Any]) -> list[Any]:
    """Run a program; if a callback fails, make the callback's exception the cause of the error."""
    try:
        return run(arrays)
    except jax.errors.JaxRuntimeError as error:
        interrupt = interrupt_behind(str(error))
        if interrupt is not None:
            raise interrupt from None
        raise error from hostcall_runtime.last_error(error)


def _compile(module: ir.Module, device: jax.Device, partitioned: bool, keep: Sequence[int]) -> Run:
    """Compile a program whose host calls have callback ids; those in `keep` never overlap."""
    try:
        if partitioned:
            return _compile_parts(module, device)
        return _compile_whole(module, device, keep)
    except RuntimeError as error:
        raise ProgramError(f"XLA cannot compile the program for {device}: {error}") from error


@contextlib.contextmanager
def _refusing(module: ir.Module, what: str) -> Iterator[None]:
    """Turn reported errors into a ProgramError: "the program cannot be {what}"."""
    with Collector(module.context) as collector:
        try:
            yield
        except (Failure, ir.MLIRError) as error:
            raise ProgramError(
                f"the program cannot be {what}:\n{collector.show('the program')}"
            ) from error


def _compile_whole(module: ir.Module, device: jax.Device, keep: Sequence[int]) -> Run:
    if device.platform not in _WITH_HOST_CALLS and custom_calls.host_calls(module):
        raise ProgramError(
            f"the program calls Python, which XLA's programs for {device} cannot do. Load it with "
            "partitioned=True, which compiles it in parts with the calls between them, or with "
            'device=jax.devices("cpu")[0].'
        )
    with _refusing(module, "compiled"):
        traversal.check_ops(module, private.MOST_COMPILED)
    register_handlers()
    called = [custom_calls.callback_of(op) for op in custom_calls.host_calls(module)]
    program = RunningProgram(one for one in called if isinstance(one, int))
    if device.platform in _WITH_HOST_CALLS:
        module = overlap.overlapping(module, keep) or module
    else:  # TensorFlow's kernels for accelerators raise no errors for values, either
        value_errors.drop(module)
    module = tokens.with_numbers(module) or module
    executable = private.compile_for(private.bytecode_of(module), device, bool(called))
    return lambda arrays: private.execute_to_end(executable, arrays, program)


def _compile_parts(module: ir.Module, device: jax.Device) -> Run:
    with _refusing(module, "partitioned"):
        traversal.check_ops(module, min(traversal.SPLIT_OPS, private.MOST_COMPILED))
        # Without locations, equal parts have equal bytecode and are compiled once.
        pipeline.run(module, "hostcall-partition,strip-debuginfo")
    register_handlers()
    run = runner.make_plan(module, device, _host_of(device))
    return lambda arrays: jax.block_until_ready(run(arrays))


def _host_of(device: jax.Device) -> jax.Device:
    """Return the JAX CPU that makes the host calls of a program for a device."""
    if device.platform in _WITH_HOST_CALLS:
        return device
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise ProgramError(
            "host calls need JAX's CPU beside the device: add it to JAX_PLATFORMS, as in "
            f"JAX_PLATFORMS={device.platform},cpu."
        ) from error
