"""`hostcall.configure`: the user's settings for the whole process; and settings of contexts."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
import warnings
from collections.abc import Iterator
from typing import Any

from hostcall._functions.options import AUTO, ROUTES
from hostcall_runtime import _library, _watchdog

PARTITION, ERROR = "partition", "error"
GRAPH, XLA = "graph", "xla"
TAKEN, ALL = "taken", "all"
_CHOICES = {
    "route": ROUTES,
    "uncompilable": (PARTITION, ERROR),
    "semantics": (GRAPH, XLA),
    "functions": (TAKEN, ALL),
    "random_numbers": (GRAPH, XLA),
    "dynamic_sizes": ("stock", "checked"),
}


@dataclasses.dataclass
class Settings:
    """The settings of a process, as `configure` describes them."""

    route: str = AUTO
    uncompilable: str = PARTITION
    max_compilations: int = 10  # as for the clusters of TensorFlow's auto-clustering
    semantics: str = GRAPH
    functions: str = TAKEN
    random_numbers: str = GRAPH
    warn_after: float = dataclasses.field(default_factory=_watchdog.seconds)

    def examined(self) -> str:
        """Return in which functions without callbacks C++ looks for ops that XLA gets wrong."""
        if self.functions == ALL:
            return "all"
        return "clusters" if self.semantics == GRAPH else "none"


@contextlib.contextmanager
def scoped(variable: contextvars.ContextVar[Any], value: object) -> Iterator[None]:
    """Set a variable inside the context."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


_REPLACED = (
    "hostcall: {name}= is deprecated: functions that hostcall takes have graph mode's values and "
    "errors by default, and hostcall.configure(functions='all') extends this to all compiled "
    "functions."
)


def configure(
    *,
    route: str | None = None,
    uncompilable: str | None = None,
    max_compilations: int | None = None,
    semantics: str | None = None,
    functions: str | None = None,
    random_numbers: str | None = None,
    warn_after: float | None = None,
    assertions: bool | None = None,
    dynamic_sizes: str | None = None,
) -> None:
    """Set hostcall's defaults for all threads. Arguments that are left out keep their values.

    The environment variables `HOSTCALL_ROUTE`, `HOSTCALL_UNCOMPILABLE`,
    `HOSTCALL_MAX_COMPILATIONS`, `HOSTCALL_SEMANTICS`, `HOSTCALL_FUNCTIONS`,
    `HOSTCALL_RANDOM_NUMBERS` and `HOSTCALL_WARN_AFTER` set the defaults for a process that does not
    call this function.

    Args:
      route: the route of the script ops that are traced from now on, one of

        - `"auto"`: a custom call inside one compiled program if the shapes of all results are
          known or bounded when XLA compiles, and `"partition"` otherwise;
        - `"custom_call"`: never partitioned. An op that cannot be compiled is an error;
        - `"partition"`: the script op runs on the host between compiled clusters, and so does every
          op without an XLA kernel, also in functions without script ops.
      uncompilable: the treatment of functions that XLA refuses to compile, for example because of
        an op without an XLA kernel, or a size that depends on values. One of

        - `"partition"`: the function is partitioned around the ops that XLA refuses. One line of
          the log says so. Functions that XLA compiles are not touched;
        - `"error"`: TensorFlow's error is raised.
      max_compilations: the number of combinations of sizes for which XLA compiles one cluster of a
        partitioned function; 10 by default. The first is compiled at once, and each other one when
        it has come 9 times. Until then, and after the bound is reached, TensorFlow's own kernels
        run the cluster. Compiled programs are kept. Clusters are always compiled if they draw
        random numbers by a seed, or have ops which only XLA knows or callbacks of route
        "custom_call".
      semantics: the values and the errors of programs for the CPU, in functions compiled from now
        on. One of

        - `"graph"`: those of the same function without `jit_compile=True`. Where TensorFlow's
          kernel raises an error for values (an index out of range, an integer divided by zero, an
          assertion), the program raises one of the same class, before it returns results or assigns
          variables. What XLA computes differently (docs/sharp-bits.md lists it) is written in other
          ops, or the program calls TensorFlow's kernel. The default;
        - `"xla"`: XLA's, but for the results that XLA gets plainly wrong.
      functions: the functions in which `semantics` holds, one of

        - `"taken"`: those that hostcall takes: functions with callbacks, and those that XLA
          refuses. All others are compiled as they are without hostcall. The default;
        - `"all"`: all compiled functions.
      random_numbers: the random numbers of functions with `semantics="graph"`, one of

        - `"graph"`: those that graph mode draws from the same seeds. The default;
        - `"xla"`: XLA's own, which may be faster.
      warn_after: the seconds after which the log names a call of a compiled program that still
        runs, once, with its line and the stack of its thread; 30 by default, 0 for never. The
        environment variable sets it for JAX without TensorFlow, too.
      assertions: deprecated; `True` is `functions="all"`, `False` is `functions="taken"`.
      dynamic_sizes: deprecated; `"checked"` is `functions="all"`, `"stock"` is `functions="taken"`.

    Raises:
      ValueError: when an argument has another value; then nothing is set.

    Examples:
      >>> hostcall.configure(route="custom_call")  # nothing is partitioned from now on
      >>> hostcall.configure(route="auto")  # the default
    """
    given = {
        "route": route,
        "uncompilable": uncompilable,
        "max_compilations": max_compilations,
        "semantics": semantics,
        "functions": functions,
        "random_numbers": random_numbers,
        "warn_after": warn_after,
    }
    if assertions is not None or dynamic_sizes is not None:
        given["functions"] = functions or _replacing(assertions, dynamic_sizes)
    checked = {
        name: _checked(name, value, name) for name, value in given.items() if value is not None
    }
    vars(current).update(checked)
    if "warn_after" in checked:
        _watchdog.warn_after(current.warn_after)
    if checked.keys() & {"max_compilations", "semantics", "functions"}:
        tell(_library.load("hostcall._tensorflow"))


