"""`hostcall_mlir.load`: an exported program, compiled for a device of JAX's."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxlib.mlir import ir

import hostcall_runtime
from hostcall_mlir.ir import custom_calls, traversal
from hostcall_mlir.ir import jaxlib_names as private
from hostcall_mlir.ir.diagnostics import Collector, Failure
from hostcall_mlir.passes import overlap, pipeline, tokens
from hostcall_mlir.program import files as _program
from hostcall_mlir.program import function_lookup, manifests, structures
from hostcall_mlir.program.function_lookup import Function
from hostcall_mlir.program.manifests import Callback, Input, Manifest, ProgramError
from hostcall_mlir.runner import execution
from hostcall_runtime._errors import interrupt_behind
from hostcall_runtime._runs import Program

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


# The platforms of JAX's on which XLA's programs call back.
_WITH_HOST_CALLS = ("cpu",)

# What a program does with the arrays that @main takes.
_Run = Callable[[Sequence[Any]], list[Any]]


def load(
    directory: str | os.PathLike[str],
    *,
    callbacks: Mapping[str, Callable[..., Any]] | None = None,
    imports: bool = True,
    partitioned: bool = False,
    device: jax.Device | None = None,
) -> LoadedProgram:
    """Loads a program that `hostcall.export` has written. Needs JAX, and no TensorFlow.

    The functions that the program calls are imported by the names that they had where it was
    exported, once all files have proved to be right. Load programs from sources that you trust:
    a program says itself which functions it calls.

    Args:
      directory: where the program is.
      callbacks: functions of NumPy arrays to call, by the names of callbacks (that of "f" is for
        "f#2", too, where "f#2" itself is not there); they go before what is imported.
      imports: whether others are imported.
      partitioned: whether the program is compiled in parts, with the host calls between them. So it
        runs on devices whose programs cannot call back; and on others, more slowly.
      device: the one to run on; JAX's default device if it is left out.

    Returns:
      A `LoadedProgram`, compiled, which is called like the exported function.

    Raises:
      ProgramError: when the files are not as they should be, functions are missing, or XLA cannot
        compile the program; the text lists what is wrong and says what to do. A ValueError.
      TypeError: when `device` is none of JAX's, or `callbacks` is no dict.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def sort(x):
      ...     return tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> hostcall.export(sort, tf.TensorSpec([3], tf.float32)).save(directory)

      In another process, which needs no TensorFlow:

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
      manifest: what it takes, returns and calls.
      text: the program in StableHLO, for people; long constants are left out.
      variables: the variables' values by name, JAX arrays. A call reads all of them when it begins,
        and where the program assigns some, they are replaced together when it has ended. New values
        can be put in between calls.

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
        functions, self._classes = function_lookup.find(self.manifest, callbacks, imports)
        self._device = device if device is not None else _default_device()
        module = program.module()
        with module.context, ir.Location.unknown():
            # The runtime holds them weakly.
            self._callbacks = register(module, self.manifest, functions, self._classes)
            keep = self._callbacks.one_by_one
            self._run = _compile(module, self._device, partitioned, keep)
        self._arguments = self.manifest.inputs_of("argument")
        self._variables = self.manifest.inputs_of("variable")
        self._lock = threading.Lock()
        self.variables: dict[str, Any] = {**program.variables}
        self.variables = dict(zip(self.variables, self._read_variables(), strict=True))

    def __repr__(self) -> str:
        return f"<LoadedProgram {manifests.title_of(self.manifest)}>"

    def __call__(self, *args: Any) -> Any:
        """Runs the program, and returns when it has ended.

        Args:
          *args: NumPy or JAX arrays in the structure of the exported function's arguments, of just
            the dtypes and shapes that it was exported for.

        Returns:
          JAX arrays in the structure of the function's results, of 64 bits too where the function
          has such, whatever jax_enable_x64 says.

        Raises:
          TypeError: when the arguments are of another structure (also a ValueError).
          ValueError: when an array is of another dtype or shape, or `variables` lacks one or has
            one that the program does not.
          KeyboardInterrupt: for Ctrl-C in a callback.
          jax.errors.JaxRuntimeError: when a callback fails; what it has raised is the cause, and
            what `hostcall_mlir.last_error` returns.
        """
        arrays = [*self._read_arguments(args), *self._read_variables()]
        outputs = _raising_causes(self._run, arrays)
        assigned = {
            entry.name: output
            for entry, output in zip(self.manifest.outputs, outputs, strict=True)
            if entry.kind == "variable"
        }
        with self._lock:
            self.variables.update(assigned)
        results = execution.without_padding(outputs, self.manifest)
        return structures.pack(self.manifest.results, results, self._classes)

    def call(self, *args: Any) -> Any:
        """The same, by a name."""
        return self(*args)

    def _read_arguments(self, args: tuple[Any, ...]) -> list[jax.Array]:
        who = f"the arguments of {self.manifest.function}"
        names = [entry.name for entry in self._arguments]
        flat = structures.flatten(self.manifest.arguments, args, who, names)
        return [
            self._read(value, entry) for value, entry in zip(flat, self._arguments, strict=True)
        ]

    def _read_variables(self) -> list[jax.Array]:
        """The values of all variables at one time."""
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
        return execution.to_device(value, entry.spec, self._device, what)


