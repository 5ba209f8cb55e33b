"""hostcall._tf.graph.solver: what can be reached, and in which order; facts that change others."""

from collections.abc import Mapping, Sequence

import pytest

from hostcall._tf.graph import solver

_GRAPH: Mapping[str, Sequence[str]] = {"a": "bc", "b": "d", "c": "d", "d": "a", "e": "a"}


@pytest.mark.parametrize(
    ("starts", "expected"), [("", ""), ("a", "acdb"), ("eb", "bdace"), ("aa", "acdb")]
)
def test_each_item_is_reached_once_and_the_last_one_first(starts: str, expected: str) -> None:
    assert "".join(solver.reach(starts, _GRAPH.__getitem__)) == expected


def test_no_more_is_followed_than_is_asked_for() -> None:
    numbers = solver.reach([0], lambda number: [number + 1])
    assert [next(numbers) for _ in range(3)] == [0, 1, 2]


def test_facts_are_computed_until_none_changes() -> None:
    lengths = {"e": 0}  # of the longest way with at most three steps

    def longer(item: str) -> list[str]:
        changed = [n for n in _GRAPH[item] if lengths.get(n, -1) < lengths[item] + 1 <= 3]
        lengths.update(dict.fromkeys(changed, lengths[item] + 1))
        return changed

    solver.solve(["e"], longer)
    assert lengths == {"e": 0, "a": 1, "b": 2, "c": 2, "d": 3}
