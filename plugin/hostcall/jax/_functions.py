"""Python functions that JAX programs call, and the host functions that the runtime calls."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax

from hostcall._functions import exportable, memoization, source_location
from hostcall._functions.exportable import Source
from hostcall._functions.native_code import NativeCode
from hostcall.jax import _values
from hostcall_runtime import (
    Target,
    _executor_providers,
    _executors,
    _fire_and_forget,
    _interception,
    _mapped_calls,
    register,
    within,
)
from hostcall_runtime._errors import ResultError
from hostcall_runtime._mapped_calls import MappedFunction

_numbers = itertools.count(1)

_LEAF = jax.tree.structure(0)


@dataclasses.dataclass(frozen=True)
class Function:
    """A function that JAX programs call, with all options that affect a call.

    Two functions are equal if they may share programs. JAX finds compiled programs by equality.

    Attributes:
      function: the user's function; hashable.
      in_tree: the structure of its arguments, a tuple.
      out_tree: the structure of its results.
      title: its name in messages.
      description: the function and the call for a message, with the file and line of both.
      timeout: how many seconds a call may take, or None.
      table: the table of memoized results, or None.
      borrow: whether the function only reads its arguments, and only during the call.
      out: whether it writes its results into arrays that it gets as `out`.
      given_name: the name that the user has given it, or None.
      executor: provides the executor that runs the calls, or None.
      line: the queue of calls for which no program waits; None if programs wait.
      retries: how often a call is repeated after its worker has died.
      on_device: whether it takes and returns arrays where they lie.
      result_dtypes: the dtypes of its results if some are random keys.
      concurrent: whether calls may run at the same time as others, on any thread.
    """

    function: Callable[..., Any]
    in_tree: Any
    out_tree: Any
    title: str
    description: str
    timeout: float | None = None
    table: memoization.Table | None = None
    borrow: bool = False
    out: bool = False
    given_name: str | None = None
    executor: _executor_providers.Provider | None = None
    line: _fire_and_forget.Line | None = None
    retries: int = 0
    on_device: bool = False
    result_dtypes: tuple[Any, ...] = ()
    concurrent: bool = False

    @property
    def is_native(self) -> bool:
        """True if a program can call it without Python."""
        wants_python = self.executor or self.line or self.table or self.timeout is not None
        return isinstance(self.function, NativeCode) and not wants_python and not self.on_device

    @property
    def may_begin_early(self) -> bool:
        """True if a call without side effects may run while its program goes on."""
        lends = self.borrow or self.out or self.on_device
        return self.concurrent and self.table is None and not lends and not self.is_native

    def register(self, ordered: bool, identity: Sequence[object] = ()) -> tuple[Target, int]:
        """Register an entry with the runtime; return its target, which owns it, and its id.

        Args:
          ordered: whether calls run in the order of the program.
          identity: as `hostcall_runtime.register` takes it.
        """
        target = Target(self._host_function(), self.title, self.description, origin=self)
        name = self.given_name or _interception.name_of(self.function)
        target.site = _interception.Site(name, self.description, self.function, ordered=ordered)
        target.empty = self._argument_memory()
        name = f"{self.title}/jax {next(_numbers)}"
        callback_id = register(
            target,
            name,
            label=self.description,
            identity=identity,
            borrows=self.borrow,
            takes_out=self.out,
            on_device=self.on_device,
            concurrent=self.concurrent,
        )
        return target, callback_id

    def _argument_memory(self) -> Callable[..., Any] | None:
        """Return the allocator of large arguments if other processes may have to open them."""
        if self.table is not None:  # the table keeps the arguments
            return None
        return _mapped_calls.argument_memory(self.function, self.executor, self.retries)

    def source(self) -> Source:
        """Return the description of the function for `hostcall.export`."""
        if self.on_device:
            raise exportable.on_device(self.description)
        return Source(
            self.function,
            self.given_name,
            self.description,
            _structure_of(self.in_tree, f"an argument of {self.description}"),
            _structure_of(self.out_tree, f"a result of {self.description}"),
            borrow=self.borrow,
            out=self.out,
            timeout=self.timeout,
            concurrent=self.concurrent,
        )

    def _host_function(self) -> Callable[..., Any]:
        call = self._dispatched()
        if not self._is_flat():
            call = functools.partial(self._call_structured, call)
        if self.table is not None:
            call = self.table.remembering(call, self._form())
        return call

    def _dispatched(self) -> Callable[..., Any]:
        called = _mapped_calls.repeating(self.function, self.retries)
        if self.line is None:
            return self._awaited(called)
        return _fire_and_forget.handing_over(
            self.line,
            self._awaited(_fire_and_forget.marking(self.line, called)),
            self.executor,
            self.description,
            source_location.of_function(self.function),
        )

    def _awaited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self.executor is not None:
            return _executors.on_executor(
                _executors.Callee(
                    self.executor,
                    self.function,
                    self.description,
                    self.timeout,
                    in_thread=function,
                    retries=self.retries,
                    lends=self.table is None,
                )
            )
        if self.timeout is not None:
            return within(self.timeout, function, self.description)
        return function

    def _is_flat(self) -> bool:
        """Return whether the function takes and returns the runtime's arrays unchanged."""
        if self.result_dtypes:
            return False
        arguments_are = all(child == _LEAF for child in self.in_tree.children())
        # The runtime itself checks that a function without declared results returns none.
        return arguments_are and (self.out_tree == _LEAF or self.out_tree.num_leaves == 0)

    def _form(self) -> Hashable:
        return None if self._is_flat() else (self.in_tree, self.out_tree)

    def _call_structured(self, function: Callable[..., Any], *arrays: Any, **given: Any) -> Any:
        arguments = jax.tree.unflatten(self.in_tree, arrays)
        if self.line is not None:
            function(*arguments)
            return []
        if not self.out or self.out_tree.num_leaves == 0:
            return self._flatten(function(*arguments))
        out = given["out"]
        packed = jax.tree.unflatten(self.out_tree, out if isinstance(out, tuple) else (out,))
        returned = function(*arguments, out=packed)
        return out if returned is packed else returned

    def _flatten(self, returned: object) -> Any:
        leaves, tree = jax.tree.flatten(returned)
        if tree == self.out_tree or _is_plain_sequence(returned, leaves, self.out_tree):
            if self.result_dtypes:
                pairs = zip(leaves, self.result_dtypes, strict=True)
                return [_values.returned(*pair, self.description) for pair in pairs]
            return leaves
        raise ResultError(
            f"{self.title} returned a result of the structure {tree}, and {self.out_tree} is "
            f"declared. Correct the function or the declaration: {self.description}."
        )


