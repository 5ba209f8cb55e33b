"""An explanation as HTML: each function drawn as a graph, and a table of its script ops.

There is no script in it and nothing from elsewhere, so that it can be shown anywhere. All text that
comes from the user's program is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hostcall._explain import words
from hostcall._explain.facts import Facts, Function, HostOp, Risk, ScriptOp
from hostcall._explain.picture import drawing

_STYLE = """\
.hostcall { color: #1f2933; background: #fff; font: 14px/1.45 system-ui, sans-serif; padding: 16px;
  color-scheme: light; }
.hostcall h2 { font-size: 19px; margin: 0 0 2px; }
.hostcall h3 { font-size: 15px; margin: 22px 0 6px; }
.hostcall p { margin: 4px 0; } .hostcall .note { background: #fff7e0; padding: 6px 10px; }
.hostcall .scroll { overflow-x: auto; } .hostcall .dim { color: #66727f; font-weight: normal; }
.hostcall svg { display: block; font-family: ui-monospace, monospace; font-size: 12px; }
.hostcall svg text { fill: #1f2933; } .hostcall svg .name { font-weight: bold; }
.hostcall svg .dim { fill: #5b6875; }
.hostcall svg rect { stroke-width: 1.5; }
.hostcall .cluster { fill: #e3effc; stroke: #3b7dc4; }
.hostcall .python { fill: #fdeacb; stroke: #d08a1d; }
.hostcall .other { fill: #eef0f2; stroke: #8793a0; }
.hostcall .inner { fill: #fff4e0; stroke: #d08a1d; }
.hostcall .bare { fill: none; stroke: none; }
.hostcall .part { fill: #fff; stroke: #8793a0; stroke-dasharray: 3 3; }
.hostcall code { font: 12px/1.45 ui-monospace, monospace; white-space: pre-wrap; }
.hostcall svg path { fill: none; stroke: #66727f; stroke-width: 1.4; }
.hostcall svg path.order { stroke-dasharray: 5 4; } .hostcall svg marker path { fill: #66727f; }
.hostcall .key span { display: inline-block; border: 1.5px solid; border-radius: 4px;
  padding: 0 8px; margin-right: 8px; font-size: 12px; }
.hostcall .key .cluster { background: #e3effc; border-color: #3b7dc4; }
.hostcall .key .python { background: #fdeacb; border-color: #d08a1d; }
.hostcall .key .other { background: #eef0f2; border-color: #8793a0; }
.hostcall table { border-collapse: collapse; font-size: 13px; background: #fff; }
.hostcall th, .hostcall td { text-align: left; vertical-align: top; padding: 4px 10px 4px 0;
  border-bottom: 1px solid #dde2e7; color: #1f2933; }
.hostcall a { color: #2463a6; }
"""

_KEY = (
    '<p class="key"><span class="cluster">compiled by XLA</span><span class="python">Python</span>'
    '<span class="other">TensorFlow, on the host</span><span class="dim" style="border:0">'
    "solid: a value; dashed: the order only</span></p>"
)

_COLUMNS = ("op", "calls", "called at", "route", "why", "operands → results", "copies", "after")


def page(*explanations: Facts) -> str:
    """A whole document."""
    names = ", ".join(explanation.name for explanation in explanations)
    body = "\n".join(map(fragment, explanations))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(names)} - hostcall</title></head>"
        f'<body style="margin:0">{body}</body></html>\n'
    )


def fragment(explanation: Facts) -> str:
    """The part of a document that a notebook shows."""
    parts = [
        f'<div class="hostcall"><style>{_STYLE}</style>',
        f"<h2>{escape(explanation.name)}</h2><p>{escape(explanation.headline)}</p>",
        *(f'<p class="note">{escape(note)}</p>' for note in explanation.notes),
        _KEY,
    ]
    inside: dict[str, list[ScriptOp]] = {}
    for op in explanation.script_ops:
        if op.cluster is not None:
            inside.setdefault(op.cluster, []).append(op)
    functions = {function.name: function for function in explanation.functions}
    within = {
        part.name
        for function in explanation.functions
        for step in function.steps
        for part in words.parts_of(step, functions)
    }
    for function in filter(words.worth_showing, explanation.functions):
        if function.name not in within:
            parts.append(_heading(function))
            parts.append(f'<div class="scroll">{drawing(function, inside, functions)}</div>')
    parts += [_transfers(function) for function in explanation.functions if function.transfers]
    if explanation.boundaries:
        parts.append(_advised("What stands between compiled clusters", explanation.boundaries))
    if explanation.risks:
        parts.append(_advised("What XLA may get wrong", explanation.risks))
    if explanation.script_ops:
        parts.append(_table(explanation.script_ops))
    parts.append("</div>")
    return "\n".join(parts)


def _heading(function: Function) -> str:
    where = f" in {function.path}" if function.path else ""
    mode = {
        "compiled": "one compiled program",
        "partitioned": "partitioned",
        "host": "not compiled",
    }
    return (
        f"<h3>{escape(words.short_name(function.name))}"
        f'<span class="dim">{escape(where)}: {mode[function.mode]}</span></h3>'
    )


def _advised(title: str, ops: Sequence[ScriptOp | HostOp | Risk]) -> str:
    rows = "".join(
        f"<tr><td>{escape(words.name_of(op))}</td><td>{escape(words.relative(op.location))}</td>"
        f"<td>{escape(op.reason)}</td><td><code>{escape(op.advice)}</code></td></tr>"
        for op in ops
    )
    return (
        f"<h3>{title}</h3>"
        '<div class="scroll"><table><thead><tr><th>op</th><th>at</th><th>why</th>'
        f"<th>what to write</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _transfers(function: Function) -> str:
    rows = "".join(
        f"<tr><td>{escape(one.value)}</td><td>{one.to}</td>"
        f"<td>{escape(words.type_of(one.what))}</td><td>{words.size(one.what.nbytes)}</td></tr>"
        for one in function.transfers
    )
    return (
        f"<h3>{escape(words.transfers_title(function))}</h3>"
        '<div class="scroll"><table><thead><tr><th>value</th><th>to the</th><th>what</th>'
        f"<th>size</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _table(ops: tuple[ScriptOp, ...]) -> str:
    head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    rows = "".join(f"<tr>{_cells(op)}</tr>" for op in ops)
    return (
        f'<h3>Script ops</h3><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cells(op: ScriptOp) -> str:
    cells = (
        f"{op.path} > {op.node}" if op.path else op.node,
        f"{words.kind(op)} of {words.callback(op)}",
        words.relative(op.location),
        op.route,
        op.reason,
        words.shapes(op),
        words.size(op.bytes_copied),
        op.follows or "",
    )
    return "".join(f"<td>{escape(cell)}</td>" for cell in cells)
