"""Patches of a framework's attributes, its private names, and the versions that have been tried.

The module imports no framework. `hostcall` keeps a table for TensorFlow, `hostcall.jax` for JAX.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Name:
    """A private name of a framework, the feature that needs it, and the consequence without it."""

    module: str
    attribute: str  # with dots for a name in a class; "" for the module itself
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


@dataclasses.dataclass(frozen=True)
class Patch:
    """One object of a framework that hostcall replaces, if the feature that needs it is there."""

    target: str
    install: Callable[[], None]
    uninstall: Callable[[], None]
    # Returns the object that is there now, for tests and for `hostcall doctor`.
    current: Callable[[], object]
    why: str  # the reason for the patch
    feature: str
    # Returns, before the installation, why hostcall's object cannot replace the one that is there,
    # such as "f(x, y), and not f(x)"; "" if it can.
    misfit: Callable[[], str] = str


_UNKNOWN = object()  # of a replacement that was never installed


@dataclasses.dataclass(eq=False)
class Replacement:
    """A value of ours in the place of a framework's, which `wrap` makes from that."""

    # If other code has replaced our value in turn, its value stays on removal. It may still call
    # ours, so ours checks `installed`, and acts as the framework's value while that is false.

    read: Callable[[], Any]
    write: Callable[[Any], None]
    wrap: Callable[[Any, Replacement], Any]
    installed: bool = False
    _stock: Any = _UNKNOWN
    _ours: Any = _UNKNOWN
    _is_inside: bool = False  # whether other code has replaced our value

    def patch(self, target: str, why: str, feature: str, misfit: Callable[[], str] = str) -> Patch:
        """Return its entry in a table of patches."""
        return Patch(target, self.install, self.uninstall, self.read, why, feature, misfit)

    def install(self) -> None:
        """Put our value in the place of the framework's."""
        self.installed = True
        now = self.read()
        if now is self._ours or (self._is_inside and now is not self._stock):
            return
        if now is not self._stock:
            self._stock, self._ours = now, self.wrap(now, self)
        self.write(self._ours)

    def uninstall(self) -> None:
        """Put the framework's value back, unless other code has replaced ours."""
        self.installed = False
        self._is_inside = self.read() is not self._ours
        if not self._is_inside:
            self.write(self._stock)


@dataclasses.dataclass(eq=False)
class PatchTable:
    """The private names and the patches of one framework, in the order of their installation.

    A patch is not installed if its feature lacks a name, or has a patch that does not fit.
    """

    framework: str
    names: Sequence[Name]
    patches: tuple[Patch, ...]
    # Further actions around the patches; `prepare` may refuse by raising.
    prepare: Callable[[], None] = lambda: None
    on: Callable[[], None] = lambda: None
    off: Callable[[], None] = lambda: None
    installed: tuple[Patch, ...] = ()
    enabled: bool = False

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
        self.on()
        self.enabled = True

    def uninstall(self) -> None:
        """Remove the installed patches, the last one first."""
        while self.installed:
            *remaining, last = self.installed
            last.uninstall()
            self.installed = tuple(remaining)
        if self.enabled:
            self.off()
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


# The minor versions that the tests have passed with, oldest first. In older ones MLIR ends the
# process when Python reads a constant of complex numbers.
TESTED_JAX = ("0.8", "0.9", "0.10", "0.11", "0.12")

INSTALL_JAX = "pip install 'jax>=0.8,<0.13'"


def untested_jax(version: str) -> str | None:
    """Return the warning for a JAX version that no test has passed with, else None."""
    numbers = version.split(".")
    if ".".join(numbers[:2]) in TESTED_JAX and all(number.isdigit() for number in numbers):
        return None
    return (
        f"hostcall.jax was tested with JAX {TESTED_JAX[0]} to {TESTED_JAX[-1]}, and this is "
        f"{version}. Features that need private names of JAX's which it lacks, or which have "
        "changed, are off, with a warning for each; programs without calls are JAX's own. "
        "`hostcall doctor` lists all names. If something goes wrong, try a version that was "
        f"tested: {INSTALL_JAX}."
    )
