"""What takes the place of a function when TensorFlow creates its kernel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from hostcall import _function_defs as defs
from hostcall import _host_calls, _library, _ordering, _routes, _routing, _shapes
from hostcall import _tf_private as private
from hostcall._callback_spec import CallbackSpec
from hostcall._split import Splitter

_log = logging.getLogger("hostcall")
_told: set[str] = set()

# On a backward function: the name of the function whose gradient it is.
_FORWARD = "forward_function_name"


def rewrite_for_kernel(serialized: bytes, entry: str) -> tuple[bytes, str, bool]:
    """Called when TensorFlow creates the kernel of a must-compile function.

    Args:
      serialized: a FunctionDefLibrary with the function and all that it reaches.
      entry: the name of the function.

    Returns:
      A FunctionDefLibrary with the new functions, the name of the one that takes the place of
      `entry`, which is `entry` itself where nothing is to be done, and whether it runs on the host.
      The same input gives the same output, names included.
    """
    library = private.function_pb2.FunctionDefLibrary.FromString(serialized)
    for node in _script_ops(library):
        _routing.check_forced(node)
    splitter = splitter_for(library, entry)
    split = not splitter.is_cluster(entry) and splitter.must_split(entry)
    if split:
        _tell_of_shapes(library)
        name = splitter.split(entry)
        _host_calls.redirect(splitter.functions.values())
        new = private.function_pb2.FunctionDefLibrary(function=splitter.functions.values())
    elif _holds_script_op(library):
        new, name = _ordering.order_side_effects(library, entry)
    else:
        return b"", entry, False
    # Otherwise the kernel creator adds them, and they would outlive the function.
    private.own_functions(entry, list(new.function))
    return new.SerializeToString(), name, split


def splitter_for(library: Any, entry: str) -> Splitter:
    """The splitter that decides what becomes of the must-compile function `entry`."""
    return new_splitter(library, everything=_is_gradient_of_marked(library, entry))


def new_splitter(library: Any, everything: bool = False) -> Splitter:
    """A splitter that goes by what this process knows and what the user has asked for.

    Args:
      library: a FunctionDefLibrary.
      everything: whether every op without an XLA kernel is a reason to split.
    """
    glue = _library.load("_tensorflow")

    def has_kernel(node: Any) -> bool:
        return private.has_xla_kernel(glue, node)

    def is_marked(node: Any) -> bool:
        return _routes.asked(node) == _routes.SPLIT

    marked: Callable[[Any], bool] = is_marked
    if everything:
        names = {function.signature.name for function in library.function}
        marked = lambda node: is_marked(node) or not (node.op in names or has_kernel(node))  # noqa: E731
    return Splitter(library, choose=_routing.choose, has_kernel=has_kernel, marked=marked)


def _script_ops(library: Any) -> Iterator[Any]:
    for function in library.function:
        yield from (node for node in function.node_def if node.op in private.SCRIPT_OPS)


def _holds_script_op(library: Any) -> bool:
    return next(_script_ops(library), None) is not None


def _is_gradient_of_marked(library: Any, entry: str) -> bool:
    """Whether a function is the gradient of one that is split because the user said so.

    Nothing marks its own ops: TensorFlow makes them when the gradient is asked for, elsewhere.
    """
    function = next(f for f in library.function if f.signature.name == entry)
    if _FORWARD not in function.attr:
        return False
    pending = [function.attr[_FORWARD].s.decode()]
    seen = set(pending)
    while pending:
        forward = private.function_of_context(pending.pop())
        for node in forward.node_def if forward is not None else ():
            if _routes.asked(node) == _routes.SPLIT:
                return True
            new = {callee.name for callee in defs.callees(node)} - seen
            seen |= new
            pending.extend(new)
    return False


def _tell_of_shapes(library: Any) -> None:
    """Logs, once for each place, that a callback splits functions for want of a shape."""
    for node in _script_ops(library):
        if not _routing.choose(node).wants_shape:
            continue
        spec = private.token_registry.get(node.attr["token"].s.decode())
        if isinstance(spec, CallbackSpec) and spec.description not in _told:
            _told.add(spec.description)
            _log.warning(
                "%s splits the compiled function around it, because nothing tells the shape of "
                "its result when XLA compiles. To keep one program, write before the call: %s "
                "To say that splitting is fine: hostcall.declare(..., route='split').",
                spec.description,
                _shapes.example(spec),
            )
