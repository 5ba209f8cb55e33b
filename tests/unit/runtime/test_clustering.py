"""hostcall_runtime._clustering: which nodes are compiled together."""

import itertools
import random
from collections.abc import Sequence

import pytest

from hostcall_runtime._clustering import Place, assign, sink

H, C, E = Place.HOST, Place.COMPILED, Place.EITHER


def clusters(
    places: list[Place], before: list[list[int]], groups: Sequence[list[int]] = ()
) -> list[int]:
    steps = assign(places, before, groups)
    return sink(places, before, steps, list(itertools.chain(*groups)))


def chain(count: int) -> list[list[int]]:
    return [[i - 1] if i else [] for i in range(count)]


def in_clusters(steps: list[int]) -> list[set[int]]:
    """The nodes of each cluster, in the order in which the clusters run."""
    used = sorted({step for step in steps if step % 2 == 0})
    return [{i for i, step in enumerate(steps) if step == at} for at in used]


def test_a_function_without_host_ops_is_one_cluster() -> None:
    assert in_clusters(clusters([C, C, C], [[], [0], []])) == [{0, 1, 2}]


def test_each_boundary_adds_a_cluster() -> None:
    assert in_clusters(clusters([C, H, C, H, C], chain(5))) == [{0}, {2}, {4}]


def test_host_ops_behind_each_other_are_one_boundary() -> None:
    assert in_clusters(clusters([C, H, H, H, C], chain(5))) == [{0}, {4}]


def test_independent_chains_share_their_clusters() -> None:
    places = [C, H, C, C, H, C]
    assert in_clusters(clusters(places, [[], [0], [1], [], [3], [4]])) == [{0, 3}, {2, 5}]


def test_a_chain_that_begins_on_the_host_shares_too() -> None:
    """host, compiled, host, compiled beside compiled, host, compiled."""
    places = [H, C, H, C, C, H, C]
    before = [[], [0], [1], [2], [], [4], [5]]
    assert in_clusters(clusters(places, before)) == [{1, 4}, {3, 6}]


def test_identities_follow_what_they_wait_for() -> None:
    places = [C, E, H, E, C]
    assert in_clusters(clusters(places, chain(5))) == [{0, 1}, {4}]


def test_a_value_that_is_used_late_is_made_late() -> None:
    """Node 3 depends on nothing, and only the last cluster uses it; node 4 on the first cluster."""
    places = [C, H, C, C, C]
    before = [[], [0], [1, 3, 4], [], [0]]
    order = [0, 3, 4, 1, 2]
    at = {old: new for new, old in enumerate(order)}
    steps = clusters([places[i] for i in order], [sorted(at[j] for j in before[i]) for i in order])
    assert in_clusters(steps) == [{at[0], at[4]}, {at[2], at[3]}]


def test_a_group_waits_for_its_last_member() -> None:
    """Nodes 0 and 3 pass a value that cannot leave a program; 3 needs the host's result."""
    places = [C, C, H, C, C]
    steps = clusters(places, [[], [], [1], [0, 2], [3]], groups=[[0, 3]])
    assert in_clusters(steps) == [{1}, {0, 3, 4}]


def test_a_group_around_a_host_node_is_on_the_host() -> None:
    places = [C, H, C]
    assert in_clusters(clusters(places, [[], [0], [0, 1]], groups=[[0, 2]])) == []


@pytest.mark.parametrize("seed", range(300))
def test_random_graphs(seed: int) -> None:
    """Every node runs after what it waits for, and there are no more clusters than needed."""
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
            assert steps[source] <= steps[i]
        if places[i] is H:
            assert steps[i] % 2 == 1
        if places[i] is C and not groups:
            assert steps[i] % 2 == 0
    for group in groups:
        inside = {steps[i] for i in group if steps[i] % 2 == 0}
        assert len(inside) <= 1
        assert not inside or all(steps[i] % 2 == 0 for i in group)
    if not groups:
        assert len(in_clusters(steps)) == _most_changes(places, before)


def _most_changes(places: list[Place], before: list[list[int]]) -> int:
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
