"""What a function is made of, for mutations: its tokens and its parts."""

import dataclasses
import re

# Where a part of a text begins and ends.
Span = tuple[int, int]

_TOKEN = r"""
    (?P<comment>{comment})
  | [rbfuRLu8]*(?:\"\"\"(?s:.)*?\"\"\"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | \d(?:'?\w)* | \w+ | && | \|\| | :: | -> | \+\+ | -- | := | [-+*/|&^=!<>]= | \S
"""
# Directives of C++'s preprocessor count as comments.
_COMMENTS = {".py": r"\#.*", ".cc": r"//.*|/\*(?s:.)*?\*/|^[ ]*\#(?:.*\\\n)*.*"}
_TOKENS = {
    suffix: re.compile(_TOKEN.format(comment=comment), re.VERBOSE | re.MULTILINE)
    for suffix, comment in _COMMENTS.items()
}


@dataclasses.dataclass(frozen=True)
class Token:
    """A name, number, string or operator, and where it stands."""

    text: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Parts:
    """Where the parts of a function, class or file stand in the text of the file."""

    whole: Span
    body: Span
    statements: list[Span]
    # Those of `if`, `while` and the like, and the operands of `and` and `or`.
    conditions: list[Span]
    # What is assigned to a name, or passed by it.
    values: list[tuple[str, Span]]


def tokens_of(text: str, python: bool) -> list[Token]:
    """Split a text into tokens, without its comments."""
    found = _TOKENS[".py" if python else ".cc"].finditer(text)
    return [Token(one[0], *one.span()) for one in found if one["comment"] is None]


def places_of(wanted: str, text: str, within: Span, python: bool) -> list[Span]:
    """Find the places in a text with the tokens of another, whatever the spaces between them."""
    words = [token.text for token in tokens_of(wanted, python)]
    tokens = [t for t in tokens_of(text, python) if within[0] <= t.start and t.end <= within[1]]
    return [
        (tokens[i].start, tokens[i + len(words) - 1].end)
        for i in range(len(tokens) - len(words) + 1)
        if [token.text for token in tokens[i : i + len(words)]] == words
    ]
