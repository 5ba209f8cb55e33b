"""The options of a Python function's calls: what they are, their documentation and their checks.

To add an option, add it to `Options` and to the TypedDict of the ways that take it.
"""
# ruff: noqa: RUF009 - `_option` returns a dataclasses.field

from __future__ import annotations

import copy
import dataclasses
import difflib
import inspect
import numbers
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from hostcall._functions import memoization
from hostcall_runtime import _executor_errors, _executors, _fire_and_forget, _mapped_calls, _trees
from hostcall_runtime._errors import counted

F = TypeVar("F", bound=Callable[..., Any])
SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL = "sequential", "expand_dims", "broadcast_all"
MAP = "map"
METHODS = (SEQUENTIAL, EXPAND_DIMS, BROADCAST_ALL, MAP)
VmapMethod = Literal["sequential", "expand_dims", "broadcast_all", "map"]
Route = Literal["auto", "custom_call", "partition"]
WhenFull = Literal["wait", "drop_oldest"]

# These make one call for the whole batch; with the last, an executor divides it.
OF_BATCHES = (EXPAND_DIMS, BROADCAST_ALL, MAP)

AUTO, CUSTOM_CALL, PARTITION = "auto", "custom_call", "partition"
ROUTES = (AUTO, CUSTOM_CALL, PARTITION)
TRACE = "trace"

# The memory of a function's arrays: NumPy's, or the program's own.
HOST, DEVICE = "host", "device"
Memory = Literal["host", "device"]

Kind = Literal["numpy", "eager"]
KINDS = ("numpy", "eager")  # a `hostcall.callback` takes arrays or EagerTensors


def checked(route: object) -> str:
    """Return `route` if it is a known route; raise a ValueError otherwise."""
    if route not in ROUTES:
        raise ValueError(f"hostcall: route={route!r} is not one of {', '.join(map(repr, ROUTES))}.")
    return str(route)


def check_result(result: object) -> None:
    """Raise a ValueError for a declared result that holds a string, unless it is "trace" alone."""
    if isinstance(result, str) and result == TRACE:
        return
    for leaf in _trees.leaves(result):
        if isinstance(leaf, str | bytes):
            raise ValueError(
                f"hostcall: result={leaf!r} says nothing of a result. Write a spec, such as "
                "tf.TensorSpec([3], tf.float32), a function that returns specs, or, alone, "
                f'result="{TRACE}" for the shapes that TensorFlow finds by tracing a '
                "tf.py_function."
            )


def check_function(function: object, who: str) -> None:
    """Raise a TypeError unless a function is given whose calls return results."""
    if not callable(function):
        raise TypeError(f"{who} wants a function, and not {function!r}.")
    called = [function, type(function).__call__]
    if any(inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f) for f in called):
        raise TypeError(
            f"{who} wants a function whose calls return results, and {function!r} is an `async` "
            "one: its calls return a coroutine, which is never awaited. Give a function that "
            "runs it, such as lambda x: asyncio.run(function(x))."
        )


def check_no_results(call_log: object, dtypes: Sequence[Any], stateful: bool, who: str) -> None:
    """Raise a ValueError for a function with wait=False that has results or no side effect."""
    if call_log is None:
        return
    if dtypes:
        results = ", ".join(getattr(dtype, "name", str(dtype)) for dtype in dtypes)
        raise ValueError(
            f"{who}: wait=False is for functions without results, since no program waits for the "
            f"call, and this one has {counted(len(dtypes), 'result')} ({results}). Write Tout=[] "
            "(result=[] of a hostcall.callback, None of hostcall.jax.call), or remove "
            "wait=False."
        )
    if not stateful:
        raise ValueError(
            f"{who}: wait=False is for functions that have an effect, and this call is said to "
            "have none and has no results: XLA would leave it out. Remove stateful=False "
            "(pure=True of hostcall.jax.call)."
        )


def check_side_effects(options: Any, who: str, remedy: str, *, ordered: bool, pure: bool) -> None:
    """Raise a ValueError for calls that overlap or are repeated, and have side effects."""
    # The message names the caller, `who`, and the option to write, the `remedy`. The calls may run
    # in program order (`ordered`), or have no side effects (`pure`).
    if options.retries and not pure:
        raise ValueError(
            f"{who}: retries={options.retries} makes a call again whose worker has died. "
            "It is unknown how far that one came, and this function may have side effects, which "
            f"must not happen twice. If it has none, write {remedy}; else remove retries."
        )
    if options.concurrent and ordered:
        raise ValueError(
            f"{who}: concurrent=True lets calls run at the same time, and these may have side "
            f"effects, which happen in the order of the program. If they have none, write {remedy};"
            " else remove concurrent."
        )


