"""Who holds which partitions: every one on enough nodes, in proportion to workers, with little moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hoptree.backends.placement import place, quotas, share

clusters = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 4), min_size=1)


@given(partitions=st.integers(1, 24), workers=clusters, replicas=st.integers(1, 4))
def test_every_partition_is_on_enough_nodes_and_nobody_holds_more_than_its_share(
    partitions: int, workers: dict[str, int], replicas: int
) -> None:
    found = place(partitions, workers, replicas)
    room = quotas(partitions, workers, replicas)
    for partition in range(partitions):
        assert sum(partition in held for held in found.values()) >= min(replicas, len(workers))
    for node, held in found.items():
        assert len(set(held)) == len(held) >= 1
        assert len(held) <= max(room[node], 1) + 1
    assert place(partitions, workers, replicas) == found


@given(partitions=st.integers(1, 24), workers=clusters, replicas=st.integers(1, 3))
def test_quotas_are_in_proportion_to_workers(partitions: int, workers: dict[str, int], replicas: int) -> None:
    room = quotas(partitions, workers, replicas)
    total = sum(workers.values())
    for node, count in workers.items():
        fair = partitions * replicas * count / total
        assert 1 <= room[node] <= partitions
        if 1 <= fair <= partitions and all(
            1 <= partitions * replicas * other / total <= partitions for other in workers.values()
        ):
            assert abs(room[node] - fair) <= len(workers)


@given(partitions=st.integers(2, 24), workers=clusters, replicas=st.integers(1, 3), data=st.data())
def test_other_nodes_keep_their_partitions_when_a_node_leaves(
    partitions: int, workers: dict[str, int], replicas: int, data: st.DataObject
) -> None:
    before = place(partitions, workers, replicas)
    gone = data.draw(st.sampled_from(sorted(workers)))
    rest = {node: count for node, count in workers.items() if node != gone}
    if not rest:
        return
    held = {node: frozenset(before[node]) for node in rest}
    after = place(partitions, rest, replicas, held)
    assert {partition for found in after.values() for partition in found} == set(range(partitions))
    moved = sum(len(set(after[node]) - held[node]) for node in rest)
    assert moved <= len(before[gone]) + len(rest) * replicas


def test_nothing_moves_while_nothing_changes() -> None:
    workers = {"a": 1, "b": 2, "c": 1}
    before = place(8, workers, 2)
    assert place(8, workers, 2, {node: frozenset(held) for node, held in before.items()}) == before


@given(workers=st.none() | st.integers(1, 40), room=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 8)))
def test_workers_are_spread_over_the_room_there_is(workers: int | None, room: dict[str, int]) -> None:
    found = share(workers, room)
    assert all(found[node] <= room[node] for node in room)
    total = sum(room.values())
    assert sum(found.values()) == (total if workers is None else min(workers, total))
