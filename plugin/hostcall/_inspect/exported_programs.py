"""Programs of `hostcall.export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hostcall._inspect.facts import InspectionError, PythonFunction, Use
from hostcall._inspect.inspection import Inspection
from hostcall._saving import functions
from hostcall_runtime._errors import ProgramError

_MANIFEST = "manifest.json"


def lies_in(directory: Path) -> bool:
    """Whether a directory holds an exported program."""
    return (directory / _MANIFEST).is_file()


def of_program(path: Path) -> Inspection:
    """The callbacks of an exported program, all of whose files are checked.

    Raises:
      InspectionError: when it cannot be read.
    """
    try:
        from hostcall_mlir import exporting  # needs jaxlib
    except ImportError as error:
        raise InspectionError(str(error)) from error
    try:
        manifest = exporting.read(path).manifest
    except ProgramError as error:
        raise InspectionError(str(error)) from error
    found = tuple(_function(callback, manifest.function) for callback in manifest.callbacks)
    return Inspection(str(path), "exported program", found)


def _function(callback: Any, program: str) -> PythonFunction:
    declared: dict[str, Any] = {
        name: getattr(callback, name)
        for name in ("borrow", "out", "timeout", "concurrent")
        if getattr(callback, name)
    }
    kind = "tf.py_function" if callback.kind == "eager" else "tf.numpy_function"
    uses = tuple(
        Use(
            f"host call of a {kind}",
            (program,),
            callback.name,
            tuple(map(_text, call.operands)),
            tuple(map(_text, call.results)),
            call.location or "",
        )
        for call in callback.calls
    )
    given_name = callback.name if callback.function is None else None
    problem = _problem(callback)
    write = f"hostcall.load(path, callbacks={{{json.dumps(callback.name)}: function}})"
    return PythonFunction(
        callback.name,
        callback.function,
        given_name,
        declared=declared,
        uses=uses,
        problem=problem,
        write=write if problem else "",
    )


def _problem(callback: Any) -> str:
    """What keeps `hostcall.load` from finding it, as far as is told without an import."""
    if callback.function is None:
        return "it can only be given"
    module = callback.function.partition(":")[0]
    if not functions.has_module(module):
        return f"there is no module {module} here: its directory is not in sys.path"
    return ""


def _text(spec: Any) -> str:
    sizes = [f"<={size}" if i in spec.bounded else str(size) for i, size in enumerate(spec.shape)]
    return f"{spec.dtype}({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