# Options that need a function of arrays, each with a test, the reason and the remedy.
_OF_ARRAYS: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "borrow": (bool, ", which are read-only already", "remove borrow=True"),
    "out": (bool, ", which nothing can write to", "remove out=True"),
    "memory": (lambda memory: memory == DEVICE, "", "remove memory='device'"),
    "memo": (
        lambda memo: memo is not False,
        ": its gradient needs what each call computes, and so each call runs",
        "remove memo",
    ),
    "vmap_method": (
        lambda method: method == MAP,
        ", which cannot be divided here",
        'vmap_method="expand_dims"',
    ),
}


def check_takes_tensors(options: Any, who: str) -> None:
    """Raise a ValueError for an option that needs a function of NumPy arrays."""
    for option, (is_given, reason, remedy) in _OF_ARRAYS.items():
        value = getattr(options, option)
        if is_given(value):
            raise ValueError(
                f"hostcall: {option}={value!r} is for functions that take arrays, and {who} "
                f"gives its function tensors{reason}. Use tf.numpy_function, or {remedy}."
            )
    if options.executor is not None and options.executor.runs_no_threads:
        raise ValueError(_executor_errors.takes_tensors(who, options.executor.given))


def check_callback(
    kind: object, name: object, grad: object, stateful: bool, result: object
) -> None:
    """Check the arguments of `hostcall.callback` that `hostcall.declare` does not take."""
    if kind not in KINDS:
        raise ValueError(f"hostcall.callback: kind={kind!r} is not one of {KINDS}.")
    if name is not None and not isinstance(name, str):
        raise TypeError(f"hostcall.callback: name={name!r} is not a string.")
    if grad is not None and not callable(grad):
        raise TypeError(
            f"hostcall.callback: grad={grad!r} is not a function. It is called as grad(inputs, "
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
            "dtypes. Here the result has to say them. Write, for example, "
            "tf.TensorSpec([3], tf.float32)."
        )


# Options that exclude others, each with the reason: a test, the words for it, and these options.
_LENDS = "lends the function the program's own memory for the call alone"
_EXCLUSIVE: tuple[tuple[Callable[[Any], bool], str, str, dict[str, str]], ...] = (
    (
        lambda options: options.executor is not None,
        "executor=",
        ", and a call on an executor may outlast the program, or run in another process",
        {"borrow": _LENDS, "out": _LENDS},
    ),
    (
        lambda options: not options.wait,
        "wait=False",
        ", and with wait=False no program waits for the call",
        {
            "borrow": _LENDS,
            "out": "has the function write the program's results",
            "memo": "keeps the results of the function",
            "pure": "says that the function does nothing but return results",
            "concurrent": "lets calls overlap, and hostcall makes them one by one",
            "memory": _LENDS,
        },
    ),
    (
        lambda options: options.on_device,
        "memory='device'",
        "",
        {
            "borrow": "lends NumPy's arrays, and memory='device' lends arrays already",
            "out": "has the function write into arrays of NumPy's",
            "memo": "keeps results by the values of the arguments, which are not read on a device",
            "executor": "makes the call elsewhere, where the program's memory is not",
            "timeout": "lets the program go on while the call still has its memory",
        },
    ),
    (
        lambda options: options.table is not None,
        "memo=",
        ", and memo= returns results without calling it",
        {"out": "has the function write its results into arrays that it is given"},
    ),
)


def _check_exclusive(options: Any) -> None:
    """Raise a ValueError for two options that exclude each other."""
    for is_given, other, consequence, excluded in _EXCLUSIVE:
        if not is_given(options):
            continue
        for option in dataclasses.fields(options):
            name, value = option.name, getattr(options, option.name)
            if name in excluded and value != option.default:
                raise ValueError(
                    f"hostcall: {name}={value!r} {excluded[name]}{consequence}. Remove "
                    f"{name}= or {other}."
                )


