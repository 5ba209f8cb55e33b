"""The functions of a C++ file, and their parts: found by brackets, not by C++'s grammar."""

import itertools
from collections.abc import Iterator

from tests.mutations.parts import Parts, Span, tokens_of

_ACCESS = ("public", "private", "protected")
# What an operand of `&&` or `||` stands between, beside brackets.
_BOUNDS = ("&&", "||", "?", ":", ",", ";", "=", "|=", "&=", "return")


def cpp_parts(text: str, name: str) -> Iterator[Parts]:
    """Yield the functions of a qualified name, without namespaces: `Class::Function`."""
    file = _File(text)
    for found, first, brace in file.definitions(0, len(file.words), ""):
        if found == name:
            yield file.parts(first, brace)


class _File:
    """The tokens of a file, by number. A range of them ends before its last number."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens_of(text, python=False)
        self.words = [token.text for token in self.tokens]
        # The numbers of opening brackets and of the closing ones.
        self.pairs: dict[int, int] = {}
        unclosed = []
        for i, word in enumerate(self.words):
            if word in ("(", "[", "{"):
                unclosed.append(i)
            elif word in (")", "]", "}"):
                self.pairs[unclosed.pop()] = i

    def definitions(self, first: int, last: int, prefix: str) -> Iterator[tuple[str, int, int]]:
        """Yield each function: its qualified name, its first token, and the brace of its body."""
        start = first
        for i in self._outside_brackets(first, last):
            word = self.words[i]
            if word == ";" or (word == ":" and self.words[i - 1] in _ACCESS):
                start = i + 1
            elif word == "{" and not _is_initializer(head := _plain(self.words[start:i])):
                if opened := _opened(head):
                    inner = prefix if opened == "namespace" else f"{prefix}{opened}::"
                    yield from self.definitions(i + 1, self.pairs[i], inner)
                elif name := _function(head):
                    yield prefix + name, start, i
                start = self._after(i)

    def parts(self, first: int, brace: int) -> Parts:
        """Return the parts of a function."""
        last = self._after(brace)
        inside = [(i + 1, self.pairs[i]) for i in range(first, last) if i in self.pairs]
        blocks = [(i, end) for i, end in inside if self.words[i - 1] == "{"]
        assigned = [i + 1 for i in range(first, last) if self.words[i] == "="]
        return Parts(
            whole=self._span(first, last),
            body=self._span(brace, last),
            statements=[self._span(*one) for block in blocks for one in self._statements(*block)],
            conditions=[self._span(*one) for each in inside for one in self._conditions(*each)],
            values=[(self.words[i - 2], self._span(i, self._end(i))) for i in assigned],
        )

    def _span(self, first: int, last: int) -> Span:
        return self.tokens[first].start, self.tokens[last - 1].end

    def _after(self, i: int) -> int:
        """Step over a token, and over what stands in the brackets that it opens."""
        return self.pairs.get(i, i) + 1

    def _outside_brackets(self, first: int, last: int) -> Iterator[int]:
        while first < last:
            yield first
            first = self._after(first)

    def _end(self, i: int) -> int:
        """Return where an expression ends."""
        ends = (";", ",", ")", "}")
        return next(j for j in self._outside_brackets(i, len(self.words)) if self.words[j] in ends)

    def _statements(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield what ends with a semicolon in a block, without an `if (...)` before it."""
        start = first
        for i in self._outside_brackets(first, last):
            after = self._after(i)
            if self.words[i] == ";":
                yield self._without_head(start), after
                start = after
            elif self.words[i] == "{" and self.words[after] not in (";", ",", ")", ".", "("):
                start = after  # the brace was no part of an expression

    def _without_head(self, i: int) -> int:
        while self.words[i] in ("if", "constexpr", "else", "for", "while"):
            i = self._after(i + 1) if self.words[i + 1] == "(" else i + 1
        return i

    def _conditions(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the operands in brackets, and all of them in those of an `if` or `while`."""
        inner = [i for i in self._outside_brackets(first, last) if self.words[i] in _BOUNDS]
        for left, right in itertools.pairwise([first - 1, *inner, last]):
            is_left = self.words[right] in ("&&", "||", "?")
            if left + 1 < right and (is_left or self.words[left] in ("&&", "||")):
                yield left + 1, right
        if self.words[first - 2] in ("if", "constexpr", "while"):
            yield max((i + 1 for i in inner if self.words[i] == ";"), default=first), last


def _plain(head: list[str]) -> list[str]:
    """Leave out attributes, and the parameters of a template."""
    for word, (opens, closes) in {"template": ("<", ">"), "__attribute__": ("(", ")")}.items():
        while word in head:
            first = head.index(word)
            last, depth = first + 1, 1
            while depth:
                last += 1
                depth += (head[last] == opens) - (head[last] == closes)
            head = head[:first] + head[last + 1 :]
    return head


def _is_initializer(head: list[str]) -> bool:
    """Tell whether a brace begins the value of a variable, or of a member in a constructor."""
    before = head[: head.index("(")] if "(" in head else head
    if "=" in before:
        return True
    after = head[len(head) - head[::-1].index(")") :] if ")" in head else []
    return after[:1] in ([":"], [","]) and (after[-1].isidentifier() or after[-1] == ">")


def _opened(head: list[str]) -> str:
    """Return the name of the class that a brace opens, or "namespace"."""
    if head[:1] in (["namespace"], ["extern"]):
        return "namespace"
    kinds = [i for i, word in enumerate(head) if word in ("class", "struct", "union")]
    if not kinds or "(" in head[: kinds[0]] or head[0] == "enum":
        return ""
    return "".join(head[kinds[0] + 1 : kinds[0] + 2])


def _function(head: list[str]) -> str:
    """Return the name of the function that a head declares, or ""."""
    depth = 0
    for last, word in enumerate(head):
        if word == "(" and last and not depth:
            first = last - 1
            first -= head[first - 1] == "~"
            while head[first - 1 : first] == ["::"]:
                first -= 2
            return "".join(head[max(first, 0) : last])
        depth += (word == "<") - (word == ">")
    return ""
