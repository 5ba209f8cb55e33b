"""`hostcall.jax.to_tf`: JAX functions, with their callbacks and gradients, in TensorFlow programs.

TensorFlow's gradients of complex values are the conjugates of JAX's. Integers have no gradients.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf

from hostcall import _versions
from hostcall._bridges import four_bits
from hostcall._functions import source_location
from hostcall._ops.lookup import Module
from hostcall._tf import autograph, eager_execution, patches
from hostcall.jax import _control_flow, _names, _primitive, _rules, _values
from hostcall.jax._functions import JaxFunction
from hostcall_runtime import Target, _interception, register


def convert(
    jax_fn: Callable[..., Any], polymorphic_shapes: Any, polymorphic_constraints: Sequence[str]
) -> Callable[..., Any]:
    """Implement `hostcall.jax.to_tf`."""
    if not callable(jax_fn):
        raise TypeError(f"hostcall.jax.to_tf wants a function, and not {jax_fn!r}.")
    if isinstance(jax_fn, tf.types.experimental.PolymorphicFunction):
        raise TypeError(
            f"hostcall.jax.to_tf: {jax_fn!r} is a tf.function. Call it itself in TensorFlow, and "
            "in JAX what hostcall.jax.from_tf makes of it."
        )
    _names.require(_names.TO_TF)
    converted = _Converted(jax_fn, polymorphic_shapes, polymorphic_constraints)

    def run(*args: Any, **kwargs: Any) -> object:
        return converted(*args, **kwargs)

    functools.update_wrapper(run, jax_fn, updated=())
    # Autograph must convert neither hostcall's code nor JAX's code below it.
    call = autograph.do_not_convert(run)
    # TensorFlow would trace the function in `__wrapped__`.
    del call.__dict__["__wrapped__"]
    return call


def _struct(
    shape: tuple[int | None, ...], dtype: Any
) -> jax.ShapeDtypeStruct | types.SimpleNamespace:
    try:
        return jax.ShapeDtypeStruct(shape, dtype)
    except ValueError:  # from JAX 0.11.2 on for unknown sizes
        return types.SimpleNamespace(shape=shape, dtype=dtype)


class _Converted:
    """The implementation of a function that `to_tf` returns."""

    def __init__(
        self, function: Callable[..., Any], shapes: Any, constraints: Sequence[str]
    ) -> None:
        self._function = function
        self._jitted = function if _values.is_jitted(function) else jax.jit(function)
        self._shapes = shapes
        self._constraints = constraints
        self._programs: dict[Any, Differentiable] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        if _values.is_tracing() and tf.executing_eagerly():
            raise ValueError(
                f"{self._description}: what hostcall.jax.to_tf returns is called in a JAX "
                "transformation. In JAX, call the JAX function itself."
            )
        leaves, tree = jax.tree.flatten((args, kwargs))
        converted = [self._convert(leaf) for leaf in leaves]
        tensors = [tensor for tensor, _ in converted]
        if any(tensor.shape.rank is None for tensor in tensors):
            raise ValueError(
                f"hostcall.jax.to_tf of {self._description}: not even the number of dimensions of "
                "an argument is known. Call tf.ensure_shape(argument, [None, ...]) on it before."
            )
        structs = [_struct(tuple(tensor.shape), dtype) for tensor, dtype in converted]
        key = tree, tuple((struct.shape, str(struct.dtype)) for struct in structs)
        program = self._programs.get(key)
        if program is None:
            program = self._programs.setdefault(key, self._export(tree, structs))
        results = program(tensors)
        return jax.tree.unflatten(program.out_tree, results)

    @property
    def _description(self) -> str:
        return source_location.of_function(self._function)

    def _convert(self, value: object) -> tuple[Any, Any]:
        from jax.experimental.jax2tf import jax2tf  # a JAX version may lack it

        try:
            tensor, dtype = jax2tf._tfval_to_tensor_jax_dtype(value)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"hostcall.jax.to_tf of {self._description}: {value!r} is not a tensor that JAX "
                "has."
            ) from error
        return tf.convert_to_tensor(tensor), dtype

    def _export(self, tree: object, structs: list[Any]) -> Differentiable:
        args, kwargs = jax.tree.unflatten(tree, structs)
        if any(struct.shape.count(None) for struct in structs) and self._shapes is None:
            shapes = ", ".join(str(struct.shape) for struct in structs)
            raise ValueError(
                f"hostcall.jax.to_tf of {self._description}: not all sizes of the arguments are "
                f"known: {shapes}. JAX needs a name for each that is not. If the first one is the "
                "size of a batch, the same for all arguments, write\n\n"
                '    hostcall.jax.to_tf(function, polymorphic_shapes="batch, ...")\n\n'
                'or name them for each argument: polymorphic_shapes=["batch, ...", None].'
            )
        symbolic = jax.export.symbolic_args_specs(args, self._shapes, constraints=self._constraints)
        program = export(self._jitted, symbolic, kwargs)
        return Differentiable(self._jitted, program, self._description)


class Differentiable:
    """A program as a function of flat tensors, which TensorFlow can differentiate.

    A function without side effects runs once more for its gradient, as those of `jax2tf` do. One
    with side effects must not. It also returns residuals, if its gradient can be asked for.
    """

    def __init__(self, jitted: Any, program: Artifact, description: str) -> None:
        self.out_tree = program.exported.out_tree
        self._program = program
        self._jitted = jitted
        self._description = description
        self._floats_in = list(map(_values.is_float, program.exported.in_avals))
        self._floats_out = list(map(_values.is_float, program.exported.out_avals))
        self._gradient: Differentiable | None = None
        self._split: _Split | None = None

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        unrecorded = tf.executing_eagerly() and eager_execution.has_no_tapes()
        if unrecorded or not (any(self._floats_in) and any(self._floats_out)):
            return run(self._program, tensors)
        forward = self._forward_once if self._program.has_effects else self._forward
        return eager_execution.with_gradient(forward, tensors)

    def _forward(self, *tensors: Any) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        """Return the results, and the gradient function that TensorFlow calls."""

        def gradient(*upstream: Any, **_: Any) -> list[Any]:
            try:
                self._gradient = self._gradient or self._export_gradient()
            except Exception as error:
                if not patches.is_saving():
                    raise
                return self._all(self._without_gradient(tensors, error))
            return self._all(self._gradient([*tensors, *self._chosen(upstream)]))

        return run(self._program, tensors), gradient

    def _without_gradient(self, tensors: Sequence[Any], error: Exception) -> list[Any]:
        """Return gradients for a SavedModel that are an error where one is asked for there."""
        text = f"hostcall.jax.to_tf of {self._description}: JAX has no gradient of it: {error}"
        with tf.control_dependencies([tf.debugging.Assert(False, [text])]):
            return list(map(tf.zeros_like, itertools.compress(tensors, self._floats_in)))

    def _forward_once(self, *tensors: Any) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        """Return the same for a program that must not run again."""
        if self._split is None:
            avals = self._program.exported.in_avals
            self._split = _Split(self._pull_back, avals, self._program, self._description)
        split = self._split
        results, residuals = split.forward(tensors)

        def gradient(*upstream: Any, **_: Any) -> list[Any]:
            return self._all(split.backward([*residuals, *self._chosen(upstream)]))

        return results, gradient

    def _pull_back(self, *flat: Any) -> tuple[list[Any], Any]:
        """Return the flat results, and JAX's function from their cotangents to the arguments'."""

        def of_floats(*floats: Any) -> tuple[list[Any], list[Any]]:
            both = zip(flat, self._all(floats), strict=True)
            whole = [value if floating is None else floating for value, floating in both]
            args, kwargs = jax.tree.unflatten(self._program.exported.in_tree, whole)
            results = jax.tree.leaves(self._jitted(*args, **kwargs))
            return self._chosen(results), results

        floats = itertools.compress(flat, self._floats_in)
        _, pull_back, results = jax.vjp(of_floats, *floats, has_aux=True)
        return results, pull_back

    def _export_gradient(self) -> Differentiable:
        avals = self._program.exported.in_avals

        def gradient(*flat: Any) -> list[Any]:
            _, pull_back = self._pull_back(*flat[: len(avals)])
            return _conjugated(pull_back(_conjugated(flat[len(avals) :])))

        jitted = jax.jit(gradient)
        cotangents = self._chosen(self._program.exported.out_avals)
        program = export(jitted, _structs([*avals, *cotangents]), {})
        return Differentiable(jitted, program, f"the gradient of {self._description}")

    def _chosen(self, of_results: Sequence[Any]) -> list[Any]:
        """Return the results, or values for them, that have gradients."""
        return list(itertools.compress(of_results, self._floats_out))

    def _all(self, gradients: Sequence[Any]) -> list[Any]:
        """Insert None for the arguments that have no gradients."""
        remaining = iter(gradients)
        return [next(remaining) if is_float else None for is_float in self._floats_in]


class _Split:
    """A program with side effects as two: a forward one that returns residuals, and a gradient."""

    def __init__(
        self, pull_back: Callable[..., Any], avals: Any, whole: Artifact, description: str
    ) -> None:
        self._whole = whole
        self._count = len(whole.exported.out_avals)
        self._description = description
        self._tree: Any = None
        self._backward: Artifact | None = None
        self._error: Exception | None = None

        def with_residuals(*flat: Any) -> list[Any]:
            results, function = pull_back(*flat)
            residuals, self._tree = jax.tree.flatten(function)
            return [*results, *residuals]

        try:
            self._forward = export(jax.jit(with_residuals), _structs(avals), {})
            if self._forward.callbacks.losable != whole.callbacks.losable:
                raise NotImplementedError(
                    "where JAX differentiates a loop, it leaves out some calls in it (of "
                    "jax.experimental.io_callback). Use hostcall.jax.call in its place, which "
                    "stays."
                )
        except Exception as error:  # an error only if the gradient is asked for
            self._error, self._forward = error, whole

    def forward(self, tensors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the results, and the residuals for the gradient."""
        returned = run(self._forward, tensors)
        return returned[: self._count], [*returned[self._count :], *self._sized(tensors)]

    def backward(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the gradients for the residuals of `forward` and gradients of float results."""
        if self._error is not None:
            raise ValueError(
                f"hostcall.jax.to_tf of {self._description}: JAX has no gradient of it: "
                f"{self._error}"
            ) from self._error
        if self._backward is None:
            self._backward = self._export_backward()
        program = self._backward

        def once(*tensors: Any) -> tuple[list[tf.Tensor], Callable[..., Any]]:
            return run(program, tensors), self._refuse

        return eager_execution.with_gradient(once, tensors)

    def _export_backward(self) -> Artifact:
        residuals = self._forward.exported.out_avals[self._count :]
        sized = self._sized(self._whole.exported.in_avals)
        cotangents = [aval for aval in self._whole.exported.out_avals if _values.is_float(aval)]

        def backward(*flat: Any) -> list[Any]:
            pull_back = jax.tree.unflatten(self._tree, flat[: len(residuals)])
            return _conjugated(pull_back(_conjugated(flat[len(residuals) + len(sized) :])))

        avals = [*residuals, *sized, *cotangents]
        return export(jax.jit(backward), _structs(avals), {})

    def _sized(self, of_arguments: Sequence[Any]) -> list[Any]:
        """Return those arguments that have sizes with names, which only arguments tell."""
        avals = self._whole.exported.in_avals
        symbolic = (any(not isinstance(n, int) for n in aval.shape) for aval in avals)
        return list(itertools.compress(of_arguments, symbolic))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError(
            f"hostcall.jax.to_tf of {self._description}: its second derivative is asked for, and "
            "it has side effects, which would happen again. Take jax.grad of it in JAX, and "
            "convert the result."
        )


def _conjugated(values: Sequence[Any]) -> list[Any]:
    return list(map(jnp.conj, values))


def _structs(avals: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]


_numbers = itertools.count(1)


@dataclasses.dataclass
class Callbacks:
    """The targets of a program's callbacks."""

    targets: list[Target] = dataclasses.field(default_factory=list)
    losable: int = 0  # the number of those that JAX drops from loops that it differentiates

    def add(self, target: Target, effect: Any | None) -> None:
        """Add a callback."""
        self.targets.append(target)
        self.losable += effect is not None and _primitive.is_lost_in_loops(effect)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A JAX function for arguments of certain dtypes and shapes, a `jax.export.Exported`.

    The graphs that call it own the module, TensorFlow's record of it, and so its callbacks.
    """

    exported: Any
    crossing: Any  # the same, but for wide integers at its border if that one has narrow ones
    callbacks: Callbacks
    module: Module

    @property
    def has_effects(self) -> bool:
        """True if it has side effects."""
        return bool(self.exported.ordered_effects or self.exported.unordered_effects)


def export(jitted: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Artifact:
    """Trace and lower a function that `jax.jit` has made, for CPUs, to StableHLO for TensorFlow."""
    # The arguments are ShapeDtypeStructs in structures; sizes may be symbolic.
    from jax._src.export import _export  # a JAX version may lack it

    # Slow to import, and few programs cross.
    from hostcall._bridges import foreign_rules
    from hostcall_mlir.exporting import jaxlib_names

    border = four_bits.border_of(jitted, args, kwargs)
    _, name, defined_at, _ = source_location.split_description(
        f"f of {source_location.of_function(jitted)}"
    )
    if border is not None:
        jitted, args, kwargs, _ = border
    callbacks = Callbacks()
    rules, register_emitted = _rules_for(callbacks, jitted, args, kwargs)
    foreign = foreign_rules.Exportable(jitted, register_emitted)
    exported = _export.export(
        foreign,
        platforms=("cpu",),
        disabled_checks=_unchecked([_rules.TARGET, *jaxlib_names.ffi_handlers()]),
        _override_lowering_rules=tuple(rules.items()),
    )(*args, **kwargs)
    version = _versions.stablehlo(tf.__version__)
    code = jaxlib_names.rewritten(exported.mlir_module_serialized, version)
    exported = crossing = dataclasses.replace(
        exported,
        mlir_module_serialized=code,
        disabled_safety_checks=tuple(_unchecked([_rules.TARGET, *foreign.handlers])),
    )
    if border is not None:
        in_avals, out_avals = map(tuple, border.narrow(exported))
        exported = dataclasses.replace(exported, in_avals=in_avals, out_avals=out_avals)
    has_token = bool(exported.ordered_effects)
    module = Module(
        "hostcall.jax.to_tf", name, defined_at, callbacks.targets, has_token, foreign.handlers
    )
    return Artifact(exported, crossing, callbacks, module)


def _rules_for(
    callbacks: Callbacks, jitted: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[dict[Any, Callable[..., Any]], Callable[..., int] | None]:
    """Return the lowering rules of calls, and what registers others' callbacks, or None."""
    lower_call = functools.partial(_lower_call, callbacks)
    rules: dict[Any, Callable[..., Any]] = dict.fromkeys(_primitive.CALLS, lower_call)
    if not _names.has(_names.JAX_CALLBACKS):
        return rules, None
    rules |= _rules_of_jax_callbacks(callbacks, jitted.trace(*args, **kwargs).jaxpr)
    return rules, functools.partial(_register_emitted, callbacks)


def _unchecked(targets: Iterable[str]) -> list[jax.export.DisabledSafetyCheck]:
    """Return what lets JAX export custom calls of these targets, of which it promises nothing."""
    return list(map(jax.export.DisabledSafetyCheck.custom_call, targets))


def run(program: Artifact, tensors: Sequence[Any]) -> list[Any]:
    """Run a program on flat tensors, and return its results: in a graph, those of an op."""
    from jax.experimental.jax2tf import jax2tf  # imports TensorFlow, which call() does not need

    is_wide = program.crossing is not program.exported
    given = four_bits.cast(tensors) if is_wide else tensors
    with program.module.called():
        results = list(jax2tf._run_exported_as_tf(given, program.crossing))
    return four_bits.cast_back(results, program.exported.out_avals) if is_wide else results


def _rules_of_jax_callbacks(callbacks: Callbacks, jaxpr: Any) -> dict[Any, Callable[..., Any]]:
    """Return the lowering rules of JAX's own callbacks in a program."""
    known = _jax_callbacks()
    _control_flow.check_reducers(
        jaxpr, {primitive: kind for primitive, (kind, _, _) in known.items()}
    )
    return {
        primitive: functools.partial(_lower_jax_callback, callbacks, *described)
        for primitive, described in known.items()
    }


def _jax_callbacks() -> dict[Any, tuple[str, Callable[..., Any], Callable[[Any], Any]]]:
    """Return JAX's primitives that call Python."""
    # Each has the public function that makes it, the function that runs it, and one that returns
    # its effect, or None, for its parameters.
    from jax._src import callback as _callback  # a JAX version may lack its names
    from jax._src import debugging as _debugging

    def of_io(params: Any) -> object:
        return _callback._OrderedIOEffect if params["ordered"] else _callback._IOEffect

    def of_print(params: Any) -> object:
        return _debugging.ordered_debug_effect if params["ordered"] else _debugging.debug_effect

    pure, io = _callback.pure_callback_impl, _callback.io_callback_impl
    debug, printed = _debugging.debug_callback_impl, _debugging.debug_print_impl
    return {
        _callback.pure_callback_p: ("jax.pure_callback", pure, lambda _: None),
        _callback.io_callback_p: ("jax.experimental.io_callback", io, of_io),
        _debugging.debug_callback_p: ("jax.debug.callback", debug, lambda p: p["effect"]),
        _debugging.debug_print_p: ("jax.debug.print", printed, of_print),
    }


def _lower_call(
    callbacks: Callbacks,
    context: Any,
    *operands: Any,
    function: JaxFunction,
    effect: Any | None,
    joint: _primitive.Joint | None,
    **_: Any,
) -> Sequence[object]:
    if joint is not None and joint.axes:
        raise NotImplementedError(
            f"{function.description}: with this sharding= it is called for parts of arrays, on "
            "several devices, and TensorFlow runs a function of hostcall.jax.to_tf on one. Leave "
            "sharding= out, or say jax.P()."
        )
    target, callback_id = function.register_entry(effect is _primitive.ORDERED)
    target.host_function = functools.partial(eager_execution.apart, target.host_function)
    callbacks.add(target, effect)
    return _rules.emit(context, operands, callback_id, effect)


def _lower_jax_callback(
    callbacks: Callbacks,
    kind: str,
    run: Callable[..., Any],
    effect_of: Callable[[Any], Any],
    context: Any,
    *operands: Any,
    **params: Any,
) -> Sequence[object]:
    effect, sharding = effect_of(params), params.get("sharding")
    name = _name_of_user_function(params)
    place = f"{kind} of {name}, called at {_line_of(context)}"
    function = functools.partial(run, **params)
    target = Target(_as_host_function(function), kind, place)
    ordered = effect is not None and _primitive.is_ordered(effect)
    target.site = _interception.CallSite(name, place, function, ordered=ordered)
    callback_id = register(target, f"{kind}/{next(_numbers)}", label=place)
    callbacks.add(target, effect)
    return _rules.emit(context, operands, callback_id, effect, sharding)


def _register_emitted(callbacks: Callbacks, function: Callable[..., Any], name: str) -> int:
    """Register a callback that another library's lowering rule emits, and return its id."""
    kind = "mlir.emit_python_callback"
    place = f"{kind} of {name}"
    target = Target(_as_host_function(function), kind, place)
    target.site = _interception.CallSite(name, place, function, ordered=False)
    callbacks.add(target, None)
    return register(target, f"{kind}/{next(_numbers)}", label=place)


def _name_of_user_function(params: Any) -> str:
    if "fmt" in params:
        return repr(params["fmt"])
    function = params["callback"]
    return source_location.of_function(getattr(function, "callback_func", function))


def _line_of(context: Any) -> str:
    """Return `file:line` of the user's code for the op that is being lowered, or ""."""
    from jax._src import source_info_util as _source_info  # a JAX version may lack its names

    frame = _source_info.user_frame(context.traceback)
    return "" if frame is None else f"{frame.file_name}:{frame.start_line}"


def _as_host_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` so that its results have dtypes that JAX has."""

    def call(*arrays: Any) -> list[Any]:
        returned = eager_execution.apart(function, *arrays)
        return [_values.canonical(np.asarray(value)) for value in returned]

    return call