def _check_values(options: Options) -> None:
    """Check each option by itself."""
    check_result(options.result)
    if options.route is not None:
        checked(options.route)
    timeout, retries = options.timeout, options.retries
    if timeout is not None and not (isinstance(timeout, numbers.Real) and timeout > 0):
        raise ValueError(f"hostcall: timeout={timeout!r} is not a positive time in seconds.")
    if not isinstance(options.concurrent, bool):
        raise TypeError(
            f"hostcall: concurrent={options.concurrent!r} is neither True, where calls may run "
            "at the same time, nor False."
        )
    if options.vmap_method is not None and options.vmap_method not in METHODS:
        raise ValueError(f"hostcall: vmap_method={options.vmap_method!r} is not one of {METHODS}.")
    if options.vmap_method == MAP and options.executor is None:
        raise ValueError(
            "hostcall: vmap_method='map' divides a batch among the workers of an executor, and "
            "there is none. Write, for example, "
            "executor=concurrent.futures.ThreadPoolExecutor(4)."
        )
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise ValueError(
            f"hostcall: retries={retries!r} must be a non-negative integer, for example retries=2."
        )
    if options.memory not in (HOST, DEVICE):
        raise ValueError(
            f"hostcall: memory={options.memory!r} is neither {HOST!r}, for arrays of NumPy's, "
            f"nor {DEVICE!r}, for arrays in the program's own memory."
        )


class SharedOptions(TypedDict, total=False):
    """The options that each way to call a Python function takes."""

    pure: bool
    executor: Any
    wait: bool
    queue: int | None
    when_full: WhenFull
    retries: int
    memory: Memory
    concurrent: bool


class VisibleOptions(SharedOptions, total=False):
    """The options of `hostcall.callback` with which calls pass all that the function takes."""

    timeout: float | None
    borrow: bool
    memo: bool | int
    vmap_method: VmapMethod | None


class CallbackOptions(VisibleOptions, total=False):
    """The options of `hostcall.callback`."""

    out: bool


class DeclareOptions(CallbackOptions, total=False):
    """The options of `hostcall.declare`."""

    result: object
    route: Route | None


def _option(default: Any, text: str, *, saved: bool = False, **texts: str) -> Any:
    """Return the field of an option, with its default and its text for `hostcall.declare`."""
    # `saved` tells whether saved graphs record it; `texts` are those for `callback` and JAX's
    # `call`, if they say more than "as in declare".
    return dataclasses.field(default=default, metadata={"declare": text, "saved": saved, **texts})


