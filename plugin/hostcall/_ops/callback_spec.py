"""The registry's entries: one CallbackSpec for each Python function in a graph."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from hostcall._functions import memoization
from hostcall._functions.user_function import UserFunction
from hostcall._ops import requested_routes, result_contract, structures, tape_residuals
from hostcall._ops.result_contract import SeenShapes, ShapeAgnosticResults
from hostcall._ops.tape_residuals import ResidualMode as ResidualMode
from hostcall._tf import autograph, eager_execution, features, token_registry
from hostcall._tf.types import NodeDef
from hostcall_runtime import Target, _errors, _interception, _locks, _registry, _remedies
from hostcall_runtime._errors import counted

ShapeFunction = Callable[[Sequence[structures.Spec]], Sequence[structures.Spec | None]]
_lock = _locks.new_lock()


@dataclasses.dataclass(frozen=True)
class Origin:
    """The spec and the residual mode that a target of a compiled program was made from."""

    spec: weakref.ref[CallbackSpec]
    mode: ResidualMode


class HostOpEntry(Protocol):
    """What the stock kernel calls for a host op."""

    title: str


class CallbackSpec:
    """What an op adds to the Python function that it calls: structures, shapes, its place.

    Graphs own the spec; TensorFlow's registry and the runtime's hold it weakly. Plain graph mode
    calls it through the stock kernel, a compiled program through one of its targets.
    """

    custom_call = "hostcall"  # the target of the custom calls

    def __init__(
        self,
        user: UserFunction,
        inputs: structures.Inputs,
        outputs: structures.Outputs,
        shape_function: ShapeFunction | None,
        shape_only: Iterable[int] = (),
        route: str = requested_routes.AUTO,
        levels: tuple[int, ...] = (),
    ) -> None:
        self.user = user  # the Python function
        # Attributes of `user`, which each call reads.
        self.function = user.function
        self.options = user.options
        self.description = user.description
        self.takes_tensors = user.takes_tensors
        # The structures of its arguments and results.
        self.inputs = inputs
        self.outputs = outputs
        # Maps the inputs' specs to the results' specs; None if none is declared.
        self.shape_function = shape_function
        # The inputs that only `shape_function` uses; a compiled program does not pass them.
        self.shape_only = frozenset(shape_only)
        # "auto", "custom_call" or "partition", as requested when the op was created.
        self.route = route
        # The batches that a call covers, outermost first; empty for a call for one element.
        self.levels = levels
        # For each result the input of the same shape, if every result has one; else None.
        self.like: Sequence[int] | None = None
        # The specs of the results that are known in tracing.
        self.static_specs: list[structures.Spec] = [
            tf.TensorSpec(None, dtype) for dtype in outputs.dtypes
        ]
        # The specs that plain graphs use, and so must hold in them. They say no more than stock
        # TensorFlow does, apart from declarations by hostcall.
        self.plain_specs = self.static_specs
        # For each result, whether the shape function may know more when XLA compiles.
        self.pending = [shape_function is not None] * len(outputs.dtypes)
        # For each result, the shape that its consumers demand; empty before the end of tracing.
        self.consumer_shapes: Sequence[tf.TensorShape] = ()
        # For each result, the number of elements that its consumers demand, or None.
        self.element_counts: Sequence[int | None] = ()
        # For messages, the ops that determine a shape which nothing declares.
        self.shape_reasons: Sequence[str] = ()
        # The data of the saved graph that it comes from; None if it was traced here.
        self.saved: Any = None
        self.title = ""  # the name in messages: the op's token, `pyfunc_N`
        # A weak reference to the op, where it is in a graph.
        self.op: weakref.ref[Any] | None = None
        self._targets: dict[tuple[Any, ...], tuple[Any, int]] = {}
        self._host_op_entries: dict[bool, HostOpEntry] = {}
        # The shapes that calls have returned, where a function is partitioned because nothing
        # declares them; else None.
        self.seen_shapes: SeenShapes | None = None

    def target_id(self, mode: ResidualMode, free: ShapeAgnosticResults) -> int:
        """Return the callback id for compiled programs; results in `free` may have any shape."""
        key = (mode, *sorted(free.items()))
        with _lock:  # several threads may compile the same op
            if key not in self._targets:
                target, callback_id = self._register(mode, free)
                target.origin = Origin(weakref.ref(self), mode)
                _registry.know(callback_id, target)
                self._targets[key] = target, callback_id
            return self._targets[key][1]

    def _register(self, mode: ResidualMode, free: ShapeAgnosticResults) -> tuple[Any, int]:
        name = f"{self.title}/{mode.name}" if mode else self.title
        name += result_contract.suffix_of(free)
        function = self.program_function(mode)
        if free and not self.takes_tensors:
            any_shape = [tf.TensorSpec(None, dtype) for dtype in self.outputs.dtypes]
            contract = result_contract.of(self.title, self.description, any_shape)
            function = result_contract.returning_vectors(function, contract, free)
        target = Target(function, self.title, "; ".join([self.description, *self.shape_reasons]))
        target.node, target.definition = self.node, self.definition
        target.site = self.site(mode)
        if self.takes_tensors:
            target.to_tensor = eager_execution.to_eager_tensor
            target.to_arrays = result_contract.making_vectors(self.to_arrays(mode), free)
        identity = (mode.name, result_contract.suffix_of(free))
        return target, self.user.register(target, name, identity)

    def site(self, mode: ResidualMode = ResidualMode.NO) -> _interception.CallSite:
        """Return the call site by which a recording or a replay identifies the calls."""
        ordered = self.user.is_ordered or self.op is None  # eager calls always run in program order
        return _interception.CallSite(
            self.recorded_name, self.description, self.function, self.node, ordered
        )

    @property
    def recorded_name(self) -> str:
        """The name of the function in recordings."""
        return self.user.recorded_name

    @property
    def op_dtypes(self) -> list[tf.DType]:
        """The dtypes of the op's outputs."""
        return self.outputs.dtypes

    @property
    def node(self) -> str:
        """The name of the op, or "" where it is in no graph."""
        op = None if self.op is None else self.op()
        return "" if op is None else str(op.name)

    def definition(self) -> list[str]:
        """Return the user's source lines that led to the op, formatted as in a traceback."""
        op = None if self.op is None else self.op()
        return [] if op is None else autograph.definition(op)

    @property
    def gives_copies(self) -> bool:
        """True if the function gets arrays of its own wherever it is called."""
        return self.user.owns_arguments or self.options.call_log is not None

    def check_call(
        self, operands: Sequence[structures.Spec], results: Sequence[structures.Spec]
    ) -> None:
        """Raise a LoweringError if a compiled program may not call the function."""

    def host_op_entry(
        self, make: Callable[..., HostOpEntry], node: NodeDef, is_in_region: bool
    ) -> HostOpEntry:
        """Return what the stock kernel calls for a host op; `make` makes it once."""
        with _lock:
            if is_in_region not in self._host_op_entries:
                entry = self._host_op_entries[is_in_region] = make(self, node, is_in_region)
                token_registry.register_token(entry.title, entry)
            return self._host_op_entries[is_in_region]

    def host_function(self, mode: ResidualMode) -> Callable[..., Any]:
        """Return the function that a compiled program calls."""
        raise AssertionError("a subclass defines it")

    def program_function(self, mode: ResidualMode) -> Callable[..., Any]:
        """Return the function for a program that copies the results as soon as it returns."""
        return self.host_function(mode)

    def to_arrays(self, mode: ResidualMode) -> Callable[[Any], list[Any]]:
        """Return the conversion to arrays of that function's results, where they are tensors."""
        raise AssertionError("a subclass defines it")

    def check_arguments(self, arguments: Sequence[Any]) -> None:
        """Raise a ValueError in plain graph mode for arguments that do not fit."""
        # Arguments from an altered graph may not: they may be too few, too many, or tensors in the
        # place of arrays. The function might compute other results with them.
        if len(arguments) != self.inputs.size:
            raise ValueError(
                f"{self.title} was made for an op with {counted(self.inputs.size, 'input')}, and "
                f"is called by one with {len(arguments)}. The graph was altered, or it comes "
                f"from another process. This is {self.description}."
            )
        if (
            arguments
            and isinstance(arguments[0], eager_execution.EagerTensor) != self.takes_tensors
        ):
            takes, given = ("tensors", "arrays") if self.takes_tensors else ("arrays", "tensors")
            raise ValueError(
                f"{self.title} takes {takes}, and is called by an op that passes {given}. The "
                "graph was altered, or it comes from another process. This is "
                f"{self.description}."
            )

    def check_static(self, shapes: Sequence[Any]) -> None:
        """Raise a ResultError in plain graph mode for shapes other than those of tracing."""
        count = len(self.outputs.dtypes)
        for index, (shape, expected) in enumerate(zip(shapes, self.plain_specs, strict=False)):
            if not structures.admits(expected, shape):
                actual = tuple(shape)
                is_bounded = isinstance(expected, structures.BoundedSpec)
                shown = str(expected if is_bounded else expected.shape)
                message = _registry.prepared().shape_message(self.title, index, str(actual), shown)
                bounded = expected.dynamic_dims if is_bounded else ()
                sizes = [] if expected.shape.rank is None else expected.shape.as_list()
                dtype = expected.dtype.name
                remedy = _remedies.for_shape(index, count, dtype, actual, sizes, bounded)
                raise _errors.ResultError(f"{message} This is {self.description}.{remedy}")


