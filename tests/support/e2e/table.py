"""Writes docs/ops.md: what becomes of the ops that XLA has no kernels for.

python -m tests.support.e2e.table
"""

import textwrap
from pathlib import Path

import tensorflow as tf

from tests.support.e2e import every_class
from tests.support.e2e.every_class import BOUNDARY, CANNOT_BE, ONE_PROGRAM, Class

PAGE = Path(__file__).parents[3] / "docs/ops.md"

_WIDTH = 100
_INTRODUCTION = """\
# Ops without XLA kernels

<!-- `python -m tests.support.e2e.table` writes this page. Do not edit it. -->

TensorFlow {version} for CPUs has {count} ops with a kernel of TensorFlow's own and none of XLA's.
Stock TensorFlow refuses to compile a function that has one. With hostcall, what becomes of the
function depends on the op:

| Class | Ops | What it means |
| --- | --- | --- |
| one program | {one_program} | the compiled program calls the op's kernel |
| boundary | {boundary} | it runs on the host, between compiled [clusters](glossary.md#cluster) |
| cannot be | {cannot_be} | no compiled function can have the op |

{tested} of them, in **bold**, are in the tests, and their class is what was seen there. The class
of the others follows from their definitions and from their shape functions. `hostcall.explain`
tells what becomes of the ops in your function.
"""
_GAPS = """
## Ops with XLA kernels for some dtypes only

What XLA has no kernel for with a dtype is treated in the same way. TensorFlow has these kernels,
and XLA has none:

| Op | Attribute | Dtypes |
| --- | --- | --- |
"""
_TITLES = {ONE_PROGRAM: "One program", BOUNDARY: "Boundary", CANNOT_BE: "Cannot be"}


def text() -> str:
    tested = every_class.seen()
    classes = every_class.classes(tested)
    counts = {kind: sum(c.kind == kind for c in classes.values()) for kind in _TITLES}
    parts = [_INTRODUCTION.format(
        version=tf.__version__,
        count=len(classes),
        one_program=counts[ONE_PROGRAM],
        boundary=counts[BOUNDARY],
        cannot_be=counts[CANNOT_BE],
        tested=len(classes.keys() & tested.keys()),
    )]  # fmt: skip
    parts += [_section(classes, kind, set(tested)) for kind in _TITLES if counts[kind]]
    gaps = every_class.dtype_gaps()
    rows = (f"| `{op}` | `{attr}` | {', '.join(types)} |\n" for (op, attr), types in gaps.items())
    parts += [_GAPS, *rows]
    return "".join(parts)


def _section(classes: dict[str, Class], kind: str, tested: set[str]) -> str:
    """All ops of a class, reason by reason."""
    said = f"\n## {_TITLES[kind]}\n"
    for reason, ops in every_class.by_reason(classes, kind):
        names = ", ".join(f"**{op}**" if op in tested else op for op in ops)
        names = textwrap.fill(names, _WIDTH, break_long_words=False, break_on_hyphens=False)
        said += f"\n### {reason} ({len(ops)})\n\n{names.replace('_', chr(92) + '_')}\n"
    return said


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
