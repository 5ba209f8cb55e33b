"""What the runtime's table has of native code that compiled programs call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostcall._functions.native.native_code import NativeCode
from hostcall_runtime import _interception, _library, _stable_ids

_runtime = _library.load("hostcall_runtime._runtime")

# The target of the custom call by which programs call it.
TARGET = "hostcall_native"


class NativeEntry:
    """An entry of the runtime's table, for as long as this lives.

    Attributes:
      origin: what made it, where that can be asked what the code is.
      site: for who records and replays calls.
      callback_id: by which programs find the code.
    """

    def __init__(
        self, native: NativeCode, label: str, site: _interception.Site, origin: Any = None
    ) -> None:
        self.origin = origin
        self.site = site
        self._owner = native.owner
        wanted = _stable_ids.wanted(site.name, site.description, site.node)
        self.callback_id = native.code.register(label, wanted)
        _interception.know(self)

    def answer(self, answer: Callable[..., Any] | None) -> None:
        """Has something of Python's answer the calls of programs, or nothing any more."""
        _runtime.answer_native(self.callback_id, answer)

    # Calls that are under way take over the owner. (A finalizer that held it could keep alive what
    # it is to be called for.) Bound early: when the process exits, modules' names may go before.
    def __del__(self, unregister: Callable[[int, Any], None] = _runtime.unregister_native) -> None:
        unregister(self.callback_id, self._owner)
