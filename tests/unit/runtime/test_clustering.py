"""hostcall_runtime._scheduling: which nodes are compiled together."""

import random
from typing import Any

import pytest

from hostcall_runtime._scheduling import Side, assign, sink

H, C, E = Side.HOST, Side.COMPILED, Side.EITHER


def clusters(places: list[Side], before: list[list[int]], groups: Any = ()) -> list[int]:
    steps = assign(places, before, groups)
    compiled = {i for i, place in enumerate(places) if place is C}
    return sink(before, steps, compiled.difference(*groups))


def chain(count: int) -> list[list[int]]:
    return [[i - 1] if i else [] for i in range(count)]


def in_clusters(steps: list[int]) -> list[set[int]]:
    """The nodes of each cluster, in the order in which the clusters run."""
    used = sorted({step for step in steps if step % 2 == 0})
    return [{i for i, step in enumerate(steps) if step == at} for at in used]


# Places, what each node waits for, groups, and the nodes of each cluster.
CASES = {
    "identities follow what they wait for": ([C, E, H, E, C], chain(5), [], [{0, 1}, {4}]),
    # Node 1 waits for nothing, and only the last cluster uses it; node 2 waits for the first.
    "a value used late": ([C, C, C, H, C], [[], [], [0], [0], [1, 2, 3]], [], [{0, 2}, {1, 4}]),
    # Nodes 0 and 3 pass a value that cannot leave a program; 3 needs the host's result.
    "a group waits": ([C, C, H, C, C], [[], [], [1], [0, 2], [3]], [[0, 3]], [{1}, {0, 3, 4}]),
    "a group around a host node is on the host": ([C, H, C], [[], [0], [0, 1]], [[0, 2]], []),
}


@pytest.mark.parametrize(("places", "before", "groups", "expected"), CASES.values(), ids=CASES)
def test_clusters(places: Any, before: Any, groups: Any, expected: list[set[int]]) -> None:
    assert in_clusters(clusters(places, before, groups)) == expected


def test_random_graphs() -> None:
    """Every node runs after what it waits for, and there are no more clusters than needed."""
    for seed in range(300):
        _check_random_graph(seed)


def _check_random_graph(seed: int) -> None:
    choose = random.Random(seed)
    count = choose.randrange(1, 40)
    places = [choose.choice([H, C, C, E]) for _ in range(count)]
    before = [sorted(choose.sample(range(i), min(i, choose.randrange(4)))) for i in range(count)]
    groups = []
    if count > 3 and seed % 2:
        groups = [sorted(choose.sample(range(count), choose.randrange(2, 4)))]
    steps = clusters(places, before, groups)
    for i, sources in enumerate(before):
        for source in sources:
            assert steps[source] <= steps[i], seed
        if places[i] is H:
            assert steps[i] % 2 == 1, seed
        if places[i] is C and not groups:
            assert steps[i] % 2 == 0, seed
    for group in groups:
        inside = {steps[i] for i in group if steps[i] % 2 == 0}
        assert len(inside) <= 1, seed
        assert not inside or all(steps[i] % 2 == 0 for i in group), seed
    if not groups:
        assert len(in_clusters(steps)) == _most_changes(places, before), seed


def _most_changes(places: list[Side], before: list[list[int]]) -> int:
    """The largest number of compiled stretches on a path."""
    # Of each node: that number on the paths to it, when the path ends in compiled code and on the
    # host. An identity continues the later of both.
    most: list[tuple[int, bool]] = []
    for place, sources in zip(places, before, strict=True):
        number, compiled = max((most[i] for i in sources), default=(0, False))
        hosts = [most[i][0] for i in sources if not most[i][1]]
        if place is C:
            number = max([number if compiled else number + 1, *[n + 1 for n in hosts], 1])
            compiled = True
        elif place is H:
            compiled = False
        else:
            compiled = any(most[i] == (number, True) for i in sources) and number not in hosts
        most.append((number, compiled))
    return max((number for number, _ in most), default=0)
