"""Python functions that JAX programs call, and the host functions that the runtime calls."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from hostcall._functions.native_code import Native
from hostcall._functions.user_function import Source, UserFunction
from hostcall.jax import _results, _values
from hostcall_runtime import Target, _interception, _remedies
from hostcall_runtime._errors import NotExportableError, ResultError

_numbers = itertools.count(1)
_LEAF = jax.tree.structure(0)


class Fixed:
    """An argument that is not an array. Two are equal if calls with them may share a program."""

    def __init__(self, index: int, value: object) -> None:
        self.index = index  # among all leaves of the arguments
        self.value = value
        try:
            self._key: object = type(value), value, hash(value)
        except TypeError:
            self._key = None, id(value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fixed):
            return NotImplemented
        return (self.index, self._key) == (other.index, other._key)

    def __hash__(self) -> int:
        return hash((self.index, self._key))


@dataclasses.dataclass(frozen=True, kw_only=True)
class JaxFunction(UserFunction):
    """A function that JAX programs call, hashable, with the structures of arguments and results.

    Two functions are equal if they may share programs. JAX finds compiled programs by equality. The
    title is for messages. Results have dtypes here if some are random keys.
    """

    in_tree: Any
    out_tree: Any
    title: str
    result_dtypes: tuple[Any, ...] = ()
    # The arguments that are not arrays, and the structure of all. `in_tree` has None for them.
    fixed: tuple[Fixed, ...] = ()
    given_tree: Any = None
    # Whether JAX had no numbers of 64 bits when it traced the call, so that none are declared.
    narrows: bool = dataclasses.field(default_factory=lambda: not jax.config.jax_enable_x64)

    @property
    def is_native(self) -> bool:
        """True if a program can call it without Python."""
        how = self.options
        wants_python = how.executor or how.call_log or how.table or how.timeout is not None
        return isinstance(self.function, Native) and not wants_python and not how.on_device

    @property
    def may_begin_early(self) -> bool:
        """True if a call without side effects may run while its program goes on."""
        how = self.options
        return (
            self.is_concurrent
            and how.table is None
            and not how.shares_memory
            and not self.is_native
        )

    @property
    def shares_memory(self) -> bool:
        """False: JAX frees or writes to a program's memory while arrays still lie in it."""
        return False

    def register_entry(self, ordered: bool, identity: Sequence[object] = ()) -> tuple[Target, int]:
        """Register an entry with the runtime; return its target, which owns it, and its id."""
        target = Target(self._host_function(), self.title, self.description, origin=self)
        if self.out_tree.num_leaves > 0 and not self.options.out:
            target.to_arrays = functools.partial(
                _results.converted, self._is_flat(), self.narrows, self.description
            )
        target.site = _interception.CallSite(
            self.recorded_name,
            self.description,
            self.function,
            ordered=ordered,
            to_arrays=target.to_arrays,
        )
        return target, self.register(target, f"{self.title}/jax {next(_numbers)}", identity)

    def source(self) -> Source:
        """Return the description of the function for `hostcall.export`."""
        if self.fixed:
            raise NotExportableError(
                f"{self.description}: the argument {self.fixed[0].value!r} is not an array, and "
                "exported programs pass arrays alone. Write a function that knows it."
            )
        return Source(
            self,
            _structure_of(self.in_tree, f"an argument of {self.description}"),
            _structure_of(self.out_tree, f"a result of {self.description}"),
        )

    def _host_function(self) -> Callable[..., Any]:
        table = self.options.table
        call = self.dispatched(self.repeating(), lends=table is None)
        if not self._is_flat():
            call = functools.partial(self._call_structured, call)
        if table is not None:
            form = None if self._is_flat() else (self.in_tree, self.out_tree)
            call = table.remembering(call, form)
        return call

    def _is_flat(self) -> bool:
        """Return whether the function takes and returns the runtime's arrays unchanged."""
        if self.result_dtypes or self.fixed:
            return False
        arguments_are = all(child == _LEAF for child in self.in_tree.children())
        if self.out_tree == _LEAF:
            # A table and what stores results on a device take arrays, and no containers of them.
            return arguments_are and not self.options.on_device and self.options.table is None
        # The runtime itself checks that a function without declared results returns none.
        return arguments_are and self.out_tree.num_leaves == 0

    def _call_structured(self, function: Callable[..., Any], *arrays: Any, **given: Any) -> object:
        arguments = self._arguments(arrays)
        if self.options.call_log is not None:
            function(*arguments)
            return []
        if not self.options.out or self.out_tree.num_leaves == 0:
            return self._flatten(function(*arguments))
        out = given["out"]
        packed = jax.tree.unflatten(self.out_tree, out if isinstance(out, tuple) else (out,))
        returned = function(*arguments, out=packed)
        return out if returned is packed else returned

    def _declared_structure(self) -> object:
        return jax.tree.unflatten(self.out_tree, [...] * self.out_tree.num_leaves)

    def _arguments(self, arrays: Sequence[Any]) -> Any:
        """Return the arguments of a call, in their structure."""
        if not self.fixed:
            return jax.tree.unflatten(self.in_tree, arrays)
        leaves = list(arrays)
        for one in self.fixed:
            leaves.insert(one.index, one.value)
        return jax.tree.unflatten(self.given_tree, leaves)

    def _flatten(self, returned: object) -> list[Any]:
        leaves = _results.leaves_for(self.out_tree, returned)
        if leaves is None:
            raise ResultError(
                f"{self.title} returned a result of the structure {jax.tree.structure(returned)}, "
                f"and {self.out_tree} is declared. This is {self.description}."
                f"{_remedies.for_structure(self._declared_structure(), returned)}"
            )
        if self.result_dtypes:
            pairs = zip(leaves, self.result_dtypes, strict=True)
            return [_values.returned(*pair, self.description) for pair in pairs]
        return leaves


def _structure_of(tree: jax.tree_util.PyTreeDef, what: str) -> int | dict[str, Any] | None:
    """Return a pytree's structure in the form that exported programs use."""
    from hostcall_mlir.exporting import structures  # takes long to import, and few export programs

    return structures.structure_of(jax.tree.unflatten(tree, range(tree.num_leaves)), what)


def hashable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, or a hashable wrapper if it has no hash of its own."""
    try:
        hash(function)
    except TypeError:
        return functools.partial(function)
    return function
