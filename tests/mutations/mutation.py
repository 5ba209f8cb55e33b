"""Mutations: the function that each one changes, and what it does to it."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from tests.mutations.cpp_parts import cpp_parts
from tests.mutations.parts import Parts, Span, places_of
from tests.mutations.python_parts import python_parts

ROOT = Path(__file__).resolve().parents[2]
# What mutations do to functions; the second ones say what is replaced, and what it becomes.
_ALONE, _REPLACING = ("returns", "drop"), ("statement", "condition", "value", "text")


class MutationError(ValueError):
    """A mutation that does not fit the sources, or whose fields are wrong."""


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One fix, and how it is undone."""

    name: str
    file: str
    function: str
    operation: str
    target: str
    becomes: str
    tests: list[str]

    @property
    def native(self) -> bool:
        """True if the extension modules have to be built for the mutation."""
        return self.file.startswith("csrc/")

    def applied(self, text: str) -> str:
        """Return the text of the file with the fix undone."""
        python = self.file.endswith(".py")
        found = self._places(text, python)
        if len(found) != 1:
            raise MutationError(
                f"{self.name}: {self.file}: {self.operation} {self.target!r} is found "
                f"{len(found)} times in {self.function or 'the file'}"
            )
        ((start, end),) = found
        indent = text[text.rfind("\n", 0, start) + 1 : start]
        new = self._new(python).replace("\n", f"\n{indent}")
        return text[:start] + new + text[end:]

    def _places(self, text: str, python: bool) -> set[Span]:
        """Find what is replaced; all functions of the name are one, as some are overloaded."""
        functions = list((python_parts if python else cpp_parts)(text, self.function))
        if not functions:
            raise MutationError(f"{self.name}: {self.file} does not define {self.function}")
        return {place for parts in functions for place in self._places_in(parts, text, python)}

    def _places_in(self, parts: Parts, text: str, python: bool) -> set[Span]:
        if self.operation == "returns":
            return {parts.body}
        if self.operation == "value":
            return {span for name, span in parts.values if name == self.target}
        found = set(places_of(self.target, text, parts.whole, python))
        if self.operation == "condition":
            return _innermost(parts.conditions, found)
        return found if self.operation == "text" else _innermost(parts.statements, found)

    def _new(self, python: bool) -> str:
        if self.operation == "drop":
            return "pass" if python else "{}"
        if self.operation != "returns":
            return self.becomes
        statement = f"return {self.target}".rstrip()
        return statement if python else f"{{ {statement}; }}"


def load(names: list[str]) -> list[Mutation]:
    """Return the mutations of those names, or all of them."""
    table = tomllib.loads((Path(__file__).parent / "mutations.toml").read_text())
    if unknown := set(names) - set(table):
        raise MutationError(f"unknown: {sorted(unknown)}")
    return [read(name, table[name]) for name in table if not names or name in names]


def read(name: str, fields: dict[str, Any]) -> Mutation:
    """Return the mutation that a table of `mutations.toml` describes."""
    said = [key for key in (*_ALONE, *_REPLACING) if key in fields]
    if len(said) != 1:
        raise MutationError(f"{name}: it does not do one thing, but {said}")
    if wrong := {"function", "tests", *said} ^ set(fields):
        raise MutationError(f"{name}: fields that are unknown or missing: {sorted(wrong)}")
    (operation,) = said
    match fields[operation]:
        case str(target) if operation in _ALONE:
            becomes = ""
        case [str(target), str(becomes)] if operation in _REPLACING:
            pass
        case other:
            wanted = (
                "no text" if operation in _ALONE else "not what is replaced and what it becomes"
            )
            raise MutationError(f"{name}: {operation} = {other!r} is {wanted}")
    file, _, function = fields["function"].partition("::")
    return Mutation(name, file, function, operation, target, becomes, fields["tests"])


def _innermost(spans: list[Span], places: set[Span]) -> set[Span]:
    """Return the smallest of the spans around each place that is in one."""
    around = [[s for s in spans if s[0] <= start and end <= s[1]] for start, end in places]
    return {min(each, key=lambda span: span[1] - span[0]) for each in around if each}
