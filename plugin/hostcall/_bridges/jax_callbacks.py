"""JAX's own callbacks in JAX programs, which `hostcall.jax.to_tf` converts together with them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from jax._src import callback as _callback
from jax._src import debugging as _debugging
from jax._src import source_info_util as _source_info


@dataclasses.dataclass(frozen=True)
class JaxCallback:
    """One of JAX's own callbacks.

    Attributes:
      function: from flat arrays to flat results, as JAX calls it.
      user_function: the user's function that it calls.
      kind: the public JAX function that made it.
      effect: as in `_lowering.emit_call`.
      sharding: as `jax.pure_callback` takes it.
    """

    function: Callable[..., Any]
    user_function: Any
    kind: str
    effect: Any | None
    sharding: Any = None


def _pure(**params: Any) -> JaxCallback:
    sharding = params.pop("sharding")
    function = functools.partial(_callback.pure_callback_impl, sharding=None, **params)
    user_function = params["callback"].callback_func
    return JaxCallback(function, user_function, KINDS[_callback.pure_callback_p], None, sharding)


def _io(**params: Any) -> JaxCallback:
    sharding = params.pop("sharding")
    function = functools.partial(_callback.io_callback_impl, sharding=None, **params)
    effect = _callback._OrderedIOEffect if params["ordered"] else _callback._IOEffect
    user_function = params["callback"].callback_func
    return JaxCallback(function, user_function, KINDS[_callback.io_callback_p], effect, sharding)


def _debug(**params: Any) -> JaxCallback:
    function = functools.partial(_debugging.debug_callback_impl, **params)
    kind = KINDS[_debugging.debug_callback_p]
    return JaxCallback(function, params["callback"], kind, params["effect"])


def _print(**params: Any) -> JaxCallback:
    function = functools.partial(_debugging.debug_print_impl, **params)
    ordered = params["ordered"]
    effect = _debugging.ordered_debug_effect if ordered else _debugging.debug_effect
    return JaxCallback(function, repr(params["fmt"]), KINDS[_debugging.debug_print_p], effect)


# The public function for each of JAX's primitives that call Python.
KINDS: dict[Any, str] = {
    _callback.pure_callback_p: "jax.pure_callback",
    _callback.io_callback_p: "jax.experimental.io_callback",
    _debugging.debug_callback_p: "jax.debug.callback",
    _debugging.debug_print_p: "jax.debug.print",
}

# The function that reads the parameters of each.
READERS: dict[Any, Callable[..., JaxCallback]] = {
    _callback.pure_callback_p: _pure,
    _callback.io_callback_p: _io,
    _debugging.debug_callback_p: _debug,
    _debugging.debug_print_p: _print,
}


def line_of(context: Any) -> str:
    """Return `file:line` of the user's code for the op that is being lowered, or ""."""
    frame = _source_info.user_frame(context.traceback)
    return "" if frame is None else f"{frame.file_name}:{frame.start_line}"
