"""`hostcall-check`, a verifier for the custom calls, and `--verify-diagnostics`.

The pass leaves the module as it is; docs/passes.md lists what it checks. The other part compares
diagnostics with comments, as in MLIR:

    // expected-error@+1 {{text of it}}
    // expected-error@below 2 {{twice}}
    // expected-error-re {{one of {{[0-9]+}}}}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jaxlib.mlir import ir

from hostcall_mlir.ir import custom_calls
from hostcall_mlir.ir.diagnostics import Diagnostic, report_all
from hostcall_mlir.ir.jaxlib_names import attribute_of, is_token
from hostcall_mlir.passes import Options, Pass, read_map, tokens, value_errors

_KEYS = {"callback", *custom_calls.ARRAYS}


_HIDDEN = (
    "the ops are those of a portable artifact, in which calls cannot be checked; check them before "
    "stablehlo-legalize-to-vhlo"
)


def _run(module: ir.Module, options: Options) -> None:
    known = _known(options)
    ops = custom_calls.walk(module)
    calls = filter(custom_calls.is_host_call, ops)
    problems = [(call, text) for call in calls for text in _check(call, known)]
    problems += [(op, text) for op in ops for text in value_errors.problems_of(op)]
    problems += tokens.misuses(ops)
    if (hidden := next(custom_calls.find_artifact_ops(ops), None)) is not None:
        problems.append((hidden, _HIDDEN))
    report_all((op, f"{PASS.name}: {text}") for op, text in problems)


PASS = Pass(
    "hostcall-check",
    "verify the custom calls @hostcall, @hostcall_raise and @hostcall_any",
    _run,
    {
        "known": "the functions that there are: pkg.mod:fn,pkg.mod:other",
        "file": "a JSON object whose values are such names",
    },
)


def _known(options: Options) -> set[str] | None:
    """Return the names of the known functions, None if no option gives any."""
    if not options:
        return None
    listed = (name.strip() for name in options.get("known", "").split(","))
    return {*filter(None, listed), *read_map(options, "", PASS.name).values()}


def _check(op: ir.Operation, known: set[str] | None) -> Iterator[str]:
    """Yield the problems of one call, except for other uses of its tokens."""
    version = attribute_of(op, "api_version")
    if not isinstance(version, ir.IntegerAttr) or version.value != 4:
        yield (
            "api_version has to be 4 : i32, that of typed FFI calls; hostcall-from-jax brings "
            "calls of hostcall.jax into this form"
        )
        return
    if not isinstance(attribute_of(op, "backend_config"), ir.DictAttr):
        yield f"backend_config has to be a dictionary of {_listed(_KEYS)}"
        return
    config = custom_calls.config_of(op)
    if missing := _KEYS - config.keys():
        yield f"backend_config lacks {_listed(missing)}"
    if unknown := config.keys() - _KEYS:
        yield f"backend_config has {_listed(unknown)}, which means nothing to hostcall"
    if "callback" in config:
        yield from _check_callback(config["callback"], known)
    yield from _check_tokens(op)
    yield from _check_layouts(op)
    operands = [operand.type for operand in op.operands]
    yield from _check_side(config, "operand", operands)
    yield from _check_side(config, "result", custom_calls.result_types(op))


def _check_callback(callback: ir.Attribute, known: set[str] | None) -> Iterator[str]:
    match callback:
        case ir.IntegerAttr() as found if found.value >= 0 and str(found.type) == "i64":
            if known is not None:
                yield (
                    f"callback {found.value} is a callback id, which means nothing in another "
                    "process; hostcall-name writes a name in its place"
                )
        case ir.StringAttr() as name if custom_calls.is_name(name.value):
            if known is not None and name.value not in known:
                yield f"'{name.value}' is not among the known functions: {_listed(known)}"
        case _:
            yield (
                "callback has to be an i64 from 0 on or a string such as 'module:qualname', not "
                f"{callback}"
            )


def _check_tokens(op: ir.Operation) -> Iterator[str]:
    operands = [is_token(operand.type) for operand in op.operands]
    results = [is_token(type_) for type_ in custom_calls.result_types(op)]
    if any(operands[:-1]) or any(results[:-1]):
        yield "a token has to be the last operand and the last result"
    elif any(operands) != any(results):
        yield "a call that takes a token has to return one, and the other way round"


def _check_layouts(op: ir.Operation) -> Iterator[str]:
    """Yield layouts that are not row-major, since the runtime does not learn of layouts."""
    for name in ("operand_layouts", "result_layouts"):
        layouts = attribute_of(op, name)
        for layout in layouts if isinstance(layouts, ir.ArrayAttr) else ():
            order = [int(dim) for dim in ir.DenseIntElementsAttr(layout)]
            if order != sorted(order, reverse=True):
                yield f"{name} has {order}, and Python functions take and return row-major arrays"


def _check_side(
    config: dict[str, ir.Attribute], side: str, types: Sequence[ir.Type]
) -> Iterator[str]:
    """Check the pairs about operands or results; the last types are the true sizes and a token."""
    dynamic, sub_byte = (config.get(f"{kind}_{side}s") for kind in ("dynamic", "sub_byte"))
    for kind, array in (("dynamic", dynamic), ("sub_byte", sub_byte)):
        if array is not None and (not isinstance(array, ir.DenseI64ArrayAttr) or len(array) % 2):
            yield f"{kind}_{side}s has to be an array<i64> of pairs, not {array}"
            return
    sizes = len(dynamic) // 2 if dynamic is not None else 0
    values = [type_ for type_ in types if not is_token(type_)]
    own, trailing = values[: len(values) - sizes], values[len(values) - sizes :]
    if len(values) < sizes or any(str(type_) != "tensor<i32>" for type_ in trailing):
        yield (
            f"dynamic_{side}s has {sizes} pairs, so that the last {sizes} {side}s before a token "
            "have to be tensor<i32>, the true sizes"
        )
        return
    yield from _check_packed(side, own)
    yield from _check_dynamic(custom_calls.pairs(dynamic), side, own)
    yield from _check_sub_byte(custom_calls.pairs(sub_byte), side, own)


def _check_packed(side: str, own: Sequence[ir.Type]) -> Iterator[str]:
    """Yield values of sub-byte dtypes: XLA packs them, but the runtime reads a byte per element."""
    for index, type_ in enumerate(own):
        if wide := custom_calls.WIDE.get(custom_calls.element_of(type_)):
            yield (
                f"{side} {index} is {type_}, which XLA packs; the call takes and returns {wide}, "
                f"converted by stablehlo.convert and named in sub_byte_{side}s"
            )


def _check_dynamic(
    pairs: list[tuple[int, int]], side: str, own: Sequence[ir.Type]
) -> Iterator[str]:
    for index, dim in pairs:
        type_ = own[index] if 0 <= index < len(own) else None
        if not (isinstance(type_, ir.RankedTensorType) and 0 <= dim < type_.rank):
            yield f"dynamic_{side}s names dimension {dim} of {side} {index}, which does not exist"
    if len({*pairs}) < len(pairs):
        yield f"dynamic_{side}s names a dimension twice"


def _check_sub_byte(
    pairs: list[tuple[int, int]], side: str, own: Sequence[ir.Type]
) -> Iterator[str]:
    for index, code in pairs:
        if not 0 <= index < len(own):
            yield f"sub_byte_{side}s names {side} {index}, which does not exist"
            continue
        if code not in custom_calls.SUB_BYTE:
            known = _listed(custom_calls.SUB_BYTE)
            yield f"sub_byte_{side}s has element type {code}; it can be {known}"
            continue
        wide = custom_calls.WIDE[custom_calls.SUB_BYTE[code]]
        allowed = ["i8", "ui8"] if wide in ("i8", "ui8") else [wide]
        if custom_calls.element_of(own[index]) not in allowed:
            yield (
                f"sub_byte_{side}s is about {side} {index}, which has to be of "
                f"{' or '.join(allowed)}, not {own[index]}"
            )


def _listed(names: Iterable[str] | Iterable[int]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names)) or "none"


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
    """Return the differences from the expected diagnostics; messages call the text `source`."""
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
    """Return the expectations of all lines; `above` and `below` skip lines that hold one."""
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
