"""Python functions that JAX programs call, and what the runtime calls for them."""

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
from hostcall_runtime._errors import NotExportableError, ResultError
from hostcall_runtime._mapped_calls import MappedFunction

_numbers = itertools.count(1)

_LEAF = jax.tree.structure(0)


@dataclasses.dataclass(frozen=True)
class Function:
    """A function that JAX programs call, with everything that tells what a call does.

    Two are equal where their programs may be shared, which is how JAX finds what it has compiled.

    Attributes:
      function: the user's; hashable.
      in_tree: the structure of its arguments, a tuple.
      out_tree: the structure of its results.
      title: how messages call it.
      description: the function and the call for a message, with the file and line of both.
      timeout: how many seconds a call may take, or None.
      table: the results that are kept, or None.
      borrow: whether the function only reads its arguments, and only during the call.
      out: whether it writes its results into arrays that it is given as `out`.
      given_name: the name that the user has given it, or None.
      executor: what gives the executor that runs the calls, or None.
      line: the calls of the function, for which no program waits; None where programs wait.
      retries: how often a call is made again whose worker has died.
      on_device: whether it takes and returns arrays where they lie.
      result_dtypes: the dtypes of its results, where some are random keys.
      concurrent: whether calls may run beside others, on any thread.
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
        """Whether a program can call it without Python."""
        wants_python = self.executor or self.line or self.table or self.timeout is not None
        return isinstance(self.function, NativeCode) and not wants_python and not self.on_device

    @property
    def may_begin_early(self) -> bool:
        """Whether a call without side effects may go on while its program does."""
        lends = self.borrow or self.out or self.on_device
        return self.concurrent and self.table is None and not lends and not self.is_native

    def register(self, ordered: bool, identity: Sequence[object] = ()) -> tuple[Target, int]:
        """A new entry of the runtime's, which lives as long as its target, and its callback id.

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
        """What makes arrays for large arguments, where other processes may have to open them."""
        if self.table is not None:  # which keeps the arguments
            return None
        return _mapped_calls.argument_memory(self.function, self.executor, self.retries)

    def source(self) -> Source:
        """What `hostcall.export` has to know of it."""
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
        """Whether the runtime's arrays and results are what the function takes and returns."""
        if self.result_dtypes:
            return False
        arguments_are = all(child == _LEAF for child in self.in_tree.children())
        # The runtime itself sees to it that nothing is returned where nothing is declared.
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
    """A pytree's structure in the terms of an exported program."""
    from hostcall_mlir import exporting  # takes long to import, and few export programs

    numbers = jax.tree.unflatten(tree, range(tree.num_leaves))
    try:
        return exporting.structure_of_numbers(numbers, what)
    except exporting.StructureError as error:
        raise NotExportableError(str(error)) from error


def _is_plain_sequence(returned: object, leaves: list[Any], tree: object) -> bool:
    """Whether it is a list where a tuple is declared, or the other way: a matter of habit."""
    return (
        isinstance(returned, list | tuple)
        and not hasattr(returned, "_fields")
        and len(leaves) == len(returned)
        and tree in (jax.tree.structure(leaves), jax.tree.structure(tuple(leaves)))
    )


def divided(function: Function, stacked: tuple[bool, ...]) -> Function:
    """The function for calls with a batch, which its executor divides.

    Args:
      function: the one for an element.
      stacked: for each flat argument, whether its first axis is that of the elements.
    """
    called: Any = function.function
    provider = function.executor
    if provider is None:  # of an inner batch, which goes whole to the workers now
        assert isinstance(called, MappedFunction)
        called, provider = called.function, called.provider
    axes = jax.tree.unflatten(function.in_tree, [0 if one else None for one in stacked])
    mapped = MappedFunction(called, provider, axes, None, function.description)
    concurrent = function.concurrent or provider.has_several_workers
    return dataclasses.replace(function, function=mapped, executor=None, concurrent=concurrent)


def hashable(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, or what calls it where it has no hash of its own."""
    try:
        hash(function)
    except TypeError:
        return functools.partial(function)
    return function
