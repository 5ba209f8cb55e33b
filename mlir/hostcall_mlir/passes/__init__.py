"""The passes of `hostcall-opt`: name, options, and a function that changes a module in place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jaxlib.mlir import ir

from hostcall_mlir.ir.diagnostics import PassError

Options = Mapping[str, str]


@dataclass(frozen=True)
class Pass:
    """A pass over a module; summary and options are for `hostcall-opt --help`."""

    name: str
    summary: str
    # Changes the module. Raises Failure once it has reported the errors; it is then not usable.
    run: Callable[[ir.Module, Options], None]
    options: Mapping[str, str] = field(default_factory=dict)


def read_map(options: Options, option: str, of: str) -> dict[str, str]:
    """Read an option `a=b,c=d`, and the JSON object in the file that option `file` names."""
    entries = _read_file(options["file"], of) if "file" in options else {}
    for text in filter(None, options.get(option, "").split(",")):
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise PassError(f"{of}: '{text}' of option '{option}' is not of the form KEY=VALUE")
        if entries.setdefault(key, value) != value:
            raise PassError(f"{of}: '{key}' is mapped to '{entries[key]}' and to '{value}'")
    return entries


def _read_file(path: str, of: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            entries = json.load(file)
    except (OSError, ValueError) as error:
        raise PassError(f"{of}: cannot read the JSON file '{path}': {error}") from error
    if not isinstance(entries, dict):
        raise PassError(f"{of}: '{path}' does not hold a JSON object")
    return {str(key): str(value) for key, value in entries.items()}
