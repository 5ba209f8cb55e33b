"""Checks of calls, run in processes without hostcall; all results are JSON."""

from typing import Any

from tests.kernels import catalogue, difference, known, running, sources
from tests.kernels.call import Call

# Differences of NaNs, infinities or denormal numbers are not wrong results.
_WRONG = {difference.VALUE, difference.SHAPE, difference.DTYPE, difference.COUNT}
_AT_EDGES = ("special", "nan", "denormal", "zeros of both signs", "wide", "low above high")
_BATCH = 30


def known_differ(of_graph: bool = False) -> list[bool]:
    calls = known.of_graph() if of_graph else known.cases()
    expected = map(running.on_cpu, calls)
    found = map(difference.compare, calls, expected, running.by_xla(calls))
    differs = _WRONG | {difference.NAN, difference.ROUNDING}
    return [any(one.what in differs for one in differences) for differences in found]


def plain(calls: list[Call]) -> list[int]:
    """Return the numbers of the calls with numbers that nothing is special about."""
    usual = (not c.kind and not any(word in c.note for word in _AT_EDGES) for c in calls)
    return [number for number, is_usual in enumerate(usual) if is_usual]


def wrong(drawn: list[tuple[int, str]]) -> list[str]:
    calls = catalogue.calls()
    assert all(calls[number].text() == text for number, text in drawn), "hostcall changes the calls"
    texts = []
    for begin in range(0, len(drawn), _BATCH):
        batch = {number: calls[number] for number, _ in drawn[begin : begin + _BATCH]}
        for number, found in running.judge(batch):
            texts += [f"{batch[number].text()}: {one}" for one in found if one.what in _WRONG]
    return texts


def bounded() -> dict[str, Any]:
    """Return the ops that make bounded sizes, and the inputs that make others do so."""
    found = sources.find(sources.sample(most=2))
    sources.find_unknown(sources.sample(most=1), found)
    unknown = {
        op: sorted({n for n, _ in what.unknown}) for op, what in found.items() if what.unknown
    }
    return {"always": [op for op, what in found.items() if what.always], "unknown": unknown}
