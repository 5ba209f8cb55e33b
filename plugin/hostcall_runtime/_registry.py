"""The callback ids by which compiled programs find their callbacks.

A program holds the ids of its callbacks. With random ids, a compilation cache would find no program
of another process, and would grow by one program for each. So while a cache is on, the same
callback gets the same id in each process. A process that finds a cached program has lowered the
same program itself, ids included, so its own callbacks have these ids.
"""

from __future__ import annotations

import dataclasses
import hashlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from hostcall_runtime import _interception, _library

# Each returns whether programs that are compiled now may be kept for other processes.
caches: list[Callable[[], bool]] = []

_BITS = 62


def wanted_id(*identity: object) -> int:
    """Return the id that a callback should have, or 0 for any id.

    `identity` is equal for the same callback in another process, and few other callbacks share it.
    """
    if not any(keeps_programs() for keeps_programs in caches):
        return 0
    text = "\0".join(map(str, identity))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (1 << _BITS) or 1


_runtime = _library.load("hostcall_runtime._runtime")


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Target:
    """A callback of the runtime, which reads the attributes at each call: slots make that fast."""

    host_function: Callable[..., Any]
    title: str
    description: str = ""
    # For functions of tensors. The runtime makes and reads most tensors itself; for the others,
    # these make a tensor from an array, and arrays from the function's results.
    to_tensor: Callable[[Any], Any] | None = None
    to_arrays: Callable[[Any], Any] | None = None
    # Allocates arrays for large arguments, given a shape and a dtype, in memory that another
    # process can open.
    empty: Callable[[tuple[int, ...], Any], Any] | None = None
    # The object that made the target, if that object can describe the function.
    origin: Any = None
    # TensorFlow's name of the op, and the user's source lines that led to it.
    node: str = ""
    definition: Callable[[], list[str]] = list
    # For recorders and replays of calls.
    site: _interception.Site | None = None


# By callback id. C++ has a table of Python callbacks and one of native code; this has both.
_targets: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def register(
    target: Any,
    name: str,
    takes_tensors: bool = False,
    label: str = "",
    identity: Sequence[object] = (),
    **convention: bool,
) -> int:
    """Register a target with the runtime for as long as it lives, and return its callback id.

    Args:
      target: a Target.
      name: the name of the callback.
      takes_tensors: whether its function takes and returns EagerTensors.
      label: its name in profiles and `hostcall.stats`; `name` if it is left out.
      identity: values that the same callback has in other processes, beside its site
        (`wanted_id`).
      **convention: `borrows`, `takes_out`, `shares_memory`, `on_device` and `concurrent`, as in
        registry.h; False if left out.

    Raises:
      ValueError: when a living object has the name.
    """
    allocates = getattr(target, "empty", None) is not None
    site = getattr(target, "site", None)
    wanted = 0 if site is None else wanted_id(site.name, site.description, site.node, *identity)
    callback_id: int = _runtime.register(
        target, name, takes_tensors, label, allocates=allocates, wanted=wanted, **convention
    )
    know(callback_id, target)
    _interception.know(target)
    weakref.finalize(target, _runtime.unregister, callback_id).atexit = False
    return callback_id


def know(callback_id: int, target: Any) -> None:
    """Let `target_of` find the target of a callback id, as long as the target lives."""
    _targets[callback_id] = target


def target_of(callback_id: int) -> Any:
    """Return the living target of a callback id, or None."""
    return _targets.get(callback_id)
