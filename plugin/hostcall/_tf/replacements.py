"""Values of TensorFlow's that hostcall replaces, and puts back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hostcall._tf.features import Feature, Missing
from hostcall_runtime._patching import Patch


class Replacement:
    """A value of ours in the place of one of TensorFlow's.

    Where somebody else has replaced ours in turn, theirs stays on removal, and with it ours, which
    they may call: it asks `installed`, and does what TensorFlow's does while that is false.

    Args:
      read: what stands there now.
      write: puts a value there.
      wrap: makes our value of what stands there, and of this object.

    Attributes:
      installed: whether ours has to do its work.
    """

    def __init__(
        self,
        read: Callable[[], Any],
        write: Callable[[Any], None],
        wrap: Callable[[Any, Replacement], Any],
    ) -> None:
        self.installed = False
        self.read = read
        self._write = write
        self._wrap = wrap
        self._stock: Any = None
        self._ours: Any = None
        self._is_inside = False  # of what somebody else has put there

    def install(self) -> None:
        """Puts ours there."""
        self.installed = True
        now = self.read()
        if now is self._ours or (self._is_inside and now is not self._stock):
            return
        if self._ours is None or now is not self._stock:
            self._stock, self._ours = now, self._wrap(now, self)
        self._write(self._ours)

    def uninstall(self) -> None:
        """Puts back what stood there, unless it is somebody else's that stands there now."""
        self.installed = False
        self._is_inside = self.read() is not self._ours
        if not self._is_inside:
            self._write(self._stock)


def attribute(
    owner: object, name: str, wrap: Callable[[Any, Replacement], Any], feature: Feature, why: str
) -> Patch:
    """The patch of one attribute of a module, a class or an object.

    Args:
      owner: whose it is.
      name: of the attribute.
      wrap: as for `Replacement`.
      feature: what needs it.
      why: what it is replaced for.
    """

    def read() -> Any:
        return inspect.getattr_static(owner, name)

    def write(value: object) -> None:
        # An object's own attribute is taken away again where its class has one.
        of_class = inspect.getattr_static(type(owner), name, None)
        if of_class is not None and value is of_class:
            delattr(owner, name)
        else:
            setattr(owner, name, value)

    target = f"{_name_of(owner)}.{name}"
    return patch(target, Replacement(read, write, wrap), feature, why)


def functions(
    owner: Any,
    ours: Mapping[str, Callable[..., Any]],
    stock: dict[str, Callable[..., Any]],
    feature: Feature,
    why: str,
) -> list[Patch]:
    """The patches that put functions of ours in the place of a module's.

    Args:
      owner: the module.
      ours: by the name of the function that each replaces.
      stock: takes the functions that stood there, for ours to call.
      feature: what needs them.
      why: what they are replaced for.
    """

    def replaced(name: str, function: Callable[..., Any]) -> Patch:
        def wrap(before: Callable[..., Any], patch: Replacement) -> Any:
            stock[name] = before

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                return (function if patch.installed else before)(*args, **kwargs)

            return call

        return attribute(owner, name, wrap, feature, why)

    return [replaced(name, function) for name, function in ours.items()]


def patch(target: str, replacement: Replacement, feature: Feature, why: str) -> Patch:
    """The entry in the table of a replacement."""
    return Patch(
        target, replacement.install, replacement.uninstall, replacement.read, why, feature.title
    )


def _name_of(owner: object) -> str:
    if isinstance(owner, Missing):
        return str(owner.name)
    if inspect.ismodule(owner):
        return owner.__name__
    kind = owner if isinstance(owner, type) else type(owner)
    return f"{kind.__module__}.{kind.__qualname__}"
