"""The declaration of one function, and its validation."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import numbers
from collections.abc import Hashable, Sequence
from typing import Any

from hostcall._functions import memoization
from hostcall_runtime import _executor_errors, _executors, _fire_and_forget, _mapped_calls, _trees
from hostcall_runtime._errors import counted

SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL = "sequential", "expand_dims", "broadcast_all"
MAP = "map"
METHODS = (SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL, MAP)

# These make one call for the whole batch; with the last, an executor divides it.
OF_BATCHES = (EXPAND_DIMS, BROADCAST_ALL, MAP)

_NO_EXECUTOR = (
    "hostcall: vmap_method='map' divides a batch among the workers of an executor, and there is "
    "none. Write executor=concurrent.futures.ThreadPoolExecutor(4), for one."
)


def check_vmap_method(method: object, executor: object) -> None:
    """Check that a vmap method exists and has the executor that it needs.

    Raises:
      ValueError: when the method is unknown, or its executor is missing.
    """
    if method is not None and method not in METHODS:
        raise ValueError(f"hostcall: vmap_method={method!r} is none of {METHODS}.")
    if method == MAP and executor is None:
        raise ValueError(_NO_EXECUTOR)


AUTO, CUSTOM_CALL, PARTITION = "auto", "custom_call", "partition"
ROUTES = (AUTO, CUSTOM_CALL, PARTITION)


def checked(route: object, what: str = "route") -> str:
    """Return `route` if it is a known route.

    Raises:
      ValueError: when it is unknown.
    """
    if route not in ROUTES:
        raise ValueError(f"hostcall: {what}={route!r} is none of {', '.join(map(repr, ROUTES))}.")
    return str(route)


TRACE = "trace"

# The memory of a function's arrays: NumPy's, or the program's own.
HOST, DEVICE = "host", "device"

# A `hostcall.callback` takes arrays or EagerTensors.
KINDS = ("numpy", "eager")


# Options that exclude wait=False, each with the reason.
_NOT_WITHOUT_WAITING = {
    "borrow": "lends the function the program's own memory for the call alone",
    "out": "has the function write the program's results",
    "memo": "keeps the results of the function",
    "pure": "says that the function does nothing but return results",
    "concurrent": "lets calls overlap, and hostcall makes them one by one",
}


def check_result(result: object) -> None:
    """Check that a declared result holds no string, unless it is "trace" alone.

    Raises:
      ValueError: when it holds one.
    """
    if isinstance(result, str) and result == TRACE:
        return
    for leaf in _trees.leaves(result):
        if isinstance(leaf, str | bytes):
            raise ValueError(
                f"hostcall: result={leaf!r} says nothing of a result. Write tf.TensorSpec([3], "
                "tf.float32), for one, a function that returns such specs, or, alone, "
                f'result="{TRACE}" for the shapes that TensorFlow finds by tracing a '
                "tf.py_function."
            )


def check_function(function: object, who: str) -> None:
    """Check that `who`, which messages name, was given a function whose calls return results.

    Raises:
      TypeError: when it is not callable, or is an `async` function.
    """
    if not callable(function):
        raise TypeError(f"{who} wants a function, and not {function!r}.")
    called = [function, type(function).__call__]
    if any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in called):
        raise TypeError(
            f"{who} wants a function whose calls return results, and {function!r} is an `async` "
            "one: its calls return a coroutine, which nobody would await. Give a function that "
            "runs it, such as lambda x: asyncio.run(function(x))."
        )


def check_concurrent(declaration: Any) -> None:
    """Check that `concurrent` is a bool.

    Raises:
      TypeError: when it is not.
    """
    if not isinstance(declaration.concurrent, bool):
        raise TypeError(
            f"hostcall: concurrent={declaration.concurrent!r} is neither True, where calls may run "
            "at the same time, nor False."
        )


def check_unordered(declaration: Any, ordered: bool, who: str, remedy: str) -> None:
    """Check that calls which may overlap need no order.

    Args:
      declaration: the function's declaration.
      ordered: whether the calls run in program order.
      who: the caller, for the message.
      remedy: the option to write, for the message.

    Raises:
      ValueError: when they need an order.
    """
    if declaration.concurrent and ordered:
        raise ValueError(
            f"{who}: concurrent=True lets calls run at the same time, and these may have side "
            f"effects, which happen in the order of the program. If they have none, write {remedy};"
            " else take concurrent away."
        )


def check_executor(declaration: Any) -> None:
    """Check that a function on an executor borrows no arrays.

    Raises:
      ValueError: when it does.
    """
    for option in ("borrow", "out"):
        if declaration.executor is not None and getattr(declaration, option):
            raise ValueError(
                f"hostcall: {option}=True lends the function the program's own memory for the call "
                "alone, and a call on an executor may outlast the program, or run in another "
                f"process. Take {option}=True or executor= away."
            )


# Options that exclude memory="device", each with the reason.
_NOT_ON_DEVICE = {
    "borrow": "lends the function arrays of NumPy's, and memory='device' lends arrays already",
    "out": "has the function write into arrays of NumPy's",
    "memo": "keeps results by the values of the arguments, which nobody looks at on a device",
    "executor": "makes the call elsewhere, where the program's memory is not",
    "timeout": "lets the program go on while the call still has its memory",
}


def check_memory(declaration: Any) -> None:
    """Check the declared memory, and that no other option excludes memory="device".

    Raises:
      ValueError: when the memory is unknown, or another option excludes it.
    """
    if declaration.memory not in (HOST, DEVICE):
        raise ValueError(
            f"hostcall: memory={declaration.memory!r} is neither {HOST!r}, for arrays of NumPy's, "
            f"nor {DEVICE!r}, for arrays in the program's own memory."
        )
    if declaration.memory == HOST:
        return
    check_waits(declaration.memory, declaration.wait)
    for option, why in _NOT_ON_DEVICE.items():
        given = getattr(declaration, option)
        if given is not None and given is not False:
            raise ValueError(
                f"hostcall: {option}={given!r} {why}. Take {option}= or memory='device' away."
            )


def check_waits(memory: str, wait: bool, concurrent: bool = False) -> None:
    """Raise a ValueError if `memory` or `concurrent` excludes wait=False."""
    if concurrent and not wait:
        raise ValueError(
            f"hostcall: concurrent=True {_NOT_WITHOUT_WAITING['concurrent']} where no "
            "program waits for them (wait=False). Take one of the two away."
        )
    if memory == DEVICE and not wait:
        raise ValueError(
            "hostcall: memory='device' lends the function the program's own memory for the call "
            "alone, and with wait=False no program waits for the call. Take one of the two away."
        )


def check_unawaited(declaration: Any) -> None:
    """Check that no declared option excludes wait=False.

    Raises:
      ValueError: when one does.
    """
    for option, why in _NOT_WITHOUT_WAITING.items():
        if not declaration.wait and getattr(declaration, option):
            raise ValueError(
                f"hostcall: {option}={getattr(declaration, option)!r} {why}, and with wait=False "
                f"no program waits for the call. Take {option}= or wait=False away."
            )


def check_no_results(line: object, dtypes: Sequence[Any], stateful: bool, who: str) -> None:
    """Check that a function with wait=False has a side effect and no results.

    Args:
      line: the function's calls with wait=False, or None where programs wait for them.
      dtypes: the dtypes of the results.
      stateful: whether the call has to run.
      who: the call, for the message.

    Raises:
      ValueError: when it has results or no side effect.
    """
    if line is None:
        return
    if dtypes:
        results = ", ".join(getattr(dtype, "name", str(dtype)) for dtype in dtypes)
        raise ValueError(
            f"{who}: wait=False is for functions without results, since no program waits for the "
            f"call, and this one has {counted(len(dtypes), 'result')} ({results}). Write Tout=[] "
            "(result=[] of a hostcall.callback, None of hostcall.jax.call), or take wait=False "
            "away."
        )
    if not stateful:
        raise ValueError(
            f"{who}: wait=False is for functions that have an effect, and this call is said to "
            "have none and has no results: XLA would leave it out. Take stateful=False "
            "(pure=True of hostcall.jax.call) away."
        )


def check_retries(retries: object) -> None:
    """Check that `retries` is a number of calls.

    Raises:
      ValueError: when it is not.
    """
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise ValueError(
            f"hostcall: retries={retries!r} is no number of calls. Write retries=2, for one."
        )


def check_repeatable(declaration: Any, stateful: bool, who: str, remedy: str) -> None:
    """Check that calls which may be repeated have no side effects.

    Args:
      declaration: the function's declaration.
      stateful: whether the op or the callback is stateful.
      who: the caller, for the message.
      remedy: the option to write, for the message.

    Raises:
      ValueError: when they may have some.
    """
    is_pure = not stateful or declaration.pure or declaration.table is not None
    if declaration.retries and not is_pure:
        raise ValueError(
            f"{who}: retries={declaration.retries} makes a call again whose worker has died. "
            "Nobody knows how far that one came, and this function may have side effects, which "
            f"must not happen twice. If it has none, write {remedy}; else take retries away."
        )


def check_takes_tensors(declaration: Any, who: str) -> None:
    """Check that no option is declared that needs a function of NumPy arrays.

    Raises:
      ValueError: when one is; the message names it, and the caller `who`.
    """
    for option in ("borrow", "out"):
        if getattr(declaration, option):
            raise ValueError(
                f"hostcall: {option}=True is for functions that take NumPy arrays, and {who} gives "
                f"its function tensors, which nobody can write to. Use tf.numpy_function, or take "
                f"{option}=True away."
            )
    if declaration.memory == DEVICE:
        raise ValueError(
            f"hostcall: memory='device' is for functions that take arrays, and {who} gives its "
            "function tensors. Use tf.numpy_function, or take memory='device' away."
        )
    if declaration.table is not None:
        raise ValueError(
            f"hostcall: memo={declaration.memo!r} is for functions that take NumPy arrays, and "
            f"{who} gives its function tensors: its gradient needs what each call computes, and so "
            "each call runs. Use tf.numpy_function, or take memo away."
        )
    if declaration.vmap_method == MAP:
        raise ValueError(
            f"hostcall: vmap_method='map' is for functions that take NumPy arrays, and {who} gives "
            "its function tensors, which cannot be divided here. Use tf.numpy_function, or "
            'vmap_method="expand_dims".'
        )
    if declaration.executor is not None and declaration.executor.runs_no_threads:
        raise ValueError(_executor_errors.takes_tensors(who, declaration.executor.given))


def check_callback(
    kind: object, name: object, grad: object, stateful: bool, result: object
) -> None:
    """Check the arguments of `hostcall.callback` that `hostcall.declare` does not take.

    Raises:
      TypeError: when `name` is no string, or `grad` is not callable.
      ValueError: for an unknown `kind`, a stateless eager callback, or a `result` that is `TRACE`.
    """
    if kind not in KINDS:
        raise ValueError(f"hostcall.callback: kind={kind!r} is none of {KINDS}.")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"hostcall.callback: name={name!r} is no string.")
    if grad is not None and not callable(grad):
        raise TypeError(
            f"hostcall.callback: grad={grad!r} is no function. It is called as grad(inputs, "
            "results, upstream), and returns a gradient for each argument."
        )
    if kind == "eager" and not stateful:
        raise ValueError(
            "hostcall.callback: an eager callback records its gradient, which is a side effect. "
            'Use stateful=True, or kind="numpy".'
        )
    if isinstance(result, str) and result == TRACE:
        raise ValueError(
            f"hostcall.callback: result={TRACE!r} is for hostcall.declare, where Tout says the "
            "dtypes. Here the result has to say them: write tf.TensorSpec([3], tf.float32), for "
            "one."
        )


def check_stateless(declaration: Any) -> None:
    """Check that a stateful `hostcall.callback` has no `memo`.

    Raises:
      ValueError: when it has one.
    """
    if declaration.table is not None:
        raise ValueError(
            f"hostcall.callback: memo={declaration.memo!r} says that the function does nothing but "
            "return its results, and stateful=True, the default, that each call has to run. Write "
            f"hostcall.callback(..., stateful=False, memo={declaration.memo!r})."
        )


@dataclasses.dataclass(frozen=True)
class Declaration:
    """The declaration of one function.

    Attributes:
      result: a structure of specs, a function from the inputs' specs to one, or "trace"; None
        if undeclared.
      pure: whether the gradient may run the function once more.
      timeout: the seconds that a call may take, or None.
      route: "auto", "custom_call" or "partition"; None if undeclared.
      borrow: whether the function gets borrowed views of its arguments, which it only reads.
      out: whether the function writes its results into borrowed arrays.
      memo: the number of results to keep for calls with equal inputs; True for the usual number,
        False for none.
      executor: the provider of the executor that runs the calls, made from the user's value; or
        None.
      wait: whether programs wait for the calls.
      queue: with `wait=False`, how many calls may wait to run; None for the usual number.
      when_full: the effect of one more call on a full queue: "wait" or "drop_oldest".
      vmap_method: one of `METHODS`; None if undeclared.
      retries: how often to repeat a call whose worker has died.
      memory: "host" or "device": the memory of the function's arguments and results.
      concurrent: whether calls may run beside others, on any thread.
      table: the kept results, or None.
      line: the calls with `wait=False`, or None where programs wait.
    """

    result: Any = None
    pure: bool = False
    timeout: float | None = None
    route: str | None = None
    borrow: bool = False
    out: bool = False
    memo: bool | int = False
    executor: Any = None
    wait: bool = True
    queue: int | None = None
    when_full: str = _fire_and_forget.WAIT
    vmap_method: str | None = None
    retries: int = 0
    memory: str = HOST
    concurrent: bool = False
    table: memoization.Table | None = dataclasses.field(init=False, compare=False, repr=False)
    line: _fire_and_forget.Line | None = dataclasses.field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_result(self.result)
        if self.route is not None:
            checked(self.route)
        if self.timeout is not None:
            is_time = isinstance(self.timeout, numbers.Real) and self.timeout > 0
            if not is_time:
                raise ValueError(
                    f"hostcall: timeout={self.timeout!r} is not a positive time in seconds."
                )
        object.__setattr__(self, "executor", _executors.provider_of(self.executor))
        check_executor(self)
        line = _fire_and_forget.line_for(self.wait, self.queue, self.when_full)
        object.__setattr__(self, "line", line)
        check_concurrent(self)
        check_unawaited(self)
        check_vmap_method(self.vmap_method, self.executor)
        check_retries(self.retries)
        check_memory(self)
        object.__setattr__(self, "table", memoization.table_for(self.memo))
        if self.out and self.table is not None:
            raise ValueError(
                "hostcall: out=True has the function write its results into arrays that it is "
                f"given, and memo={self.memo!r} returns results without calling it. Take one of "
                "the two away."
            )

    @property
    def shares_memory(self) -> bool:
        """True if the function gets arrays over the program's own memory."""
        return self.borrow or self.out or self.on_device

    @property
    def only_reads(self) -> bool:
        """True if the function only reads its arguments, and only during the call."""
        return self.borrow or self.on_device

    @property
    def on_device(self) -> bool:
        """True if the function takes and returns arrays where the program has them."""
        return self.memory == DEVICE

    def lets_overlap(self, function: object) -> bool:
        """Return whether calls of `function` may run beside others, on any thread.

        They may if the user declares `concurrent`, or an executor with several workers.
        """
        provider = _mapped_calls.provider_of(function) or self.executor
        return self.concurrent or (provider is not None and provider.has_several_workers)

    def renewed(self) -> Declaration:
        """Return a copy for another function, with a table and a line of its own."""
        return dataclasses.replace(self)

    def of_divided_call(self) -> Declaration:
        """Return a copy without an executor, for a function that passes calls to one itself."""
        declaration = copy.copy(self)
        object.__setattr__(declaration, "executor", None)
        return declaration

    def of_call(self, result: Any, key: Hashable) -> Declaration:
        """Return a copy for calls with keyword arguments, which share the table of results.

        Args:
          result: the declared result of these calls.
          key: a key that is equal for calls with equal fixed arguments.
        """
        declaration = copy.copy(self)
        object.__setattr__(declaration, "result", result)
        if self.table is not None:
            object.__setattr__(declaration, "table", self.table.part(key))
        return declaration
