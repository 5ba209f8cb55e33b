"""Diagnostics: how passes report errors, and how a collector gathers and shows them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jaxlib.mlir import ir

from hostcall_mlir.ir.jaxlib_names import is_in_file, locations_in

_BUFFER = "-"  # MLIR's name for the buffer of a module that is parsed from a string


class PassError(Exception):
    """A pipeline that cannot be read, or a module that cannot be parsed or transformed.

    The text has one line for each diagnostic: file, line, column, severity, message.

    Examples:
      >>> try:
      ...     hostcall_mlir.transform("func.func @main() {", "builtin.module(hostcall-dce)")
      ... except hostcall_mlir.PassError as error:
      ...     print(error)
      <string>:1:18: error: expected operation name in quotes
    """


class Failure(Exception):  # noqa: N818  # it carries nothing: the diagnostics say what is wrong
    """The exception that a pass raises after it has reported its errors."""


class Diagnostic(NamedTuple):
    """One diagnostic; line and column count from 1, and are 0 if the place is unknown."""

    severity: str
    file: str
    line: int
    column: int
    message: str

    def show(self, source: str) -> str:
        """Return the diagnostic as a line of text; `source` is the user's name for the text."""
        file = source if self.file == _BUFFER else self.file or source
        place = f"{file}:{self.line}:{self.column}" if self.line else file
        return f"{place}: {self.severity}: {self.message}"


class Collector:
    """A collector of a context's diagnostics; while it is entered, MLIR prints none."""

    def __init__(self, context: ir.Context) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._context = context

    def __enter__(self) -> Collector:
        # Before jaxlib 0.9 it can be set, but not read.
        self._before = getattr(self._context, "emit_error_diagnostics", False)
        # Sends errors of the parser and the verifier the same way as those of passes.
        self._context.emit_error_diagnostics = True
        # The handler holds only the list. The garbage collector cannot see references from MLIR's
        # objects, so a cycle through one would keep the whole context alive.
        collect = functools.partial(_collect, self.diagnostics)
        self._handler = self._context.attach_diagnostic_handler(collect)
        return self

    def __exit__(self, *_: object) -> None:
        self._handler.detach()
        self._context.emit_error_diagnostics = self._before

    def show(self, source: str) -> str:
        """Return the diagnostics as text, one a line."""
        return "\n".join(diagnostic.show(source) for diagnostic in self.diagnostics)


@contextlib.contextmanager
def raising(context: ir.Context, source: str) -> Iterator[Collector]:
    """Raise what fails inside the context as a PassError with the diagnostics of `source`."""
    with Collector(context) as collector:
        try:
            yield collector
        except (Failure, ir.MLIRError) as error:
            raise PassError(collector.show(source)) from error


def _collect(diagnostics: list[Diagnostic], diagnostic: ir.Diagnostic) -> bool:
    diagnostics.append(_read(diagnostic))
    diagnostics += map(_read, diagnostic.notes)
    return True


def report_all(problems: Iterable[tuple[ir.Operation, str]]) -> None:
    """Report problems at their ops, and raise Failure if there are any."""
    failed = False
    for op, message in problems:
        report(op, message)
        failed = True
    if failed:
        raise Failure


def report(op: ir.Operation, message: str) -> None:
    """Report an error at an op; a pass raises Failure once it has reported all errors."""
    op.location.emit_error(message)


def _read(diagnostic: ir.Diagnostic) -> Diagnostic:
    place = _place(diagnostic.location)
    # MLIR frees the diagnostic when the handler returns, so its fields are copied.
    file, line, column = "", 0, 0
    if place is not None:
        file, line, column = place.filename, place.start_line, place.start_col
    return Diagnostic(diagnostic.severity.name.lower(), file, line, column, diagnostic.message)


def _place(location: ir.Location) -> ir.Location | None:
    """Return the first place in a file that a location names, None if it names none."""
    waiting = [location]
    while waiting:
        place = waiting.pop()
        if is_in_file(place):
            return place
        waiting += reversed(locations_in(place))
    return None
