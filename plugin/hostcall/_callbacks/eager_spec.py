"""The registry entry of a py_function, which records tape residuals for its gradient."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import requested_routes, result_contract, tape_residuals
from hostcall._callbacks.callback_spec import CallbackSpec, Recording, ShapeFunction
from hostcall._callbacks.structures import Inputs, Outputs, array_dtype, is_array_of
from hostcall._functions.user_function import UserFunction
from hostcall._tf import autograph, eager_execution, features, token_registry
from hostcall_runtime import _errors, _interception

# The handle of a call that keeps no tape residual.
_NO_HANDLE = np.zeros([], np.int64)


class EagerSpec(CallbackSpec, token_registry.EagerFunc):  # type: ignore[misc]
    """A function from EagerTensors to tensors (op EagerPyFunc).

    A differentiable function has one hidden result: the handle of the call's tape residual, or 0
    where none is kept. The handle ties a gradient call to its forward call, in every iteration,
    thread and step.

    Attributes:
      differentiable: whether the op has the hidden result.
      pure: whether the gradient runs the function again instead, so that no residual is kept.
      root: the spec of the user's function; differs from this spec if this is a derivative.
      order: 0, or the order of the derivative.
      orders_wanted: the highest derivative that a graph or a tape can ask for; valid on the root.
      gradient_wanted: whether the derivative of this spec's own calls can be asked for.
    """

    # TensorFlow's own gradient sets this; it finds the latest call of an op by the op's token.
    _support_graph_mode_gradient = False

    def __init__(
        self,
        user: UserFunction,
        inputs: Inputs,
        outputs: Outputs,
        shape_function: ShapeFunction | None,
        shape_only: Iterable[int] = (),
        differentiable: bool = False,
        pure: bool = False,
        route: str = requested_routes.AUTO,
        levels: tuple[int, ...] = (),
    ) -> None:
        CallbackSpec.__init__(
            self, user, inputs, outputs, shape_function, shape_only, route, levels
        )
        self.differentiable = differentiable
        self.pure = pure
        self.root = self
        self.order = 0
        self.orders_wanted = 0
        self.gradient_wanted = False
        self._call = autograph.called_unconverted(user.function)
        self._arrays = [array_dtype(dtype) for dtype in self.outputs.dtypes]

    @property
    def has_own_gradient(self) -> bool:
        """True if hostcall computes the gradient instead of TensorFlow."""
        return (self.differentiable or self.pure) and features.GRADIENTS.available

    @property
    def op_dtypes(self) -> list[tf.DType]:
        """The dtypes of the op's outputs, the hidden one included."""
        return [*self.outputs.dtypes, tf.int64] if self.differentiable else self.outputs.dtypes

    @_errors.raises_for_stock_kernel
    def __call__(self, device: str | None, token: str, args: Sequence[Any]) -> list[Any]:
        """Run the op for the stock kernel, which calls this through TensorFlow's registry."""
        self.check_arguments(args)
        values, handle = self.run_in_kernel(self.dispatched(), args, tape_residuals.keep)
        self.check_static([value.shape for value in values])
        return self.for_kernel(values, handle(), device)

    def run_in_kernel(
        self,
        run: Callable[..., Any],
        args: Sequence[Any],
        keep: Callable[[tape_residuals.TapeResidual], int],
    ) -> tuple[list[Any], Callable[[], int]]:
        """Run a call by one of TensorFlow's kernels.

        Args:
          run: `_run`, as it is dispatched.
          args: its arguments.
          keep: keeps a tape residual, and returns the handle.

        Returns:
          The results, and a function that keeps the residual and returns its handle.
        """
        if not _interception.is_active():
            values, residual = run(args, self.gradient_wanted)
            return values, lambda: 0 if residual is None else keep(residual)

        def call(*_: Any) -> list[Any]:
            values, residual = run(args, self.gradient_wanted)
            handle = 0 if residual is None else keep(residual)
            return [*values, np.int64(handle)] if self.differentiable else values

        # A recording must match calls by all routes; a compiled program does not pass these.
        passed = [arg for index, arg in enumerate(args) if index not in self.shape_only]
        values = list(_interception.around(functools.partial(self._site, keep), call)(*passed))
        handle = values.pop() if self.differentiable else 0
        return values, lambda: int(handle)

    def for_kernel(self, values: list[Any], handle: int, device: str | None) -> list[Any]:
        """Return the results and the handle of the tape residual, as tensors for the kernel."""
        # In programs of TensorFlow 1 a kernel's thread is in graph mode.
        with eager_execution.eager_mode():
            if self.differentiable:
                # Not a Python int: TensorFlow caches the tensor of each int that it sees, for ever.
                values = [*values, eager_execution.convert_to_tensor(np.int64(handle), tf.int64)]
            return [eager_execution.copy_to_device(value, device) for value in values]

    def host_function(self, recording: Recording) -> Callable[..., Any]:
        eager_execution.ensure_initialized()
        if self._is_plain(recording):
            return self._plain_function()
        always = recording in (Recording.RUN, Recording.ESCAPING)
        run = self.dispatched()

        def call(*tensors: Any) -> list[Any]:
            # A cluster's handle is always a result, even if no caller asks for the gradient.
            record = always or (recording is Recording.CLUSTER and self.gradient_wanted)
            values: list[Any]
            values, residual = run(tensors, record, self._arrays)
            if self.differentiable:
                # Not inside `run`: if that overruns its timeout, no caller takes the handle.
                handle = (
                    0 if residual is None else tape_residuals.keep_in_program(residual, recording)
                )
                values.append(np.asarray(handle, np.int64) if handle else _NO_HANDLE)
            return values

        return call

    def site(self, recording: Recording = Recording.NO) -> _interception.Site:
        return self._site(lambda residual: tape_residuals.keep_in_program(residual, recording))

    def _site(self, keep: Callable[[tape_residuals.TapeResidual], int]) -> _interception.Site:
        weak = weakref.ref(self)
        return dataclasses.replace(
            super().site(),
            to_tensor=functools.partial(eager_execution.to_eager_tensor, dtype=None),
            new_handle=(
                (lambda: keep(tape_residuals.TapeResidual(weak(), [], [], [])))
                if self.differentiable
                else None
            ),
        )

    def to_arrays(self, recording: Recording) -> Callable[[Any], list[Any]]:
        return self._convert_plain if self._is_plain(recording) else _to_arrays

    def dispatched(self) -> Callable[..., Any]:
        return self.user.dispatched(self._run, no_results=([], None))

    def _is_plain(self, recording: Recording) -> bool:
        """Return whether the user's function can be called directly."""
        alone = len(self.outputs.dtypes) == 1 and self.outputs.trivial
        recorded = recording or self._support_graph_mode_gradient
        elsewhere = self.options.timeout or self.options.executor is not None
        return not (recorded or elsewhere or self.inputs.nested) and alone

    def _plain_function(self) -> Callable[..., Any]:
        function, executing_eagerly = self._call, eager_execution.executing_eagerly
        differentiable = self.differentiable

        def call(*tensors: Any) -> Any:
            if executing_eagerly():
                returned = function(*tensors)
            else:
                with eager_execution.eager_mode():
                    returned = function(*tensors)
            # The runtime takes tensors and arrays of the right dtype as they are.
            return [returned, _NO_HANDLE] if differentiable else returned

        return call

    def _convert_plain(self, returned: Any) -> list[Any]:
        handle = []
        if self.differentiable:
            returned, *handle = returned
        with eager_execution.eager_mode():
            return _to_arrays(self._as_tensors(returned)) + handle

    def _run(
        self, tensors: Sequence[Any], record: bool, arrays: Sequence[Any] = ()
    ) -> tuple[list[Any], tape_residuals.TapeResidual | None]:
        """Return the results as EagerTensors, and the tape residual of a recorded call.

        Args:
          tensors: the arguments.
          record: whether the gradient may be asked for.
          arrays: for each result, the dtype of arrays that need no conversion to tensors.
        """
        if not eager_execution.executing_eagerly():
            with eager_execution.eager_mode():
                return self._run(tensors, record, arrays)
        if not record:
            if self._support_graph_mode_gradient:
                return self._recorded_by_token(tensors), None
            return self.compute(tensors, arrays), None
        # One tape for each order of derivative: each outer tape records the use of the inner ones.
        tapes = [tf.GradientTape(persistent=True) for _ in range(self.orders_wanted)]
        with contextlib.ExitStack() as stack:
            for tape in reversed(tapes):
                stack.enter_context(tape)
                eager_execution.watch(tape, tensors)
            values = self.compute(tensors)
        return values, tape_residuals.TapeResidual(self, tapes, list(tensors), list(values))

    def _recorded_by_token(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the results of a call, and store its tape for TensorFlow's own gradient."""
        with tf.GradientTape() as tape:
            eager_execution.watch(tape, tensors)
            values = self.compute(tensors)
        eager_execution.tape_cache[self.title.encode()] = (tape, list(tensors), list(values))
        return values

    def compute(self, tensors: Sequence[Any], arrays: Sequence[Any] = ()) -> list[Any]:
        """Call the user's function, and return EagerTensors of the declared dtypes.

        Args:
          tensors: its arguments.
          arrays: for each result, the dtype of arrays that need no conversion to tensors.
        """
        returned = self._call(*self.inputs.pack(tensors))
        if self.options.line is not None:
            return []
        dtypes = self.outputs.dtypes
        if len(dtypes) == 1 and self.outputs.trivial:
            if _is_tensor_of(returned, dtypes[0]):
                return [returned]
            if arrays and is_array_of(returned, arrays[0]):
                return [returned]
        return self._as_tensors(returned)

    def _as_tensors(self, returned: object) -> list[Any]:
        dtypes = self.outputs.dtypes
        values = self.outputs.flatten(returned, self.function, self.inputs.composite)
        tensors = [self._convert(*pair) for pair in zip(values, dtypes, strict=False)]
        if len(values) != len(dtypes):
            raise ValueError(result_contract.count_message(self, len(values)))
        return tensors

    def _convert(self, value: object, dtype: tf.DType) -> Any:
        if isinstance(value, eager_execution.ResourceVariable):
            raise RuntimeError(
                "Attempting to return a variable from an eagerly executed py_func. Only numeric "
                "data structures like Tensors or NumPy arrays should be returned; to return the "
                "value of a variable, make sure to obtain the Tensor backing it by calling "
                f"`.read_value()` on the variable in question: {value}"
            )
        if _is_tensor_of(value, dtype):
            return value
        return eager_execution.convert_to_tensor(value, dtype)


def _is_tensor_of(value: Any, dtype: tf.DType) -> bool:
    return type(value) is eager_execution.EagerTensor and value.dtype is dtype


def _to_arrays(values: list[Any]) -> list[Any]:
    return [
        eager_execution.as_array(v) if isinstance(v, eager_execution.EagerTensor) else v
        for v in values
    ]
