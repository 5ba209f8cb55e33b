"""The interface of a pass: a name, options, and a function that changes a module in place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from jaxlib.mlir import ir

from hostcall_mlir.ir.diagnostics import PassError

Options = Mapping[str, str]


@dataclass(frozen=True)
class Pass:
    """A pass over a module.

    Attributes:
      name: its name in pipelines.
      summary: one line for `hostcall-opt --help`.
      run: changes the module, and raises Failure once it has reported the errors. After a failure
        the module must not be used.
      options: a description of each option.
    """

    name: str
    summary: str
    run: Callable[[ir.Module, Options], None]
    options: Mapping[str, str] = field(default_factory=dict)


def read_map(options: Options, option: str, of: str) -> dict[str, str]:
    """Read an option `a=b,c=d`, and the JSON object in the file that option `file` names.

    Errors name the pass `of`.

    Raises:
      PassError: if the text or the file is malformed, or they contradict each other.
    """
    entries = _read_file(options["file"], of) if "file" in options else {}
    for text in filter(None, options.get(option, "").split(",")):
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise PassError(f"{of}: '{text}' of option '{option}' is not of the form KEY=VALUE")
        if entries.setdefault(key, value) != value:
            raise PassError(f"{of}: '{key}' is mapped to '{entries[key]}' and to '{value}'")
    return entries


def read_ids(options: Options, option: str, of: str) -> dict[int, str]:
    """Read a map like `read_map`, whose keys are callback ids."""
    entries = read_map(options, option, of)
    for key in entries:
        if not (key.isascii() and key.isdecimal()):
            raise PassError(f"{of}: '{key}' is not a callback id")
    return {int(key): value for key, value in entries.items()}


def _read_file(path: str, of: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            entries = json.load(file)
    except (OSError, ValueError) as error:
        raise PassError(f"{of}: cannot read the JSON file '{path}': {error}") from error
    if not isinstance(entries, dict):
        raise PassError(f"{of}: '{path}' does not hold a JSON object")
    return {str(key): str(value) for key, value in entries.items()}
