"""Replaced attributes of a framework, and the private names that hostcall uses.

Knows no framework. `hostcall` keeps a table for TensorFlow, and `hostcall.jax` one for JAX.
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
      feature: what of hostcall needs it.
      without: what happens where a version of the framework does not have it.
    """

    module: str
    attribute: str
    feature: str
    without: str

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute}" if self.attribute else self.module

    def find(self) -> object:
        """What the name stands for.

        Raises:
          ImportError: there is no such module.
          AttributeError: the module has no such name.
        """
        found: object = importlib.import_module(self.module)
        for part in self.attribute.split(".") if self.attribute else ():
            found = getattr(found, part)
        return found

    def exists(self) -> bool:
        """Whether the installed version of the framework has the name."""
        try:
            self.find()
        except (ImportError, AttributeError):
            return False
        return True


def _fits() -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Patch:
    """One thing of a framework's that hostcall replaces.

    Attributes:
      target: what is replaced, such as "jax._src.interpreters.batching.fancy_primitive_batchers".
      install: puts hostcall's in its place.
      uninstall: puts back what stood there before.
      current: what stands there now, for tests and for `hostcall doctor`.
      why: what it is replaced for.
      feature: what of hostcall needs it, as in `Name`.
      misfit: says, before it is installed, why it cannot be put in the place of what is there, such
        as "f(x, y), and not f(x)"; "" where it can.
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
    """The patch of one value: install writes `wrap(stock)`, uninstall the same stock object.

    Args:
      target: as in `Patch`.
      read: what stands there now.
      write: puts a value there.
      wrap: from the stock value to hostcall's.
      why: as in `Patch`.
      feature: as in `Patch`.
      misfit: as in `Patch`.
    """
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
    """What else is done in a framework where hostcall is enabled and disabled.

    Attributes:
      prepare: before any patch of any framework is installed; may refuse.
      on: once the patches are in place.
      off: once they are taken out.
    """

    prepare: Callable[[], None] = _nothing
    on: Callable[[], None] = _nothing
    off: Callable[[], None] = _nothing


class PatchTable:
    """The private names and the patches of one framework.

    A patch is not installed whose feature lacks a name, or has a patch that does not fit.

    Attributes:
      framework: its name, for messages.
      names: every private name of its that hostcall uses.
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
        """What comes before patches are installed.

        Raises:
          Exception: what keeps hostcall from being enabled in the framework.
        """
        self._switch.prepare()

    def install(self) -> None:
        """Installs every patch whose feature is there; does nothing where it is done already."""
        if self.enabled:
            return
        # Others may be in modules that it takes long to import.
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
        """Takes out what is installed, the last patch first."""
        while self.installed:
            *remaining, last = self.installed
            last.uninstall()
            self.installed = tuple(remaining)
        if self.enabled:
            self._switch.off()
        self.enabled = False

    def missing(self) -> tuple[Name, ...]:
        """The names that the installed version of the framework does not have."""
        return tuple(name for name in self.names if not name.exists())


_tables: list[PatchTable] = []
_enabled = False


def add(table: PatchTable) -> None:
    """Adds the table of a framework that is loaded, and installs it if hostcall is enabled.

    Raises:
      Exception: what keeps hostcall from being enabled in the framework; the table is added.
    """
    _tables.append(table)
    if _enabled:
        table.prepare()
        table.install()


def tables() -> tuple[PatchTable, ...]:
    """The tables of the frameworks that are loaded."""
    return tuple(_tables)


def install_all() -> None:
    """Installs every table, and from now on each one that is added.

    Raises:
      Exception: what keeps hostcall from being enabled in a framework; nothing is installed then.
    """
    global _enabled
    for table in _tables:
        table.prepare()
    for table in _tables:
        table.install()
    _enabled = True


def uninstall_all() -> None:
    """Takes every table's patches out."""
    global _enabled
    for table in reversed(_tables):
        table.uninstall()
    _enabled = False


def are_installed() -> bool:
    """Whether hostcall is enabled, so that the patches are in place."""
    return _enabled


class StoredName(Name):
    """A name that a method of a class writes, or a local variable of a function.

    `attribute` ends with that method and the name: "Graph.__init__._functions".
    """

    def find(self) -> object:
        """The name itself.

        Raises:
          ImportError: there is no such module.
          AttributeError: there is no such method, or it does not use the name.
        """
        owner, _, name = self.attribute.rpartition(".")
        method = Name(self.module, owner, self.feature, self.without).find()
        code = inspect.unwrap(method).__code__  # type: ignore[arg-type]
        if name not in (*code.co_names, *code.co_varnames):
            raise AttributeError(name)
        return name
