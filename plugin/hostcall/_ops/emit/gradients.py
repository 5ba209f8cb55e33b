"""Gradients of py_functions: a second script op, which a tape residual ties to its call."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._functions import source_location
from hostcall._functions.options import Options
from hostcall._functions.user_function import UserFunction, gradients_by, wrong_gradient
from hostcall._ops import lookup, tape_residuals
from hostcall._ops.callback_spec import EagerSpec, ResidualMode, ShapeFunction
from hostcall._ops.emit import script_ops
from hostcall._ops.structures import Inputs, Outputs
from hostcall._tf import eager_execution, patches, token_registry
from hostcall._tf.types import Operation
from hostcall_runtime import _interception


def with_gradient(
    emit: Callable[[Inputs, Outputs], Any],
    grad: Callable[..., Any],
    inputs: Inputs,
    outputs: Outputs,
) -> object:
    """Return the results of `emit(inputs, outputs)`, with `grad` as their gradient."""
    # `emit` returns the results of an op, packed. `grad(inputs, results, upstream)` takes
    # structures, and returns a gradient for each argument.
    # If the call is in a branch, `grad` must get tensors of the branch.
    tensors = inputs.flat if tf.executing_eagerly() else [tf.identity(t) for t in inputs.flat]
    results: list[Any] = []

    def op(*tensors: Any) -> tuple[list[Any], Callable[..., Any]]:
        inputs.flat = list(tensors)
        called = outputs.unpack(emit(inputs, outputs))

        def gradient(*dy: Any, variables: Sequence[Any] | None = None) -> object:
            arguments = tuple(inputs.pack(tensors))
            given = gradients_by(grad, arguments, outputs.pack(results), outputs.pack(dy))
            gradients = inputs.flatten_gradients(given, source_location.of_function(grad))
            check_gradients(gradients, tensors, grad)
            if variables is None:
                return gradients
            # An eager callback may read variables; they get no gradient through it.
            return gradients, [None] * len(variables)

        return called, gradient

    # `grad` gets these results instead of those of `emit`, because only these have the gradient
    # that the next derivative needs.
    results += eager_execution.with_gradient(op, tensors)
    return outputs.pack(results)


def check_gradients(
    gradients: Sequence[Any], tensors: Sequence[Any], grad: Callable[..., Any]
) -> None:
    """Check the dtypes and shapes of gradients, as TensorFlow would pass on wrong ones."""
    for number, (gradient, tensor) in enumerate(zip(gradients, tensors, strict=True)):
        differentiable = tensor.dtype.is_floating or tensor.dtype.is_complex
        if not differentiable or not isinstance(gradient, tf.Tensor | np.ndarray):
            continue
        dtype, shape = tf.as_dtype(gradient.dtype), tf.TensorShape(gradient.shape)
        if dtype != tensor.dtype or not shape.is_compatible_with(tensor.shape):
            wanted = f"{tensor.dtype.name}{tensor.shape}"
            raise wrong_gradient(grad, f"{dtype.name}{shape}", number, wanted)


class DerivedSpec(EagerSpec):
    """The gradient of a function."""

    def __init__(
        self,
        parent: EagerSpec,
        inputs: Sequence[Any],
        targets: Sequence[int],
        sources: Sequence[int],
        specs: Sequence[tf.TensorSpec],
    ) -> None:
        self.parent = parent  # the spec of the function
        self.targets = list(targets)  # the outputs that have an upstream gradient
        self.sources = list(sources)  # the inputs that have a gradient
        function, executor, shape_only = self._called()
        like = shape_only or self.sources  # the inputs that have the shapes of the results
        outputs = Outputs([spec.dtype for spec in specs])
        given = Inputs(list(inputs), False)
        user = UserFunction(
            function,
            Options(timeout=parent.options.timeout, executor=executor),
            f"the gradient of {parent.description}",
            parent.user.called_as,
            takes_tensors=True,
        )
        how: dict[str, Any] = {"differentiable": True, "route": parent.route}
        shapes: ShapeFunction = lambda specs: [specs[i] for i in like]  # noqa: E731
        super().__init__(user, given, outputs, shapes, shape_only, **how)
        self.static_specs = list(specs)
        self.like = like

    def _called(self) -> tuple[Callable[..., Any], Any, Sequence[int]]:
        """Return the function to call, its executor, and the inputs that only give shapes."""
        raise AssertionError("a subclass defines it")

    @property
    def recorded_name(self) -> str:
        return f"{self.parent.recorded_name}/gradient"


class GradientSpec(DerivedSpec):
    """The derivative of a call, by the tapes that recorded it."""

    # The inputs of its op: the handle of the tape residual, the upstream gradients, then the inputs
    # of the differentiated call. These inputs are there for their shapes, which are those of the
    # results, and for the next derivative. Their values are in the residual.

    def __init__(self, parent: EagerSpec, *given: Any) -> None:
        super().__init__(parent, *given)
        self.root = parent.root
        self.order = parent.order + 1  # 1 for the first derivative
        # Tapes around a whole function may ask for higher orders after its calls were recorded.
        orders = max(self.order, 3) if eager_execution.more_orders_may_follow() else self.order
        self.root.orders_wanted = max(self.root.orders_wanted, orders)

    def _called(self) -> tuple[Callable[..., Any], Any, Sequence[int]]:
        first = 1 + len(self.targets)
        return self.parent.function, None, range(first, first + len(self.sources))

    def _site(self, keep: Callable[[tape_residuals.TapeResidual], int]) -> _interception.CallSite:
        # The handle identifies the differentiated call, so gradient calls may come in any order.
        return dataclasses.replace(super()._site(keep), ordered=False, takes_handle=True)

    def _is_plain(self, mode: ResidualMode) -> bool:
        return False  # `_run` below runs instead of the user's function

    def _run(
        self, tensors: Sequence[Any], record: bool, arrays: Sequence[Any] = ()
    ) -> tuple[list[Any], tape_residuals.TapeResidual | None]:
        residual = self.residual_of(int(tensors[0]))
        if residual.spec.levels != self.parent.levels:
            raise RuntimeError(
                "The gradient for one element is asked for, and the call was made for a whole "
                f"batch: {self.root.description}. Declare it with vmap_method='sequential'."
            )
        upstream = list(tensors[1 : 1 + len(self.targets)])
        with self.recording(residual.tapes[1:] if record else (), upstream):
            gradients = self.gradients_by(residual, upstream)
        return gradients, self.kept(residual, upstream, gradients) if record else None

    def residual_of(self, handle: int) -> tape_residuals.TapeResidual:
        """Return the tape residual of the call with this handle."""
        residual = tape_residuals.take(handle)
        if not residual.tapes:
            raise RuntimeError(
                f"The derivative of order {self.order} of a Python function was asked for, but its "
                f"call was recorded for lower ones only: {self.root.description}. Nest the tapes "
                "around the call, all of them inside one tf.function."
            )
        return residual

    def sources_of(self, residual: tape_residuals.TapeResidual) -> list[Any]:
        """Return the inputs of a call that have a gradient."""
        return [residual.inputs[i] for i in self.sources]

    @contextlib.contextmanager
    def recording(self, tapes: Sequence[Any], upstream: list[Any]) -> Iterator[None]:
        """Execute eagerly inside the context, and make `tapes` record the use of `upstream`."""
        with eager_execution.eager_mode(), contextlib.ExitStack() as stack:
            for tape in reversed(tapes):
                stack.enter_context(eager_execution.resumed(tape))
                tape.watch(upstream)
            yield

    def gradients_by(self, residual: tape_residuals.TapeResidual, upstream: list[Any]) -> list[Any]:
        """Return the gradients of the call that has kept `residual`."""
        results = [residual.outputs[i] for i in self.targets]
        return gradients_of(residual.tapes[0], results, self.sources_of(residual), upstream)

    def kept(
        self, residual: tape_residuals.TapeResidual, upstream: list[Any], gradients: list[Any]
    ) -> tape_residuals.TapeResidual:
        """Return the tape residual for the next derivative."""
        inputs = [None, *upstream, *self.sources_of(residual)]
        return tape_residuals.TapeResidual(self, residual.tapes[1:], inputs, list(gradients))


class RecomputingSpec(DerivedSpec):
    """The gradient of a pure function, which runs the function again, under a tape.

    The inputs of its op: those of the differentiated call, then the upstream gradients.
    """

    def _called(self) -> tuple[Callable[..., Any], Any, Sequence[int]]:
        function = recomputing(self.parent, self.targets, self.sources)
        return function, self.parent.options.executor, ()

    def _site(self, keep: Callable[[tape_residuals.TapeResidual], int]) -> _interception.CallSite:
        function = self.parent.function
        return dataclasses.replace(super()._site(keep), ordered=False, function=function)


def gradient(op: Operation, *dy: Any) -> object:
    """Compute the gradient of an EagerPyFunc op, in the place of TensorFlow's gradient function."""
    # `dy` has gradients of all outputs, also the hidden one. Inputs without a gradient get None.
    spec = _spec_of(op)
    if (given := patches.gradient_given_to(op)) is not None:
        hides = isinstance(spec, EagerSpec) and spec.differentiable
        return given(_WithoutHandle(op), *dy[:-1]) if hides else given(op, *dy)
    if not isinstance(spec, EagerSpec) or not (spec.pure or spec.differentiable):
        return patches.stock_gradient()(op, *dy)
    upstream, sources = _upstream(op, dy), _trainable_inputs(op)
    tensors = [op.inputs[i] for i in sources]
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    if spec.pure:
        inputs = [*op.inputs, *upstream.values()]
        return _emit(RecomputingSpec(spec, inputs, list(upstream), sources, specs), op)
    spec.gradient_wanted = True
    inputs = [op.outputs[-1], *upstream.values(), *tensors]
    return _emit(GradientSpec(spec, inputs, list(upstream), sources, specs), op)