@dataclasses.dataclass(frozen=True)
class Options:
    """All that a user may say of a Python function and its calls, checked.

    A field is an option of `hostcall.declare`, and has its documentation. The signatures and
    docstrings of the public functions, the records in saved graphs, and the table by which the
    serving library reads these are made from the fields.
    """

    result: Any = _option(
        None,
        """
        the shapes and dtypes of the results; None declares nothing. One of

        - a `tf.TensorSpec`, or a structure of them like the op's `Tout`;
        - `hostcall.BoundedSpec`s in the same places, if only an upper bound is known;
        - a shape function, from the specs of the arguments to one of the above, or to bare shapes.
          It is called when XLA compiles, with a `tf.TensorSpec` of known shape for each argument,
          or a `BoundedSpec` if the size of an argument is bounded;
        - `"trace"`, for `tf.py_function`: TensorFlow traces the function with symbolic tensors to
          find the shapes. So the function runs once more for each combination of argument shapes,
          with all its side effects, and TensorFlow must be able to trace it.

        """,
    )
    pure: bool = _option(
        False,
        """
        True declares that the function has no side effects. In compiled functions its calls
        have no order. The gradient of a `tf.py_function` then runs it once more, instead of keeping
        tape residuals.
        """,
        saved=True,
        callback='as in `hostcall.declare`, for an "eager" callback.',
        call="""
        whether the function returns the same results for the same arguments and has no side effect,
        so that XLA may drop, share or repeat calls. Otherwise each call runs once.
        """,
    )
    timeout: float | None = _option(
        None,
        """
        the seconds that a call may take, on a thread of its own. A longer call fails with
        its stack: `tf.errors.DeadlineExceededError` in a compiled program, elsewhere
        `tf.errors.UnknownError`.
        """,
        saved=True,
    )
    route: str | None = _option(
        None, "how compiled functions call it, as for `hostcall.configure`, which decides for None."
    )
    borrow: bool = _option(
        False,
        """
        True passes read-only views of the program's own memory, instead of copies. The
        function must drop them before it returns; it may return them, or parts of them.
        """,
        saved=True,
        callback='as in `hostcall.declare`, for a "numpy" callback.',
    )
    out: bool = _option(
        False,
        """
        True makes the function write its results into arrays over the program's own memory. It
        gets them by the keyword `out`, as NumPy's functions do: an array, a tuple of arrays, or a
        structure like `Tout`, with arbitrary values at first. It returns nothing, or `out`. The
        sizes must be known before the call, so no `BoundedSpec`s. `borrow` and `out` are for
        functions of arrays, not for `tf.py_function`. A view that is still referenced after the
        call is a `tf.errors.InvalidArgumentError`; its memory is kept as long as the reference.
        """,
        saved=True,
        callback='as in `hostcall.declare`, for a "numpy" callback.',
    )
    memo: bool | int = _option(
        False,
        """
        for functions of arrays: True, or a number, declares that the function is pure. The
        results for the last 128 sets of arguments, or that number, are kept, for eager calls, plain
        graphs and compiled functions together. Exceptions are not kept. If XLA knows all arguments
        when it compiles, hostcall calls the function then.
        """,
        saved=True,
        callback="""
        as in `hostcall.declare`, for a "numpy" callback with `stateful=False`. For a method, each
        object has its own kept results.
        """,
    )
    executor: Any = _option(
        None,
        """
        the executor of the calls: anything with the interface of
        `concurrent.futures.Executor`, or a function that makes one. That function is called once in
        each process, and again after the executor has broken. A `tf.py_function` needs a
        `ThreadPoolExecutor`. A call that the executor cannot make is a `hostcall.ExecutorError`. If
        a call on one of the executor's threads makes another one, that runs on the same thread.
        """,
        callback='as in `hostcall.declare`; a `ThreadPoolExecutor` for an "eager" callback.',
    )
    wait: bool = _option(
        True,
        """
        False makes programs hand over copies of the arguments and go on, for functions without
        results: logs, checkpoints, plots. All these calls run one by one, in program order, on a
        thread of hostcall; those with an executor run on that, one by one for each executor. The
        function's return value is dropped. Its exception is raised by the next call of the
        function, or by `hostcall.barrier`. A process ends when all calls have ended. The `timeout`
        starts when the call runs.
        """,
        callback="as in `hostcall.declare`; False is for a callback with `result=[]`.",
        call="""
        False makes programs hand the call over and go on, as in `hostcall.declare`; for a call
        without results. `ordered=True` keeps the calls of a program in order. It works wherever
        `jax.debug.callback` does, such as under `jax.checkpoint`, and makes as many calls.
        """,
    )
    queue: int | None = _option(
        None, "with `wait=False`, how many calls of the function may wait to run; 16 if left out."
    )
    when_full: str = _option(
        _fire_and_forget.WAIT,
        """
        the effect of one more call on a full queue. "wait": the program waits.
        "drop_oldest": the oldest waiting call is never made; `hostcall.stats` counts those. A call
        that a function with `wait=False` makes itself does not wait for room.
        """,
    )
    vmap_method: VmapMethod | None = _option(
        None,
        """
        how `tf.vectorized_map`, jacobians and `jax.vmap` batch a call. One of

        - `"sequential"`: a call for each element of the batch, one after another;
        - `"expand_dims"`: one call for the batch. Each argument gets one more axis, in front: the
          batch axis, or an axis of size 1 if the argument is the same for all elements. The results
          have the batch axis in front, too. `result` still describes one element;
        - `"broadcast_all"`: the same, and the axis of each argument has the batch's size;
        - `"map"`: as `"expand_dims"`, and the call is divided among the workers of `executor`, as
          by `hostcall.map`: the function gets a part of the batch.

        None is "sequential" for TensorFlow, with its warning, and is refused if
        `fallback_to_while_loop` is False.
        """,
        saved=True,
        callback="as in `hostcall.declare`. `grad` still takes one element.",
    )
    retries: int = _option(
        0,
        """
        how often to repeat a call whose worker has died, for functions that are pure: with
        `pure=True` or `memo`, or in ops that are not stateful.
        """,
        callback="as in `hostcall.declare`, with `stateful=False`.",
        call="as in `hostcall.declare`; for `pure` calls.",
    )
    memory: Memory = _option(
        HOST,
        """
        the memory of the function's arguments and results. "host": NumPy arrays, copied from
        the device and back if the program runs on one. "device": it gets `hostcall.DeviceArray`s
        over the program's own memory, which CuPy, Numba, Torch and JAX take without a copy, and
        NumPy on the CPU. It is called when the arguments are ready, and only reads them, during the
        call. It returns NumPy arrays, or anything with `__dlpack__` or `__cuda_array_interface__`
        on the same device, ready on the stream that these name. Its work on streams other than
        these and the default one must have ended by then. For functions of arrays, without
        `borrow`, `out`, `memo`, `executor`, `timeout` and `wait=False`.
        """,
        saved=True,
        callback='as in `hostcall.declare`, for a "numpy" callback.',
        call="""
        "device" passes arrays where they lie, as in `hostcall.declare`. On the CPU it passes
        copies, since hostcall cannot keep JAX's memory.
        """,
    )
    concurrent: bool = _option(
        False,
        """
        True lets calls of a pure function overlap with others, and begin early, on any
        thread. Without it the calls of a program run one at a time, wherever XLA allows on the
        thread that runs the program. An `executor` with several workers implies it, and so does
        `hostcall.map`. `hostcall.check` tests whether calls on several threads return the same as
        calls one by one.
        """,
        saved=True,
        callback="as in `hostcall.declare`, with `stateful=False`.",
        call="""
        whether calls may run at the same time as others, on any thread, and `pure` ones begin
        early, as in `hostcall.declare`.
        """,
    )
    # The kept results, or None.
    table: memoization.MemoTable | None = dataclasses.field(init=False, repr=False, default=None)
    # The calls with `wait=False`, or None where programs wait.
    call_log: _fire_and_forget.CallLog | None = dataclasses.field(
        init=False, compare=False, repr=False, default=None
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "executor", _executors.provider_of(self.executor))
        log = _fire_and_forget.log_for(self.wait, self.queue, self.when_full)
        object.__setattr__(self, "call_log", log)
        object.__setattr__(self, "table", memoization.table_for(self.memo))
        _check_values(self)
        _check_exclusive(self)

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
        """Return whether calls of `function` may overlap, as declared, or on an executor."""
        provider = _mapped_calls.provider_of(function) or self.executor
        return self.concurrent or (provider is not None and provider.has_several_workers)

    def renewed(self) -> Options:
        """Return a copy for another function, with a table and a call log of its own."""
        return dataclasses.replace(self)

    def with_fields(self, **fields: Any) -> Options:
        """Return a copy with other values of some fields, and the same table and call log."""
        other = copy.copy(self)
        for name, value in fields.items():
            object.__setattr__(other, name, value)
        return other

    def of_call(self, result: object, key: Hashable) -> Options:
        """Return a copy for calls with keyword arguments, which share the table of results."""
        # The `key` is equal for calls with equal fixed arguments.
        return self.with_fields(result=result, table=self.table and self.table.part(key))


