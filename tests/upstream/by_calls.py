"""JAX's callbacks made by hostcall.jax.call, so that JAX's own tests of them are tests of it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental

import hostcall.jax


def install() -> None:
    """Put them in the place of JAX's, for modules that are imported afterwards."""
    jax.pure_callback = pure_callback
    jax.experimental.io_callback = io_callback


def pure_callback(
    function: Any,
    result: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **by_name: Any,
) -> Any:
    """Call a pure function, as `jax.pure_callback` does."""
    options = {"pure": True, "sharding": sharding, "vmap_method": vmap_method}
    return _call(function, result, args, by_name, options)


def io_callback(
    function: Any,
    result: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **by_name: Any,
) -> Any:
    """Call a function with a side effect, as `jax.experimental.io_callback` does."""
    return _call(function, result, args, by_name, {"ordered": ordered, "sharding": sharding})


@dataclasses.dataclass(frozen=True)
class _Named:
    """A function with arguments by keyword, which `hostcall.jax.call` takes as one structure."""

    function: Callable[..., Any]

    def __call__(self, args: Any, by_name: Any) -> Any:
        return self.function(*args, **by_name)


def _call(
    function: Any, result: Any, args: tuple[Any, ...], by_name: Any, options: dict[str, Any]
) -> Any:
    if by_name:
        return hostcall.jax.call(_Named(function), result, args, by_name, **options)
    return hostcall.jax.call(function, result, *args, **options)