class _WithoutHandle:
    """A view of an op without the hidden result, for the user's gradient function."""

    def __init__(self, op: Operation) -> None:
        self._op = op
        self.outputs = op.outputs[:-1]

    def __getattr__(self, name: str) -> object:
        return getattr(self._op, name)


def _emit(backward: EagerSpec, op: Operation) -> list[Any]:
    results: list[Any] = script_ops.emit_eager(backward, "EagerPyFunc_gradient")
    gradients: list[Any] = [None] * len(op.inputs)
    for index, result, spec in zip(
        _trainable_inputs(op), results, backward.static_specs, strict=True
    ):
        if not tf.executing_eagerly():
            result.set_shape(spec.shape)
        gradients[index] = result
    return gradients


def gradients_of(
    tape: tf.GradientTape, results: list[Any], sources: list[Any], dy: list[Any]
) -> list[Any]:
    gradients = eager_execution.gradients(tape, results, sources, dy)
    # The gradient of a gather is IndexedSlices, but an op returns tensors.
    return [
        g if type(g) is eager_execution.EagerTensor else tf.convert_to_tensor(g) for g in gradients
    ]


def recomputing(
    parent: EagerSpec,
    targets: Sequence[int],
    wanted: Sequence[int],
    derive: Callable[..., list[Any]] = gradients_of,
    persistent: bool = False,
) -> Callable[..., list[Any]]:
    """Return the function of a `RecomputingSpec`; `derive` gets the tape, perhaps `persistent`."""

    # Not a method: a spec that refers to itself would live until the next garbage collection.
    def compute(*args: Any) -> list[Any]:
        count = len(args) - len(targets)
        sources = [args[i] for i in wanted]
        with tf.GradientTape(persistent) as tape:
            tape.watch(sources)
            results = parent.compute(args[:count])
        return derive(tape, [results[i] for i in targets], sources, list(args[count:]))

    return compute


