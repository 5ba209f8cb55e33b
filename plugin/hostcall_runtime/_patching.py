"""Patches of a framework's attributes, and the private names that hostcall uses.

The module knows no framework. `hostcall` keeps a table for TensorFlow, `hostcall.jax` one for JAX.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Name:
    """A private name of a framework.

    Attributes:
      module: the module that has it, such as "jax._src.core".
      attribute: the name in that module, with dots for a name in a class; "" for the module itself.
      feature: the feature of hostcall that needs it.
      without: the consequence if a version of the framework does not have it.
    """

    module: str
    attribute: str
    feature: str
    without: str

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute}" if self.attribute else self.module

    def find(self) -> object:
        """Return the object that has the name; without one, raise ImportError or AttributeError."""
        found: object = importlib.import_module(self.module)
        for part in self.attribute.split(".") if self.attribute else ():
            found = getattr(found, part)
        return found

    def exists(self) -> bool:
        """Return whether the installed version of the framework has the name."""
        try:
            self.find()
        except (ImportError, AttributeError):
            return False
        return True


def _fits() -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Patch:
    """One object of a framework that hostcall replaces.

    Attributes:
      target: its name, such as "jax._src.interpreters.batching.fancy_primitive_batchers".
      install: puts hostcall's object in its place.
      uninstall: puts the earlier object back.
      current: returns the object that is there now, for tests and for `hostcall doctor`.
      why: the reason for the patch.
      feature: the feature of hostcall that needs it, as in `Name`.
      misfit: returns, before the installation, why hostcall's object cannot replace the one that is
        there, such as "f(x, y), and not f(x)"; "" if it can.
    """

    target: str
    install: Callable[[], None]
    uninstall: Callable[[], None]
    current: Callable[[], object]
    why: str
    feature: str
    misfit: Callable[[], str] = _fits


def replacement(
    target: str,
    read: Callable[[], Any],
    write: Callable[[Any], None],
    wrap: Callable[[Any], Any],
    *,
    why: str,
    feature: str,
    misfit: Callable[[], str] = _fits,
) -> Patch:
    """Return a patch of one value: install writes `wrap(stock)`, uninstall the stock object."""
    stock: list[Any] = []

    def install() -> None:
        stock.append(read())
        write(wrap(stock[-1]))

    def uninstall() -> None:
        write(stock.pop())

    return Patch(target, install, uninstall, read, why, feature, misfit)


def _nothing() -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Switch:
    """Further actions in a framework when hostcall is enabled or disabled.

    Attributes:
      prepare: runs before any patch of any framework is installed; may refuse by raising.
      on: runs once the patches are in place.
      off: runs once they are removed.
    """

    prepare: Callable[[], None] = _nothing
    on: Callable[[], None] = _nothing
    off: Callable[[], None] = _nothing


class PatchTable:
    """The private names and the patches of one framework.

    A patch is not installed if its feature lacks a name, or has a patch that does not fit.

    Attributes:
      framework: its name, for messages.
      names: every private name of the framework that hostcall uses.
      patches: every patch, in the order in which they are installed.
      installed: the patches that are in place now.
      enabled: whether hostcall is enabled in the framework.
    """

    def __init__(
        self,
        framework: str,
        names: Sequence[Name],
        patches: Sequence[Patch],
        switch: Switch = Switch(),
    ) -> None:
        self.framework = framework
        self.names = tuple(names)
        self.patches = tuple(patches)
        self.installed: tuple[Patch, ...] = ()
        self.enabled = False
        self._switch = switch

    def prepare(self) -> None:
        """Run the actions that precede the installation of patches; refuse by raising."""
        self._switch.prepare()

    def install(self) -> None:
        """Install every patch whose feature is available; do nothing if already enabled."""
        if self.enabled:
            return
        # The names of other features may be in modules that take long to import.
        features = {patch.feature for patch in self.patches}
        names = [name for name in self.names if name.feature in features]
        lost = {name.feature for name in names if not name.exists()}
        there = [patch for patch in self.patches if patch.feature not in lost]
        lost |= {patch.feature for patch in there if patch.misfit()}
        for patch in self.patches:
            if patch.feature not in lost:
                patch.install()
                self.installed = (*self.installed, patch)
        self._switch.on()
        self.enabled = True

    def uninstall(self) -> None:
        """Remove the installed patches, the last one first."""
        while self.installed:
            *remaining, last = self.installed
            last.uninstall()
            self.installed = tuple(remaining)
        if self.enabled:
            self._switch.off()
        self.enabled = False

    def missing(self) -> tuple[Name, ...]:
        """Return the names that the installed version of the framework does not have."""
        return tuple(name for name in self.names if not name.exists())


_tables: list[PatchTable] = []
_enabled = False


def add(table: PatchTable) -> None:
    """Add the table of a loaded framework, even if its installation raises where it is enabled."""
    _tables.append(table)
    if _enabled:
        table.prepare()
        table.install()


def tables() -> tuple[PatchTable, ...]:
    """Return the tables of the loaded frameworks."""
    return tuple(_tables)


def install_all() -> None:
    """Install every table, and each that is added from now on; none if one cannot be prepared."""
    global _enabled
    for table in _tables:
        table.prepare()
    for table in _tables:
        table.install()
    _enabled = True


def uninstall_all() -> None:
    """Remove the patches of every table."""
    global _enabled
    for table in reversed(_tables):
        table.uninstall()
    _enabled = False


def are_installed() -> bool:
    """Return whether hostcall is enabled, so that the patches are in place."""
    return _enabled


class StoredName(Name):
    """A name that a method of a class writes, or a local variable of a function.

    `attribute` ends with that method or function and the name: "Graph.__init__._functions".
    """

    def find(self) -> object:
        """Return the name itself, if the method exists and uses it."""
        owner, _, name = self.attribute.rpartition(".")
        method = Name(self.module, owner, self.feature, self.without).find()
        code = inspect.unwrap(method).__code__  # type: ignore[arg-type]
        if name not in (*code.co_names, *code.co_varnames):
            raise AttributeError(name)
        return name
