"""What is declared of one function, checked."""

from __future__ import annotations

import copy
import dataclasses
import numbers
from collections.abc import Hashable
from typing import Any

from hostcall._functions import memoization, routes
from hostcall._functions.declaration_checks import (
    DEVICE,
    HOST,
    check_concurrent,
    check_executor,
    check_memory,
    check_result,
    check_retries,
    check_unawaited,
)
from hostcall._functions.vmap_methods import check_vmap_method
from hostcall_runtime import _executors, _mapped_calls, _unawaited, _unawaited_calls


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What is declared of one function.

    Attributes:
      result: a structure of specs, a function from the inputs' specs to one, or "trace"; None
        where nothing is said of the results.
      pure: whether the gradient may run the function once more.
      timeout: how many seconds a call may take, or None.
      route: "auto", "custom_call" or "partition"; None where nothing is said of it.
      borrow: whether the function gets borrowed views of its arguments, which it only reads.
      out: whether it writes its results into borrowed arrays.
      memo: how many results are kept for calls with equal inputs; True for the usual number, False
        for none.
      executor: what gives the executor that runs the calls, or None; made of what users give.
      wait: whether programs wait for the calls.
      queue: how many calls may wait that no program waits for; None for the usual number.
      when_full: what becomes of one more: "wait" or "drop_oldest".
      vmap_method: one of `vmap_methods.METHODS`; None where nothing is said of it.
      retries: how often a call is made again whose worker has died.
      memory: "host" or "device": where the arrays lie that the function takes and returns.
      concurrent: whether calls may run beside others, on any thread.
      table: the results that are kept, or None.
      line: the calls that no program waits for, or None where programs wait.
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
    when_full: str = _unawaited_calls.WAIT
    vmap_method: str | None = None
    retries: int = 0
    memory: str = HOST
    concurrent: bool = False
    table: memoization.Table | None = dataclasses.field(init=False, compare=False, repr=False)
    line: _unawaited_calls.Line | None = dataclasses.field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_result(self.result)
        if self.route is not None:
            routes.checked(self.route)
        if self.timeout is not None:
            is_time = isinstance(self.timeout, numbers.Real) and self.timeout > 0
            if not is_time:
                raise ValueError(
                    f"hostcall: timeout={self.timeout!r} is not a positive time in seconds."
                )
        object.__setattr__(self, "executor", _executors.provider_of(self.executor))
        check_executor(self)
        line = _unawaited.line_for(self.wait, self.queue, self.when_full)
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
        """Whether the function borrows arrays, of whichever kind."""
        return self.borrow or self.out or self.on_device

    @property
    def only_reads(self) -> bool:
        """Whether the function only reads its arguments, and only during the call."""
        return self.borrow or self.on_device

    @property
    def on_device(self) -> bool:
        """Whether it takes and returns arrays where they lie."""
        return self.memory == DEVICE

    def lets_overlap(self, function: object) -> bool:
        """Whether calls of `function` may run beside others, on any thread.

        The user says so, or has an executor with several workers run them.
        """
        provider = _mapped_calls.provider_of(function) or self.executor
        return self.concurrent or (provider is not None and provider.has_several_workers)

    def renewed(self) -> Declaration:
        """The same for another function, whose results are kept in a table of their own."""
        return dataclasses.replace(self)

    def of_divided_call(self) -> Declaration:
        """The same for calls whose function has an executor make calls of its own."""
        declaration = copy.copy(self)
        object.__setattr__(declaration, "executor", None)
        return declaration

    def of_call(self, result: Any, key: Hashable) -> Declaration:
        """The same for calls with keyword arguments, whose results are kept in the same table.

        Args:
          result: what is declared of their results.
          key: equal for calls with equal fixed arguments.
        """
        declaration = copy.copy(self)
        object.__setattr__(declaration, "result", result)
        if self.table is not None:
            object.__setattr__(declaration, "table", self.table.part(key))
        return declaration