def _structure_of(tree: jax.tree_util.PyTreeDef, what: str) -> Any:
    """Return a pytree's structure in the form that exported programs use."""
    from hostcall_mlir.exporting import structures  # takes long to import, and few export programs

    return structures.structure_of(jax.tree.unflatten(tree, range(tree.num_leaves)), what)


def _is_plain_sequence(returned: object, leaves: list[Any], tree: object) -> bool:
    """Return whether it is a list where a tuple is declared, or the reverse: a matter of habit."""
    return (
        isinstance(returned, list | tuple)
        and not hasattr(returned, "_fields")
        and len(leaves) == len(returned)
        and tree in (jax.tree.structure(leaves), jax.tree.structure(tuple(leaves)))
    )


def divided(function: Function, stacked: tuple[bool, ...]) -> Function:
    """Return the function for calls with a batch, which its executor divides.

    Args:
      function: the function for one element.
      stacked: for each flat argument, whether its first axis is the batch axis.
    """
    called: Any = function.function
    provider = function.executor
    if provider is None:  # divided along an inner batch, which now goes whole to the workers
        assert isinstance(called, MappedFunction)
        called, provider = called.function, called.provider
    axes = jax.tree.unflatten(function.in_tree, [0 if one else None for one in stacked])
    mapped = MappedFunction(called, provider, axes, None, function.description)
    concurrent = function.concurrent or provider.has_several_workers
    return dataclasses.replace(function, function=mapped, executor=None, concurrent=concurrent)


def hashable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, or a hashable wrapper if it has no hash of its own."""
    try:
        hash(function)
    except TypeError:
        return functools.partial(function)
    return function
