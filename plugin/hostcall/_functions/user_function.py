"""A Python function that programs call, and how each of its calls is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from hostcall._functions import source_location
from hostcall._functions.options import Options
from hostcall_runtime import (
    Target,
    _errors,
    _executors,
    _fire_and_forget,
    _interception,
    _mapped_calls,
    register,
    within,
)
from hostcall_runtime._errors import NotExportableError, counted

if TYPE_CHECKING:  # it takes long to import
    from hostcall_mlir.exporting import structures

# The public functions that script ops come from.
CALLBACK = "hostcall.callback"
NUMPY_FUNCTION, PY_FUNCTION = "tf.numpy_function", "tf.py_function"


@dataclasses.dataclass(frozen=True)
class UserFunction:
    """A Python function that programs call, with all that decides how its calls are made.

    It is complete when it is made, for script ops, `hostcall.callback`, `hostcall.jax.call` and
    functions of saved graphs alike. Each framework adds the structures of arguments and results.
    """

    function: Callable[..., Any]  # the user's function. It takes the inputs of the op by position.
    options: Options = dataclasses.field(default_factory=Options)  # the options of its calls
    # The public function, the user's function and the call, with their lines, for messages.
    description: str = ""
    # The public function that the user has called, such as "tf.numpy_function".
    called_as: str = CALLBACK
    takes_tensors: bool = False  # whether the function takes EagerTensors instead of arrays
    # Whether calls have side effects, so that each runs, once and in program order.
    stateful: bool = True
    # Whether it gets arrays of its own also where TensorFlow's kernels call it.
    owns_arguments: bool = False
    given_name: str | None = None  # the name that the user has given it, or None
    grad: Callable[..., Any] | None = None  # the gradient that the user has given it, or None

    def described(self, place: str) -> UserFunction:
        """Return a copy with a description; `place` is `file:line` of the call, or ""."""
        called_at = f", called at {place}" if place else ""
        of = source_location.of_function(self.function)
        return dataclasses.replace(self, description=f"{self.called_as} of {of}{called_at}")

    @property
    def recorded_name(self) -> str:
        """The name of the function in recordings."""
        return self.given_name or _interception.name_of(self.function)

    @property
    def is_ordered(self) -> bool:
        """True if its calls in a graph run in program order."""
        return self.stateful and not self.options.pure

    @property
    def is_concurrent(self) -> bool:
        """True if calls without side effects may overlap others, on any thread."""
        return self.options.lets_overlap(self.function)

    @property
    def shares_memory(self) -> bool:
        """True if its arrays may lie in the memory of a compiled program."""
        # A call that overruns its timeout is abandoned, and may outlast the program.
        return self.options.shares_memory and self.options.timeout is None

    def dispatched(
        self, function: Callable[..., Any], *, lends: bool = False, no_results: object = None
    ) -> Callable[..., Any]:
        """Wrap `function` so that it runs as declared: fire-and-forget, on an executor, in time."""
        # With `lends`, results may lie in shared memory, for a caller that soon drops them. A call
        # for which no program waits returns `no_results`.
        log = self.options.call_log
        if log is None:
            return self._awaited(function, lends)
        hand_over = _fire_and_forget.handing_over(
            log,
            self._awaited(_fire_and_forget.marking(log, function), lends=False),
            self.options.executor,
            self.description,
            source_location.of_function(self.function),
        )

        def call(*args: Any) -> object:
            hand_over(*args)
            return no_results

        return call

    def _awaited(self, function: Callable[..., Any], lends: bool) -> Callable[..., Any]:
        """Wrap `function` so that it runs on the declared executor, within the declared timeout."""
        options = self.options
        if options.executor is not None:
            return _executors.Callee(
                options.executor,
                self.function,
                self.description,
                options.timeout,
                in_thread=function,
                threads_only=self.takes_tensors,
                retries=options.retries,
                lends=lends,
            )
        if options.timeout is None:
            return function
        return within(options.timeout, function, self.description)

    def repeating(self) -> Callable[..., Any]:
        """Return the function, whose chunks are repeated if it is a mapped one with `retries`."""
        return _mapped_calls.repeating(self.function, self.options.retries)

    def divided(self, axes: Any) -> Self:
        """Return the function for calls that its executor divides along these axes."""
        function: Any = self.function
        provider = self.options.executor
        if provider is None:  # divided along an inner batch, which now goes whole to the workers
            assert isinstance(function, _mapped_calls.MappedFunction)
            function, provider = function.function, function.provider
        mapped = _mapped_calls.MappedFunction(function, provider, axes, None, self.description)
        options = self.options.with_fields(executor=None)
        return dataclasses.replace(self, function=mapped, options=options)

    def argument_memory(self) -> Callable[..., Any] | None:
        """Return the allocator of large arguments that other processes may have to open, if any."""
        options = self.options
        if self.takes_tensors or options.table is not None:  # the table keeps the arguments
            return None
        return _mapped_calls.argument_memory(self.function, options.executor, options.retries)

    def register(self, target: Target, name: str, identity: Sequence[object] = ()) -> int:
        """Give a target to the runtime, as `hostcall_runtime.register`; return the callback id."""
        target.empty = self.argument_memory()
        return register(
            target,
            name,
            self.takes_tensors,
            self.description,
            identity,
            borrows=self.options.borrow,
            takes_out=self.options.out,
            shares_memory=self.shares_memory,
            on_device=self.options.on_device,
            concurrent=self.is_concurrent,
        )


def gradients_by(
    grad: Callable[..., Any], inputs: object, results: object, upstream: object
) -> object:
    """Return what a gradient function returns; say so where it takes other arguments."""
    try:
        return grad(inputs, results, upstream)
    except TypeError as error:
        if not _errors.is_of_call(error):
            raise
        raise TypeError(
            f"hostcall: grad is called with inputs, results and upstream gradients, and "
            f"{source_location.of_function(grad)} does not take them: {error}. Write:\n"
            "    grad=lambda inputs, results, upstream: ..."
        ) from None


def gradients_listed(returned: object, count: int, of: str = "") -> Sequence[Any]:
    """Return what a gradient function has returned as a list with one entry for each argument."""
    gradients = returned if isinstance(returned, list | tuple) else [returned]
    if len(gradients) != count:
        raise ValueError(
            f"hostcall: grad{of and f' of {of}'} returned {counted(len(gradients), 'gradient')} "
            f"for {counted(count, 'argument')}. Return one for each argument, and None for those "
            f"that have none. Write:\n    return {', '.join(f'g{i}' for i in range(count))}"
        )
    return gradients


def wrong_gradient(grad: Callable[..., Any], given: str, number: int, wanted: str) -> ValueError:
    """Return the error for a gradient of another dtype or shape than its input."""
    return ValueError(
        f"hostcall: grad, {source_location.of_function(grad)}, returned a gradient of {given} for "
        f"input {number}, which is {wanted}. A gradient has the dtype and the shape of its input."
    )


@dataclasses.dataclass(frozen=True)
class Source:
    """A callback to export, independent of the framework that calls it."""

    user: UserFunction  # the function
    # The structures of its arguments and results.
    arguments: structures.Structure
    results: structures.Structure
    # TensorFlow's dtypes of the results, if these are converted to tensors.
    dtypes: tuple[Any, ...] = ()
    has_state: bool = False  # whether the last result of a call is the handle of a tape residual

    def __post_init__(self) -> None:
        if self.user.options.on_device:
            raise NotExportableError(
                f"{self.user.description}: it is declared with memory='device', and exported "
                "programs call functions of NumPy's arrays. Remove memory='device'"
            )
