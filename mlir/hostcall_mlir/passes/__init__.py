"""The passes of `hostcall-opt`: a function that changes a module in place, and its options."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
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


def split_outside_brackets(text: str, separator: str = ",") -> Iterator[str]:
    """Yield the parts of a text between separators that are outside of brackets and quotes."""
    depth, quote, part = 0, "", ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "({[<":
            depth += 1
        elif char in ")}]>":
            depth -= 1
        if char == separator and not quote and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += char
    if depth or quote:
        raise PassError(f"'{text}' in the pipeline: a bracket or a quote is not closed")
    if part.strip():
        yield part.strip()


def read_options(of: Pass, text: str) -> dict[str, str]:
    """Read the options of a pass in a pipeline, `a=b c=d`."""
    found = {}
    for option in filter(None, split_outside_brackets(text.strip().replace("\n", " "), " ")):
        key, equals, value = option.partition("=")
        if not equals or key not in of.options:
            has = ", ".join(f"'{names}'" for names in of.options) or "none"
            raise PassError(f"{of.name}: no such option: '{option}'. Its options are: {has}.")
        found[key] = value.strip("\"'")
    return found


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
