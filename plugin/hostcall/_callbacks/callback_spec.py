"""The registry's entries: one CallbackSpec for each Python function in a graph."""

from __future__ import annotations

import dataclasses
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hostcall._callbacks import requested_routes, result_contract
from hostcall._callbacks.result_contract import SeenShapes, ShapeAgnosticResults
from hostcall._callbacks.structures import Inputs, Outputs, Spec, admits
from hostcall._callbacks.tape_residuals import Recording as Recording
from hostcall._functions import memoization
from hostcall._functions.options import Options
from hostcall._functions.user_function import UserFunction
from hostcall._tf import autograph, eager_execution, token_registry
from hostcall._tf.types import NodeDef
from hostcall_runtime import Target, _errors, _interception, _locks, _registry
from hostcall_runtime._errors import counted

_NONE_FREE: ShapeAgnosticResults = types.MappingProxyType({})

ShapeFunction = Callable[[Sequence[Spec]], Sequence[Spec | None]]


_lock = _locks.new_lock()


@dataclasses.dataclass(frozen=True)
class Origin:
    """The spec and the recording that a target of a compiled program was made from."""

    spec: weakref.ref[CallbackSpec]
    recording: Recording


class CallbackSpec:
    """What an op adds to the Python function that it calls: structures, shapes, its place.

    Graphs own the spec; TensorFlow's registry and the runtime's hold it weakly. Plain graph mode
    calls it through the stock kernel, a compiled program through one of its targets.

    Attributes:
      user: the Python function.
      inputs, outputs: the structures of its arguments and results.
      shape_function: maps the inputs' specs to the results' specs; None if none is declared.
      shape_only: the inputs that only `shape_function` uses; a compiled program does not pass them.
      like: for each result the input of the same shape, if every result has one; else None.
      static_specs: the specs of the results that are known in tracing.
      plain_specs: the specs that plain graphs use, and so must hold in them. They say no more than
        stock TensorFlow does, apart from declarations by hostcall.
      pending: for each result, whether the shape function may know more when XLA compiles than in
        tracing.
      consumer_shapes: for each result, the shape that its consumers demand; empty before the graph
        has been traced.
      element_counts: for each result, the number of elements that its consumers demand, or None.
      shape_reasons: for messages, the ops that determine a shape which nothing declares.
      title: the name in messages: the op's token, `pyfunc_N`.
      route: "auto", "custom_call" or "partition", as requested when the op was created.
      levels: the batches that a call covers, outermost first; empty for a call for one element.
      saved: the data of the saved graph that it comes from; None if it was traced here.
      op: a weak reference to the op, where it is in a graph.
      seen_shapes: the shapes that calls have returned, where a function is partitioned because
        nothing declares them; else None.
    """

    # The target of the custom calls.
    custom_call = "hostcall"

    def __init__(
        self,
        user: UserFunction,
        inputs: Inputs,
        outputs: Outputs,
        shape_function: ShapeFunction | None,
        shape_only: Iterable[int] = (),
        route: str = requested_routes.AUTO,
        levels: tuple[int, ...] = (),
    ) -> None:
        self.user = user
        self.inputs = inputs
        self.outputs = outputs
        self.shape_function = shape_function
        self.shape_only = frozenset(shape_only)
        self.route = route
        self.levels = levels
        self.like: Sequence[int] | None = None
        self.static_specs: list[Spec] = [tf.TensorSpec(None, dtype) for dtype in outputs.dtypes]
        self.plain_specs = self.static_specs
        self.pending = [shape_function is not None] * len(outputs.dtypes)
        self.consumer_shapes: Sequence[tf.TensorShape] = ()
        self.element_counts: Sequence[int | None] = ()
        self.shape_reasons: Sequence[str] = ()
        self.saved: Any = None
        self.title = ""
        self.op: weakref.ref[Any] | None = None
        self._targets: dict[tuple[Any, ...], tuple[Any, int]] = {}
        self._host_op_entries: dict[Any, Any] = {}
        self.seen_shapes: SeenShapes | None = None

    @property
    def function(self) -> Callable[..., Any]:
        """The user's function."""
        return self.user.function

    @property
    def options(self) -> Options:
        """The options of the function's calls."""
        return self.user.options

    @property
    def description(self) -> str:
        """The function and the op for a message, with the file and line of both."""
        return self.user.description

    @property
    def takes_tensors(self) -> bool:
        """True if the function takes EagerTensors."""
        return self.user.takes_tensors

    def target_id(self, recording: Recording, free: ShapeAgnosticResults = _NONE_FREE) -> int:
        """Return the callback id for compiled programs; the first request creates the target.

        Args:
          recording: whether the gradient of the call can be asked for.
          free: the results that may have any shape.
        """
        key = (recording, *sorted(free.items()))
        with _lock:  # several threads may compile the same op
            if key not in self._targets:
                target, callback_id = self._register(recording, free)
                target.origin = Origin(weakref.ref(self), recording)
                _registry.know(callback_id, target)
                self._targets[key] = target, callback_id
            return self._targets[key][1]

    def _register(self, recording: Recording, free: ShapeAgnosticResults) -> tuple[Any, int]:
        name = f"{self.title}/{recording.name}" if recording else self.title
        name += result_contract.suffix_of(free)
        function = self.program_function(recording)
        if not self.takes_tensors:
            function = result_contract.returning_vectors(function, self, free)
        target = Target(function, self.title, "; ".join([self.description, *self.shape_reasons]))
        target.node, target.definition = self.node, self.definition
        target.site = self.site(recording)
        if self.takes_tensors:
            target.to_tensor = functools.partial(eager_execution.to_eager_tensor, dtype=None)
            target.to_arrays = result_contract.making_vectors(self.to_arrays(recording), free)
        identity = (recording.name, result_contract.suffix_of(free))
        return target, self.user.register(target, name, identity)

    def site(self, recording: Recording = Recording.NO) -> _interception.Site:
        """Return the call site by which a recording or a replay identifies the calls."""
        ordered = self.user.is_ordered or self.op is None  # eager calls always run in program order
        return _interception.Site(
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
        return self.user.owns_arguments or self.options.line is not None

    def check_call(self, operands: Sequence[Spec], results: Sequence[Spec]) -> None:
        """Check that a compiled program may call the function.

        Raises:
          LoweringError: when it may not.
        """

    def host_op_entry(self, make: Callable[[Any, Any], Any], node: NodeDef) -> Any:
        """Return the entry that the stock kernel calls in a partitioned function.

        Args:
          make: makes the entry from this spec and `node`, once. The entry's title is its token.
          node: the op.
        """
        with _lock:
            if make not in self._host_op_entries:
                entry = self._host_op_entries[make] = make(self, node)
                token_registry.register_token(entry.title, entry)
            return self._host_op_entries[make]

    def host_function(self, recording: Recording) -> Callable[..., Any]:
        """Return the function that a compiled program calls."""
        raise AssertionError("a subclass defines it")

    def program_function(self, recording: Recording) -> Callable[..., Any]:
        """Return the same for a program that copies the results as soon as the function returns."""
        return self.host_function(recording)

    def to_arrays(self, recording: Recording) -> Callable[[Any], list[Any]]:
        """Return the conversion to arrays of that function's results, where they are tensors."""
        raise AssertionError("a subclass defines it")

    def check_arguments(self, arguments: Sequence[Any]) -> None:
        """Check in plain graph mode that the arguments fit; those from an altered graph may not.

        Raises:
          ValueError: when the number of arguments differs from tracing, or tensors come in the
            place of arrays. The function might compute other results with them.
        """
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
        """Check in plain graph mode that the shapes agree with those that tracing used.

        Raises:
          ValueError: naming the result, the declared and the actual shape.
        """
        for index, (actual, expected) in enumerate(zip(shapes, self.plain_specs, strict=False)):
            if not admits(expected, actual):
                raise ValueError(result_contract.shape_message(self, index, actual, expected))


def spec_of_callback_id(callback_id: int) -> tuple[CallbackSpec | None, Recording]:
    """Return the spec behind a callback id, or None if the id is no spec's; and its recording."""
    origin = getattr(_registry.target_of(callback_id), "origin", None)
    if not isinstance(origin, Origin):
        return None, Recording.NO
    return origin.spec(), origin.recording


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

    def host_function(self, recording: Recording) -> Callable[..., Any]:
        table = self.options.table
        call = self._call(lends=False)
        return call if table is None else table.remembering(call, self._form)

    def program_function(self, recording: Recording) -> Callable[..., Any]:
        if self.options.table is not None:  # the table keeps the results
            return self.host_function(recording)
        return self._call(lends=True)

    @_errors.raises_for_stock_kernel
    def __call__(self, *arrays: Any) -> Any:
        """Run the op for the stock kernel, which calls this through TensorFlow's registry."""
        return self._run_op(arrays)

    def own(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the arguments in plain graph mode as arrays that the function may write to."""
        if not self.gives_copies:
            return arrays
        # Lone strings are bytes, and scalars are immutable: neither needs a copy.
        return [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]

    def _returned(self, arrays: Sequence[Any]) -> Any:
        return self.kernel_function()(*self.own(arrays))

    def kernel_function(self) -> Callable[..., Any]:
        """Return the function that TensorFlow's kernels call."""
        return _interception.around(self.site, self.host_function(Recording.NO))

    def _run_op(self, arrays: Sequence[Any]) -> Any:
        self.check_arguments(arrays)
        returned = self._returned(arrays)
        if self.options.table is not None:
            # The stock kernel may share the memory of an array.
            returned = memoization.private_copy(returned)
        if isinstance(returned, list | tuple):
            values = [_native(value) for value in returned]
            self.check_static([np.shape(value) for value in values if value is not None])
            return values
        value = _native(returned)
        if value is not None:
            self.check_static([np.shape(value)])
        return value

    def _call_structured(self, function: Callable[..., Any], *arrays: Any, **borrowed: Any) -> Any:
        if "out" in borrowed and not self.outputs.trivial:
            out = borrowed["out"]
            borrowed["out"] = self.outputs.pack(out if isinstance(out, tuple) else [out])
        returned = function(*self.inputs.pack(arrays), **borrowed)
        if self.outputs.trivial or (borrowed and returned is None):
            return returned
        if self.options.line is not None:
            return []
        return self.outputs.flatten(returned, self.function)


def _native(value: object) -> Any:
    # Stock TensorFlow reads the bytes of a big-endian array as little-endian ones.
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return value