def _default_device() -> jax.Device:
    """Where JAX puts arrays of which nobody says where they belong."""
    (device,) = jax.device_put(np.zeros((), np.bool_)).devices()
    return device


def _raising_causes(run: _Run, arrays: Sequence[Any]) -> list[Any]:
    """What a run returns; where a callback fails, what it raised is the cause of the error."""
    try:
        return run(arrays)
    except jax.errors.JaxRuntimeError as error:
        interrupt = interrupt_behind(str(error))
        if interrupt is not None:
            raise interrupt from None
        raise error from hostcall_runtime.last_error(error)


def _compile(module: ir.Module, device: jax.Device, partitioned: bool, keep: Sequence[int]) -> _Run:
    """What runs a program whose host calls have callback ids; those in `keep` never overlap."""
    try:
        if partitioned:
            return _compile_parts(module, device)
        return _compile_whole(module, device, keep)
    except RuntimeError as error:
        raise ProgramError(f"XLA cannot compile the program for {device}: {error}") from error


@contextlib.contextmanager
def _refusing(module: ir.Module, what: str) -> Iterator[None]:
    """Makes a ProgramError of what is reported: that the program cannot be compiled, say."""
    with Collector(module.context) as collector:
        try:
            yield
        except (Failure, ir.MLIRError) as error:
            raise ProgramError(
                f"the program cannot be {what}:\n{collector.show('the program')}"
            ) from error


def _compile_whole(module: ir.Module, device: jax.Device, keep: Sequence[int]) -> _Run:
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
    program = Program(one for one in called if isinstance(one, int))
    if device.platform in _WITH_HOST_CALLS:
        module = overlap.overlapping(module, keep) or module
    module = tokens.with_numbers(module) or module
    executable = private.compile_for(private.bytecode_of(module), device, bool(called))
    return lambda arrays: private.execute_to_end(executable, arrays, program)


def _compile_parts(module: ir.Module, device: jax.Device) -> _Run:
    with _refusing(module, "partitioned"):
        traversal.check_ops(module, min(traversal.SPLIT_OPS, private.MOST_COMPILED))
        # Without locations parts that do the same are the same, and compiled once.
        pipeline.run(module, "hostcall-partition,strip-debuginfo")
    register_handlers()
    plan = execution.make_plan(module, device, _host_of(device))

    def run(arrays: Sequence[Any]) -> list[Any]:
        results: list[Any] = jax.block_until_ready(plan.run(arrays))
        return results

    return run


def _host_of(device: jax.Device) -> jax.Device:
    """The CPU of JAX's that makes the host calls of a program for a device."""
    if device.platform in _WITH_HOST_CALLS:
        return device
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise ProgramError(
            "host calls need JAX's CPU beside the device: add it to JAX_PLATFORMS, as in "
            f"JAX_PLATFORMS={device.platform},cpu."
        ) from error
