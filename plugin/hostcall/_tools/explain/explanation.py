"""The result of `hostcall.explain`, which shows itself as tables and as an HTML page.

The page has no scripts and loads nothing, so it can be shown anywhere. All text from the user's
program is escaped.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from hostcall import _report
from hostcall._report import Code, Table, folded
from hostcall._tools.explain import facts, labels, pictures
from hostcall_runtime._errors import counted


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation(_report.Report):
    """The way in which a function runs. `print` shows it as a table, a notebook as a picture.

    Attributes:
      name: the name of the function.
      functions: the function itself, then the functions that it calls and that call Python or are
        compiled. Each is listed once, however often it is called.
      script_ops: all script ops that the function reaches.
      notes: further facts that the user needs.
      risks: the ops that XLA may get wrong, in functions that stock TensorFlow compiles.
      checks: the errors of values that compiled programs raise as graph mode does, one for each op
        that has some, in functions that hostcall takes.
      rewritten: the ops there that XLA computes unlike graph mode, and which are therefore
        written in other ops or computed on the host.

    Examples:
      >>> @tf.function(jit_compile=True)
      ... def program(x):
      ...     return 2.0 * tf.numpy_function(np.sort, [x], tf.TensorSpec([3], tf.float32))
      >>> hostcall.explain(program, tf.TensorSpec([3], tf.float32)).headline
      'one compiled program with 1 script op in it'
    """

    name: str
    functions: tuple[facts.FunctionFacts, ...]
    script_ops: tuple[facts.ScriptOp, ...]
    notes: tuple[str, ...] = ()
    risks: tuple[facts.Risk, ...] = ()
    checks: tuple[facts.ValueCheck, ...] = ()
    rewritten: tuple[facts.Rewritten, ...] = ()

    @property
    def clusters(self) -> tuple[facts.Cluster, ...]:
        """The clusters of all functions."""
        return tuple(s for f in self.functions for s in f.steps if isinstance(s, facts.Cluster))

    @property
    def host_ops(self) -> tuple[facts.HostOp, ...]:
        """The host ops of all functions that are not script ops."""
        return tuple(s for f in self.functions for s in f.steps if isinstance(s, facts.HostOp))

    @property
    def boundaries(self) -> tuple[facts.ScriptOp | facts.HostOp, ...]:
        """The ops between compiled clusters that have advice."""
        steps = (step for f in self.functions for step in f.steps)
        return tuple(s for s in steps if not isinstance(s, facts.Cluster) and s.advice)

    @property
    def headline(self) -> str:
        """One line that says how the function runs."""
        mode = self.functions[0].mode if self.functions else "host"
        compiled = {f.name for f in self.functions if f.mode != "host"}
        steps = [s for f in self.functions if f.mode == "host" for s in f.steps]
        calls = {c for s in steps if isinstance(s, facts.HostOp) for c in s.calls} & compiled
        on_host = sum(op.route == "partition" for op in self.script_ops)
        inside = sum(op.route == "custom_call" for op in self.script_ops)
        if mode == "compiled":
            called = sum(op.in_program for op in self.host_ops)
            more = f", which calls {counted(called, 'op')} on the host" if called else ""
            return f"one compiled program with {counted(inside, 'script op')} in it{more}"
        if mode == "partitioned":
            clusters = counted(len(self.clusters), "compiled cluster")
            more = f", {inside} more in clusters" if inside else ""
            device = self.functions[0].device
            place = f" on {facts.short_device(device)}" if device else ""
            return f"{clusters}{place} and {counted(on_host, 'script op')} on the host{more}"
        if calls:
            return f"not compiled itself; it calls {counted(len(calls), 'compiled function')}"
        return "not compiled: TensorFlow runs it on the host, op by op"

    def to_dict(self) -> dict[str, Any]:
        """Return all facts as dicts, lists, strings and numbers."""
        return {"headline": self.headline, **dataclasses.asdict(self)}

    def to_html(self) -> str:
        """Return a page that draws each function as a graph of clusters and host ops."""
        return page(self)

    def _repr_html_(self) -> str:
        return _fragment(self)

    def _parts(self) -> Iterator[str | Table]:
        return _parts(self)


def _parts(explanation: Explanation) -> Iterator[str | Table]:
    yield f"{explanation.name}: {explanation.headline}"
    yield from explanation.notes
    yield from _tables(explanation)
    yield from (_steps(one) for one in explanation.functions if labels.worth_showing(one))


def _tables(explanation: Explanation) -> Iterator[Table]:
    """Yield the tables that both the text and the page show."""
    if explanation.script_ops:
        yield _script_op_table(explanation)
    if explanation.boundaries:
        yield Table(
            {"op": folded(2), "what to write": folded(7)},
            [(labels.name_of(op), Code(op.advice)) for op in explanation.boundaries],
            "What stands between compiled clusters",
        )
    if explanation.risks:
        yield Table(
            {"op": folded(2), "why, and what to write": folded(7)},
            [
                (one.node, f"{one.op}{_at(one.location)}: {one.reason}. {one.advice}.")
                for one in explanation.risks
            ],
            "What XLA may get wrong",
        )
    if explanation.checks:
        errors = ((one, f"{one.error}: {one.message}") for one in explanation.checks)
        columns = {"op": folded(4), "raises, as in graph mode": folded(5)}
        yield Table(columns, _by_kind(errors), "Checks of values")
    if explanation.rewritten:
        reasons = ((one, _rewriting(one)) for one in explanation.rewritten)
        columns = {"op": folded(4), "why, and how": folded(5)}
        yield Table(columns, _by_kind(reasons), "What XLA would compute differently")
    yield from (_transfer_table(one) for one in explanation.functions if one.transfers)


def _script_op_table(explanation: Explanation) -> Table:
    columns = {
        "op": folded(3),
        "calls": folded(4),
        "route, and why": folded(4),
        "operands → results": folded(3),
        "copies": {"justify": "right", "ratio": 1, "min_width": 8},
    }
    rows = [
        (
            labels.joined(op.path, op.node) + (f"\nafter {op.follows}" if op.follows else ""),
            f"{labels.callback(op)}\n{op.kind}{', for new inputs alone' if op.memo else ''}\n"
            f"{_report.relative(op.location)}",
            f"{op.route}\n{op.reason}",
            labels.shapes(op),
            labels.size(op.bytes_copied),
        )
        for op in explanation.script_ops
    ]
    return Table(columns, rows, "Script ops", {"show_lines": True})


def _rewriting(op: facts.Rewritten) -> str:
    how = "TensorFlow's kernel computes it" if op.on_host else "it is written in other ops"
    return f"{op.difference}: {how}"


def _by_kind(
    ops: Iterable[tuple[facts.ValueCheck | facts.Rewritten, str]],
) -> list[tuple[str, str]]:
    """Return a row for each type of op and text, with the places of all these ops."""
    places: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for op, text in ops:
        places[op.op, text][op.location] += 1
    return [(_with_places(kind, found), text) for (kind, text), found in places.items()]


def _with_places(kind: str, places: Counter[str]) -> str:
    """Return the type of some ops, their number and their places."""
    known = ", ".join(_report.relative(place) for place in places if place)
    count = f"{kind}, {places.total()} ops" if places.total() > 1 else kind
    return f"{count}, at {known}" if known else count


def _steps(function: facts.FunctionFacts) -> Table:
    return Table(
        {"step": folded(2), "runs": {"ratio": 1, "min_width": 8}, "what": folded(6)},
        [(step.node, *_step(step)) for step in function.steps if not labels.is_plumbing(step)],
        labels.title(function),
    )


def _step(step: facts.Step) -> tuple[str, str]:
    if isinstance(step, facts.Cluster):
        return "compiled", _cluster(step)
    if isinstance(step, facts.ScriptOp):
        return "Python", f"{step.kind} of {labels.callback(step)}"
    runs = "called" if step.in_program else "host"
    return runs, f"{step.op}{_at(step.location)}: {step.reason}"


def _transfer_table(function: facts.FunctionFacts) -> Table:
    columns = {
        "value": folded(4),
        "to the": {"min_width": 6},
        "what": folded(3),
        "size": {"justify": "right", "min_width": 8},
    }
    rows = [
        (one.value, one.to, labels.type_of(one.what), labels.size(one.what.nbytes))
        for one in function.transfers
    ]
    device, name = facts.short_device(function.device), labels.short_name(function.name)
    title = f"{name}: what one call copies between {device} and the host"
    return Table(columns, rows, title, {"expand": True})


def _cluster(step: facts.Cluster) -> str:
    if step.compilations < 2 and not step.uncompiled_runs:
        return labels.summary(step.ops)
    plain = f"; {counted(step.uncompiled_runs, 'run')} by TensorFlow's kernels"
    times = f"compiled {counted(step.compilations, 'time')}"
    return f"{labels.summary(step.ops)} ({times}{plain if step.uncompiled_runs else ''})"


def _at(location: str) -> str:
    return f" at {_report.relative(location)}" if location else ""


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
.hostcall .cluster { fill: #e3effc; stroke: #3b7dc4; background: #e3effc; border-color: #3b7dc4; }
.hostcall .python { fill: #fdeacb; stroke: #d08a1d; background: #fdeacb; border-color: #d08a1d; }
.hostcall .other { fill: #eef0f2; stroke: #8793a0; background: #eef0f2; border-color: #8793a0; }
.hostcall .inner { fill: #fff4e0; stroke: #d08a1d; }
.hostcall .bare { fill: none; stroke: none; }
.hostcall .part { fill: #fff; stroke: #8793a0; stroke-dasharray: 3 3; }
.hostcall code { font: 12px/1.45 ui-monospace, monospace; white-space: pre-wrap; }
.hostcall svg path { fill: none; stroke: #66727f; stroke-width: 1.4; }
.hostcall svg path.order { stroke-dasharray: 5 4; } .hostcall svg marker path { fill: #66727f; }
.hostcall .key span { display: inline-block; border-width: 1.5px; border-style: solid;
  border-radius: 4px; padding: 0 8px; margin-right: 8px; font-size: 12px; }
.hostcall table { border-collapse: collapse; font-size: 13px; background: #fff; }
.hostcall th, .hostcall td { text-align: left; vertical-align: top; padding: 4px 10px 4px 0;
  border-bottom: 1px solid #dde2e7; color: #1f2933; white-space: pre-line; }
.hostcall a { color: #2463a6; }
"""

_KEY = (
    '<p class="key"><span class="cluster">compiled by XLA</span><span class="python">Python</span>'
    '<span class="other">TensorFlow, on the host</span><span class="dim" style="border:0">'
    "solid: a value; dashed: the order only</span></p>"
)


def page(*explanations: Explanation) -> str:
    """Return a whole HTML document."""
    names = ", ".join(explanation.name for explanation in explanations)
    body = "\n".join(map(_fragment, explanations))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(names)} - hostcall</title></head>"
        f'<body style="margin:0">{body}</body></html>\n'
    )


def _fragment(explanation: Explanation) -> str:
    """Return the part of a document that a notebook shows."""
    parts = [
        f'<div class="hostcall"><style>{_STYLE}</style>',
        f"<h2>{escape(explanation.name)}</h2><p>{escape(explanation.headline)}</p>",
        *(f'<p class="note">{escape(note)}</p>' for note in explanation.notes),
        _KEY,
    ]
    for function, picture in pictures.of(explanation.functions, explanation.script_ops):
        title = escape(labels.title(function))
        parts += [f"<h3>{title}</h3>", f'<div class="scroll">{picture}</div>']
    parts += map(_report.as_html, _tables(explanation))
    return "\n".join([*parts, "</div>"])
