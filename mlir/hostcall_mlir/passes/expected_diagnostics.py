"""`--verify-diagnostics`: the diagnostics that comments of a file expect.

    // expected-error@+1 {{text of it}}
    // expected-error@below 2 {{twice}}
    // expected-error-re {{one of {{[0-9]+}}}}

As in MLIR: an error, warning, note or remark, on this line, some lines off, or `above` and `below`;
the text is a part of the message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from hostcall_mlir.ir.diagnostics import Diagnostic

_COMMENT = re.compile(
    r"expected-(error|warning|note|remark)(-re)?\s*"
    r"(?:@([+-]\d+|above|below|unknown))?\s*(\d+)?\s*\{\{(.*)\}\}\s*$"
)
_REGEX = re.compile(r"\{\{(.*?)\}\}")


class _Expectation(NamedTuple):
    severity: str
    line: int
    text: str
    pattern: re.Pattern[str]
    written: int  # the line of the comment

    def meets(self, diagnostic: Diagnostic) -> bool:
        return (
            diagnostic.severity == self.severity
            and diagnostic.line == self.line
            and self.pattern.search(diagnostic.message) is not None
        )


def compare(text: str, diagnostics: Sequence[Diagnostic], source: str) -> list[str]:
    """What is wrong with the diagnostics of a text, one line each; empty where all is as expected.

    Args:
      text: what was parsed.
      diagnostics: what came of it.
      source: what the user calls the text.
    """
    waiting = _expectations(text)
    problems = []
    for diagnostic in diagnostics:
        met = next((i for i, wanted in enumerate(waiting) if wanted.meets(diagnostic)), None)
        if met is not None:
            waiting.pop(met)
        elif diagnostic.severity != "note":
            problems.append(f"{diagnostic.show(source)} (not expected)")
    problems += [
        f"{source}:{wanted.written}: error: expected {wanted.severity} "
        f"'{wanted.text}' on line {wanted.line} was not produced"
        for wanted in waiting
    ]
    return problems


def _expectations(text: str) -> list[_Expectation]:
    """Those of all lines. `above` and `below` pass over lines that only expect something."""
    lines = text.split("\n")
    found: list[_Expectation] = []
    for number, line in enumerate(lines, start=1):
        match = _COMMENT.search(line)
        if match is None:
            continue
        severity, regex, place, count, message = match.groups()
        expected = _line(lines, number, place)
        wanted = _Expectation(severity, expected, message, _pattern(message, regex), number)
        found += [wanted] * int(count or 1)
    return found


def _line(lines: list[str], number: int, place: str | None) -> int:
    if place == "unknown":
        return 0
    if place in ("above", "below"):
        step = -1 if place == "above" else 1
        number += step
        while 0 < number <= len(lines) and _COMMENT.search(lines[number - 1]):
            number += step
        return number
    return number + int(place or 0)


def _pattern(text: str, regex: str | None) -> re.Pattern[str]:
    if not regex:
        return re.compile(re.escape(text))
    parts = _REGEX.split(text)
    return re.compile("".join(f"(?:{p})" if i % 2 else re.escape(p) for i, p in enumerate(parts)))
