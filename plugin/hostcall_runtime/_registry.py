"""The callback ids by which compiled programs find what they call.

A program holds the ids of its callbacks. With ids at random a cache finds none of the programs of
other processes, and grows by one for each. A process that finds a program has lowered the very same
one itself, ids included, so it has callbacks of its own under them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from hostcall_runtime import _interception, _library

# Each tells whether programs that are compiled now may be kept for other processes.
caches: list[Callable[[], bool]] = []

_BITS = 62


def wanted_id(*identity: object) -> int:
    """The id that a callback should have, 0 for any.

    Args:
      identity: what the callback has in common with the same one in another process, and with few
        others in this one.
    """
    if not any(keeps_programs() for keeps_programs in caches):
        return 0
    text = "\0".join(map(str, identity))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (1 << _BITS) or 1


_runtime = _library.load("hostcall_runtime._runtime")


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Target:
    """What the runtime calls. It reads attributes at each call, which is fast from slots."""

    host_function: Callable[..., Any]
    title: str
    description: str = ""
    # For functions of tensors, most of which the runtime makes and reads itself;
    # here are what makes one of an array, and arrays of what the function has returned.
    to_tensor: Callable[[Any], Any] | None = None
    to_arrays: Callable[[Any], Any] | None = None
    # What makes arrays for large arguments, of a shape and a dtype, where these are to lie in
    # memory that another process can open.
    empty: Callable[[tuple[int, ...], Any], Any] | None = None
    # What made it, where that can be asked what the function is.
    origin: Any = None
    # TensorFlow's name of the op, and the lines of the user's that have led to it.
    node: str = ""
    definition: Callable[[], list[str]] = list
    # For who records and replays calls.
    site: _interception.Site | None = None


# By their callback ids, those of native code included; a C++ table each has what is called.
_targets: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def register(
    target: Any,
    name: str,
    takes_tensors: bool = False,
    label: str = "",
    identity: Sequence[object] = (),
    **convention: bool,
) -> int:
    """The runtime's callback id of an object, as long as that lives.

    Args:
      target: a Target.
      name: of the callback.
      takes_tensors: whether its function takes and returns EagerTensors.
      label: what profiles and `hostcall.stats` call it; the name if it is left out.
      identity: what it has in common with the same callback in other processes, beside its site
        (`_stable_ids`).
      **convention: `borrows`, `takes_out`, `shares_memory`, `on_device` and `concurrent`, as
        registry.h has them; False if left out.

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
    """Lets `target_of` find the target of a callback id, as long as it lives."""
    _targets[callback_id] = target


def target_of(callback_id: int) -> Any:
    """The living target of a callback id, None where there is none."""
    return _targets.get(callback_id)
