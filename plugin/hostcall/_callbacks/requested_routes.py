"""The routes that a script op can take, and the ways in which the user chooses one."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator

from hostcall._callbacks import settings
from hostcall._functions.options import AUTO, CUSTOM_CALL, PARTITION, ROUTES, checked
from hostcall._tf import attributes, op_kinds, protos
from hostcall._tf.types import FuncGraph, NodeDef, Operation

__all__ = ["AUTO", "CUSTOM_CALL", "PARTITION", "ROUTES", "checked"]

_ENVIRONMENT = "HOSTCALL_ROUTE"

_configured = checked(os.environ.get(_ENVIRONMENT) or AUTO, _ENVIRONMENT)
_scoped: contextvars.ContextVar[str | None] = contextvars.ContextVar("hostcall_route", default=None)


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
    global _configured
    checked_route = _configured if route is None else checked(route)
    if max_compilations is not None:
        settings.checked_bound(max_compilations)
    if dynamic_sizes is not None:
        settings.checked_sizes(dynamic_sizes)
    if uncompilable is not None:
        settings.set_uncompilable(uncompilable)
    if max_compilations is not None:
        settings.set_max_compilations(max_compilations)
    if assertions is not None:
        settings.set_assertions(assertions)
    if dynamic_sizes is not None:
        settings.set_dynamic_sizes(dynamic_sizes)
    _configured = checked_route


@contextlib.contextmanager
def scope(*, route: str) -> Iterator[None]:
    """Set the route of the script ops that this thread traces inside the context.

    It takes precedence over `hostcall.configure`. A route declared for a function precedes both.

    Args:
      route: as for `hostcall.configure`.

    Raises:
      ValueError: when `route` has another value.

    Examples:
      >>> with hostcall.scope(route="partition"):
      ...     @tf.function(jit_compile=True)
      ...     def program(x):
      ...         return tf.unique_with_counts(x * 2.0)[0]  # an op that XLA has no kernel for
      ...     values = program(tf.constant([1.0, 1.0, 3.0]))
      >>> values.numpy()
      array([2., 6.], dtype=float32)
    """
    token = _scoped.set(checked(route))
    try:
        yield
    finally:
        _scoped.reset(token)


def current() -> str:
    """Return the route of script ops created now, for functions that declare none."""
    return _scoped.get() or _configured


def mark(op: Operation, route: str) -> None:
    """Mark an op of a graph with the route that it shall take."""
    if route != AUTO:
        protos.set_attr(op, attributes.ROUTE, s=route.encode())


def mark_others(func_graph: FuncGraph) -> None:
    """Mark the other ops of a traced graph with the current route, if it is not "auto".

    For "partition", only ops without an XLA kernel are marked, as host ops. For "custom_call", all
    ops are marked: XLA may refuse any of them, and the program must stay whole.
    """
    route = current()
    if route == AUTO:
        return
    for op in func_graph.get_operations():
        if op.type in op_kinds.SCRIPT_OPS:
            continue
        if route == CUSTOM_CALL or not op_kinds.has_xla_kernel(op.node_def):
            mark(op, route)


def asked(node: NodeDef) -> str:
    """Return the route that was requested for a node."""
    return node.attr[attributes.ROUTE].s.decode() if attributes.ROUTE in node.attr else AUTO