def tell(bindings: Any) -> None:
    """Give the bindings the settings that C++ reads."""
    bindings.set_max_compilations(current.max_compilations)
    bindings.set_examined(current.examined())


def _replacing(assertions: object, dynamic_sizes: str | None) -> str:
    """Return the value of `functions` that deprecated settings stand for, with a warning."""
    name = "assertions" if dynamic_sizes is None else "dynamic_sizes"
    if dynamic_sizes is not None:
        _checked(name, dynamic_sizes, name)
    warnings.warn(_REPLACED.format(name=name), DeprecationWarning, stacklevel=3)
    return ALL if assertions or dynamic_sizes == "checked" else TAKEN


def _checked(name: str, value: object, what: str) -> object:
    """Return a value for a setting; raise a ValueError, which names `what`, if it is none."""
    choices = _CHOICES.get(name)
    if choices is not None and value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"hostcall: {what}={value!r} is not one of {listed}.")
    if name == "warn_after":
        return _watchdog.checked(value, what)
    if name == "max_compilations":
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
            raise ValueError(f"hostcall: {what}={value!r} is not a count: give a positive int.")
    return value


def _of_environment(name: str, default: Any) -> Any:
    variable = f"HOSTCALL_{name.upper()}"
    given = os.environ.get(variable, "")
    if name == "functions" and not given and _asks_for_all():
        return ALL
    return _checked(name, given or default, variable)


def _asks_for_all() -> bool:
    """Return whether one of the variables that `HOSTCALL_FUNCTIONS` replaces is set."""
    checked = os.environ.get("HOSTCALL_DYNAMIC_SIZES", "") == "checked"
    return checked or os.environ.get("HOSTCALL_ASSERTIONS", "") not in ("", "0")


current = Settings(
    **{
        one.name: _of_environment(one.name, one.default)
        for one in dataclasses.fields(Settings)
        if one.name != "warn_after"  # the runtime reads it, also without TensorFlow
    }
)