SAVED = tuple(one for one in dataclasses.fields(Options) if one.metadata.get("saved"))


# What `hostcall.callback` and `hostcall.jax.call` take beside options.
_OTHERS = ("result", "kind", "stateful", "name", "grad", "ordered", "sharding")


def options_of(who: str, kind: type, options: Mapping[str, Any], **others: Any) -> Options:
    """Return the checked options that a user has given to the public function `who`."""
    for name in options:
        if name not in kind.__annotations__:
            close = difflib.get_close_matches(name, [*kind.__annotations__, *_OTHERS], 1, 0.76)
            meant = f". Did you mean {close[0]!r}?" if close else ""
            raise TypeError(f"{who}() got an unexpected keyword argument {name!r}{meant}")
    return Options(**options, **others)


def unconverted(function: F) -> F:
    """Have AutoGraph call a function as it is: to convert hostcall's code takes it a second."""
    # tf.autograph.experimental.do_not_convert sets it, too; here TensorFlow may be missing.
    function.autograph_info__ = None  # type: ignore[attr-defined]
    return function


# What a docstring says of `**options` in the source, for editors, which do not run it.
_OPTIONS_ENTRY = re.compile(r"^  \*\*options: .*\n(?:    .*\n)*", re.MULTILINE)


def takes(way: str, options: type) -> Callable[[F], F]:
    """Give the public function `way` the signature and the documentation of its `**options`."""
    names = options.__annotations__
    fields = [one for one in dataclasses.fields(Options) if one.name in names]

    def give(function: F) -> F:
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named += [
            inspect.Parameter(
                one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type
            )
            for one in fields
        ]
        function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
        if function.__doc__ is not None:  # python -OO
            text = "\n".join(_documented(way, one) for one in fields)
            documentation = inspect.cleandoc(function.__doc__)
            function.__doc__ = _OPTIONS_ENTRY.sub(lambda _: f"{text}\n", documentation)
        return unconverted(function)

    return give


def _documented(way: str, option: dataclasses.Field[Any]) -> str:
    """Return the documentation of an option as an argument of a public function."""
    text = option.metadata["declare"] if way == "declare" else option.metadata.get(way)
    lines = inspect.cleandoc(text or "as in `hostcall.declare`.").splitlines()
    indented = [f"    {line}" if line else "" for line in lines]
    blank = [""] if text is not None and text.endswith("\n\n        ") else []
    return "\n".join([f"  {option.name}: {indented[0].strip()}", *indented[1:], *blank])