def spec_of_callback_id(callback_id: int) -> tuple[CallbackSpec | None, ResidualMode]:
    """Return the spec behind a callback id, or None if the id has none; and its residual mode."""
    origin = getattr(_registry.target_of(callback_id), "origin", None)
    if not isinstance(origin, Origin):
        return None, ResidualMode.NO
    return origin.spec(), origin.mode


class NumpySpec(CallbackSpec):
    """A function from arrays to arrays (ops PyFunc and PyFuncStateless)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A function that was defined inside a tf.function is autograph's converted copy.
        self._unconverted = autograph.called_unconverted(self.function)
        self._form = (self.inputs.form, self.outputs.form)

    def _call(self, lends: bool) -> Callable[..., Any]:
        function = self.user.repeating()
        same = function is self.function
        unconverted = self._unconverted if same else autograph.called_unconverted(function)
        call = self.user.dispatched(unconverted, lends=lends)
        flat = not self.inputs.nested and self.outputs.trivial
        return call if flat else functools.partial(self._call_structured, call)

    def host_function(self, mode: ResidualMode) -> Callable[..., Any]:
        table = self.options.table
        call = self._call(lends=False)
        return call if table is None else table.remembering(call, self._form)

    def program_function(self, mode: ResidualMode) -> Callable[..., Any]:
        if self.options.table is not None:  # the table keeps the results
            return self.host_function(mode)
        return self._call(lends=True)

    @_errors.raises_for_stock_kernel
    def __call__(self, *arrays: Any) -> object:
        """Run the op for the stock kernel, which calls this through TensorFlow's registry."""
        self.check_arguments(arrays)
        returned: Any = self._returned(arrays)
        if self.options.table is not None:
            # The stock kernel may share the memory of an array.
            returned = memoization.private_copy(returned)
        are_several = isinstance(returned, list | tuple)
        values = [_native(value) for value in (returned if are_several else [returned])]
        self.check_static([np.shape(value) for value in values if value is not None])
        return values if are_several else values[0]

    def own(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the arguments in plain graph mode as arrays that the function may write to."""
        if not self.gives_copies:
            return arrays
        # Lone strings are bytes, and scalars are immutable: neither needs a copy.
        return [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]

    def _returned(self, arrays: Sequence[Any]) -> object:
        return self.kernel_function()(*self.own(arrays))

    def kernel_function(self) -> Callable[..., Any]:
        """Return the function that TensorFlow's kernels call."""
        return _interception.around(self.site, self.host_function(ResidualMode.NO))

    def _call_structured(
        self, function: Callable[..., Any], *arrays: Any, **borrowed: Any
    ) -> object:
        if "out" in borrowed and not self.outputs.trivial:
            out = borrowed["out"]
            borrowed["out"] = self.outputs.pack(out if isinstance(out, tuple) else [out])
        returned = function(*self.inputs.pack(arrays), **borrowed)
        if self.outputs.trivial or (borrowed and returned is None):
            return returned
        if self.options.call_log is not None:
            return []
        return self.outputs.flatten(returned, self.function)


def _native(value: object) -> object:
    # Stock TensorFlow reads the bytes of a big-endian array as little-endian ones.
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return value


_NO_HANDLE = np.zeros([], np.int64)  # the handle of a call that keeps no tape residual


class EagerSpec(CallbackSpec, token_registry.EagerFunc):  # type: ignore[misc]
    """A function from EagerTensors to tensors (op EagerPyFunc).

    A differentiable function has one hidden result: the handle of the call's tape residual, or 0
    where none is kept. The handle ties a gradient call to its forward call, in every iteration,
    thread and step.
    """

    # TensorFlow's own gradient sets this; it finds the latest call of an op by the op's token.
    _support_graph_mode_gradient = False

    def __init__(
        self, *args: Any, differentiable: bool = False, pure: bool = False, **kwargs: Any
    ) -> None:
        CallbackSpec.__init__(self, *args, **kwargs)
        self.differentiable = differentiable  # whether the op has the hidden result
        # Whether the gradient runs the function again instead, so that no residual is kept.
        self.pure = pure
        # The spec of the user's function; differs from this spec if this is a derivative.
        self.root = self
        self.order = 0  # 0, or the order of the derivative
        # The highest derivative that a graph or a tape can ask for; valid on the root.
        self.orders_wanted = 0
        # Whether the derivative of this spec's own calls can be asked for.
        self.gradient_wanted = False
        self._call = autograph.called_unconverted(self.function)
        self._arrays = [structures.array_dtype(dtype) for dtype in self.outputs.dtypes]

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
        """Run a call by one of TensorFlow's kernels: `run` is `_run`, as it is dispatched."""
        # Return the results, and a function that keeps a tape residual and returns the handle.
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

    def host_function(self, mode: ResidualMode) -> Callable[..., Any]:
        eager_execution.ensure_initialized()
        if self._is_plain(mode):
            return self._plain_function()
        always = mode in (ResidualMode.RUN, ResidualMode.ESCAPING)
        run = self.dispatched()

        def call(*tensors: Any) -> list[Any]:
            # A cluster's handle is always a result, even if no caller asks for the gradient.
            record = always or (mode is ResidualMode.CLUSTER and self.gradient_wanted)
            values: list[Any]
            values, residual = run(tensors, record, self._arrays)
            if self.differentiable:
                # Not inside `run`: if that overruns its timeout, no caller takes the handle.
                handle = 0 if residual is None else tape_residuals.keep_in_program(residual, mode)
                values.append(np.asarray(handle, np.int64) if handle else _NO_HANDLE)
            return values

        return call

    def site(self, mode: ResidualMode = ResidualMode.NO) -> _interception.CallSite:
        return self._site(lambda residual: tape_residuals.keep_in_program(residual, mode))

    def _site(self, keep: Callable[[tape_residuals.TapeResidual], int]) -> _interception.CallSite:
        weak = weakref.ref(self)
        return dataclasses.replace(
            super().site(),
            to_tensor=eager_execution.to_eager_tensor,
            new_handle=(
                (lambda: keep(tape_residuals.TapeResidual(weak(), [], [], [])))
                if self.differentiable
                else None
            ),
        )

    def to_arrays(self, mode: ResidualMode) -> Callable[[Any], list[Any]]:
        return self._convert_plain if self._is_plain(mode) else _to_arrays

    def dispatched(self) -> Callable[..., Any]:
        return self.user.dispatched(self._run, no_results=([], None))

    def _is_plain(self, mode: ResidualMode) -> bool:
        """Return whether the user's function can be called directly."""
        alone = len(self.outputs.dtypes) == 1 and self.outputs.trivial
        recorded = mode or self._support_graph_mode_gradient
        elsewhere = self.options.timeout or self.options.executor is not None
        return not (recorded or elsewhere or self.inputs.nested) and alone

    def _plain_function(self) -> Callable[..., Any]:
        function, executing_eagerly = self._call, eager_execution.executing_eagerly
        differentiable = self.differentiable

        def call(*tensors: Any) -> object:
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
        """Return the results as EagerTensors, and the tape residual if the call is recorded."""
        if not eager_execution.executing_eagerly():
            with eager_execution.eager_mode():
                return self._run(tensors, record, arrays)
        if not record:
            if self._support_graph_mode_gradient:
                return self._recorded_by_token(tensors), None
            return self.compute(tensors, arrays), None
        # One tape for each order of derivative: each outer tape records the use of the inner ones.
        tapes = [tf.GradientTape(persistent=True) for _ in range(self.orders_wanted)]
        callers = tape_residuals.owners.in_flight(self.title)
        with contextlib.ExitStack() as stack:
            for tape in reversed(tapes):
                stack.enter_context(tape)
                eager_execution.watch(tape, tensors)
            values = self.compute(tensors)
        inputs, outputs = list(tensors), list(values)
        return values, tape_residuals.TapeResidual(self, tapes, inputs, outputs, callers=callers)

    def _recorded_by_token(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the results of a call, and store its tape for TensorFlow's own gradient."""
        with tf.GradientTape() as tape:
            eager_execution.watch(tape, tensors)
            values = self.compute(tensors)
        eager_execution.tape_cache[self.title.encode()] = (tape, list(tensors), list(values))
        return values

    def compute(self, tensors: Sequence[Any], arrays: Sequence[Any] = ()) -> list[Any]:
        """Call the user's function, and return EagerTensors of the declared dtypes."""
        # `arrays` has for each result the dtype of arrays that need no conversion to tensors.
        returned = self._call(*self.inputs.pack(tensors))
        if self.options.call_log is not None:
            return []
        dtypes = self.outputs.dtypes
        if len(dtypes) == 1 and self.outputs.trivial:
            if _is_tensor_of(returned, dtypes[0]):
                return [returned]
            if arrays and structures.is_array_of(returned, arrays[0]):
                return [returned]
        return self._as_tensors(returned)

    def _as_tensors(self, returned: object) -> list[Any]:
        dtypes = self.outputs.dtypes
        values = self.outputs.flatten(returned, self.function, self.inputs.composite)
        tensors = [self._convert(*pair) for pair in zip(values, dtypes, strict=False)]
        if len(values) != len(dtypes):
            message = _registry.prepared().count_message(self.title, len(values), len(dtypes))
            remedy = self.outputs.remedy_of_count(returned)
            raise ValueError(f"{message} This is {self.description}.{remedy}")
        return tensors

    def _convert(self, value: object, dtype: tf.DType) -> tf.Tensor:
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
