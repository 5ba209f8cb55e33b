"""`hostcall.configure`: the user's settings for the whole process; and settings of contexts."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import Any

from hostcall._functions.options import AUTO, ROUTES
from hostcall_runtime import _library

PARTITION, ERROR = "partition", "error"
STOCK, CHECKED = "stock", "checked"
_CHOICES = {"route": ROUTES, "uncompilable": (PARTITION, ERROR), "dynamic_sizes": (STOCK, CHECKED)}


@dataclasses.dataclass
class Settings:
    """The settings of a process, as `configure` describes them."""

    route: str = AUTO
    uncompilable: str = PARTITION
    max_compilations: int = 10  # as for the clusters of TensorFlow's auto-clustering
    assertions: bool = False
    dynamic_sizes: str = STOCK


@contextlib.contextmanager
def scoped(variable: contextvars.ContextVar[Any], value: object) -> Iterator[None]:
    """Set a variable inside the context."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


# The settings that C++ reads, with the functions that set them there.
_SETTERS = {
    "max_compilations": "set_max_compilations",
    "assertions": "set_checks_assertions",
    "dynamic_sizes": "set_checks_sizes",
}


def configure(
    *,
    route: str | None = None,
    uncompilable: str | None = None,
    max_compilations: int | None = None,
    assertions: bool | None = None,
    dynamic_sizes: str | None = None,
) -> None:
    """Set hostcall's defaults for all threads. Arguments that are left out keep their values.

    The environment variables `HOSTCALL_ROUTE`, `HOSTCALL_UNCOMPILABLE`,
    `HOSTCALL_MAX_COMPILATIONS`, `HOSTCALL_ASSERTIONS` (1 or 0) and `HOSTCALL_DYNAMIC_SIZES` set the
    defaults for a process that does not call this function.

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
      assertions: whether functions that are compiled from now on check `tf.debugging.assert_*`,
        `tf.debugging.Assert` and `tf.debugging.check_numerics`, which XLA drops. The program calls
        TensorFlow's kernels for them. False by default.
      dynamic_sizes: the treatment of functions that XLA compiles without hostcall's help, but may
        compile wrongly. This concerns sizes that only the run knows, as those of `tf.boolean_mask`,
        and the ops that docs/sharp-bits.md lists. For functions compiled from now on, one of

        - `"stock"`: they are compiled as they are without hostcall. The default;
        - `"checked"`: the ops that XLA may compile wrongly run on the host, as in all functions
          that hostcall takes: those with callbacks, and those that XLA refuses.

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
        "assertions": assertions,
        "dynamic_sizes": dynamic_sizes,
    }
    checked = {
        name: _checked(name, value, name) for name, value in given.items() if value is not None
    }
    vars(current).update(checked)
    if changed := _SETTERS.keys() & checked:
        tell(_library.load("hostcall._tensorflow"), changed)


def tell(bindings: Any, names: Iterable[str] = _SETTERS) -> None:
    """Give the bindings the settings that C++ reads, or some of them."""
    for name in names:
        value = getattr(current, name)
        getattr(bindings, _SETTERS[name])(value == CHECKED if name == "dynamic_sizes" else value)


def _checked(name: str, value: object, what: str) -> Any:
    """Return a value for a setting; raise a ValueError, which names `what`, if it is none."""
    choices = _CHOICES.get(name)
    if choices is not None and value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"hostcall: {what}={value!r} is not one of {listed}.")
    if name == "assertions":
        return bool(value)
    if name == "max_compilations":
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**63:
            raise ValueError(f"hostcall: {what}={value!r} is no count: give a positive int.")
    return value


def _of_environment(name: str, default: Any) -> Any:
    variable = f"HOSTCALL_{name.upper()}"
    given = os.environ.get(variable, "")
    if name == "assertions":
        return given not in ("", "0")
    return _checked(name, given or default, variable)


current = Settings(
    **{one.name: _of_environment(one.name, one.default) for one in dataclasses.fields(Settings)}
)
