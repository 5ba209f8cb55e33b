"""The routes that a script op can take, and the ways in which the user chooses one."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from hostcall._functions.options import AUTO, CUSTOM_CALL, PARTITION, ROUTES, checked
from hostcall._ops import settings
from hostcall._tf.graph import attributes, op_kinds, protos
from hostcall._tf.types import AnyNode, FuncGraph, Operation

__all__ = ["AUTO", "CUSTOM_CALL", "PARTITION", "ROUTES", "checked"]
_scoped: contextvars.ContextVar[str | None] = contextvars.ContextVar("hostcall_route", default=None)


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
    with settings.scoped(_scoped, checked(route)):
        yield


def current() -> str:
    """Return the route of script ops created now, for functions that declare none."""
    return _scoped.get() or settings.current.route


def mark(op: Operation, route: str) -> None:
    """Mark an op of a graph with the route that it shall take."""
    if route != AUTO:
        protos.set_attr(op, attributes.ROUTE, s=route.encode())


def mark_others(func_graph: FuncGraph) -> None:
    """Mark the other ops of a traced graph with the current route, if it is not "auto"."""
    # For "partition", ops without an XLA kernel become host ops. For "custom_call", all are marked:
    # XLA may refuse any of them, and the program must stay whole.
    route = current()
    if route == AUTO:
        return
    for op in func_graph.get_operations():
        if op.type in op_kinds.SCRIPT_OPS:
            continue
        if route == CUSTOM_CALL or not op_kinds.has_xla_kernel(op.node_def):
            mark(op, route)


def asked(node: AnyNode) -> str:
    """Return the route that was requested for a node."""
    return protos.text(node, attributes.ROUTE) or AUTO