def _trainable_inputs(op: Operation) -> list[int]:
    return [i for i, tensor in enumerate(op.inputs) if eager_execution.is_trainable(tensor)]


def _spec_of(op: Operation) -> object:
    handle: Any = op.outputs[-1] if op.outputs else None
    may_be_handle = handle is not None and handle.dtype == tf.int64 and handle.shape.rank == 0
    if tf.executing_eagerly() and may_be_handle:
        # Only the residual holds the function of an eager call; a later call may use its token.
        spec = tape_residuals.spec_of(int(handle))
        if spec is not None:
            return spec
    token = op.get_attr("token").decode(errors="replace")
    if tf.executing_eagerly():
        return token_registry.entry_of(token)
    dtypes = [output.dtype for output in op.outputs]
    entry = lookup.entry_for(token, "EagerPyFunc", "EagerPyFunc", len(op.inputs), dtypes)
    if entry is None and (why := token_registry.why_missing(token)) is not None:
        raise why  # for an op of a saved graph; TensorFlow's gradient would not give the reason
    return entry


def _upstream(op: Operation, dy: Sequence[Any]) -> dict[int, Any]:
    """Return the gradients of the trainable outputs by index, with zeros for missing ones."""
    return {
        i: tf.zeros_like(output) if gradient is None else tf.convert_to_tensor(gradient)
        for i, (output, gradient) in enumerate(zip(op.outputs, dy, strict=True))
        if eager_execution.is_trainable(output)
    }
