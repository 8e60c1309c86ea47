"""Which node holds which partitions: in proportion to its workers, each on so many nodes, moving little.

Pure: what is held and who is there comes in, who is to hold what comes out. The same input gives the same output.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from hoptree.core.errors import WorkloadError


def quotas(partitions: int, workers: Mapping[str, int], replicas: int = 1) -> dict[str, int]:
    """Return how many partitions each node is to hold: in proportion to its workers, at least one, at most all.

    >>> quotas(8, {"a": 1, "b": 3})
    {'a': 2, 'b': 6}
    """
    nodes = [node for node, count in workers.items() if count > 0]
    total = sum(workers[node] for node in nodes)
    exact = {node: partitions * replicas * workers[node] / total for node in nodes}
    found = {node: min(partitions, max(1, int(exact[node]))) for node in nodes}
    left = partitions * min(replicas, len(nodes)) - sum(found.values())
    while left > 0:
        behind = max((node for node in nodes if found[node] < partitions), key=lambda n: exact[n] - found[n])
        found[behind] += 1
        left -= 1
    return found


def place(
    partitions: int, workers: Mapping[str, int], replicas: int = 1, held: Mapping[str, Set[int]] | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the partitions that each node is to hold; what is ``held`` already stays where a node may hold it.

    >>> place(4, {"a": 1, "b": 3})
    {'a': (3,), 'b': (0, 1, 2)}
    """
    nodes = [node for node, count in workers.items() if count > 0]
    if not nodes:
        raise WorkloadError("workers: no node has room for one")
    copies = min(replicas, len(nodes))
    room = quotas(partitions, workers, replicas)
    found: dict[str, set[int]] = {node: set() for node in nodes}
    known = {node: (held or {}).get(node, frozenset()) for node in nodes}

    def give(node: str, partition: int) -> None:
        found[node].add(partition)
        room[node] -= 1

    def roomiest(candidates: list[str]) -> str:
        return max(candidates, key=lambda node: room[node])  # the first of equal ones

    for partition in range(partitions):
        for _ in range(copies):
            holders = [n for n in nodes if partition in known[n] and partition not in found[n] and room[n] > 0]
            if holders:
                give(roomiest(holders), partition)
    for partition in range(partitions):
        while sum(partition in found[node] for node in nodes) < copies:
            fit = [node for node in nodes if partition not in found[node]]
            # A model goes from a partition to the next: where one node has both, nothing crosses the network.
            # Replicas are better dealt out in turn: nodes that hold the same are lost together.
            next_door = [node for node in fit if room[node] > 0 and partition - 1 in found[node]]
            give(roomiest(next_door if copies == 1 and next_door else fit), partition)
    for node in nodes:
        while room[node] > 0 and len(found[node]) < partitions:
            spread = [sum(p in found[n] for n in nodes) for p in range(partitions)]
            fresh = [p for p in range(partitions) if p not in found[node]]
            give(node, min(fresh, key=lambda p: (spread[p], p not in known[node], p)))
    return {node: tuple(sorted(found[node])) for node in nodes}


def share(workers: int | None, room: Mapping[str, int]) -> dict[str, int]:
    """Return how many workers each node gets: all that it has room for, or so many in all, spread evenly.

    >>> share(3, {"a": 1, "b": 4})
    {'a': 1, 'b': 2}
    """
    if workers is None:
        return dict(room)
    found = dict.fromkeys(room, 0)
    for _ in range(min(workers, sum(room.values()))):
        free = [node for node in room if found[node] < room[node]]
        found[min(free, key=lambda node: found[node] / room[node])] += 1
    return found


def pack(workers: int, room: Mapping[str, int], here: Mapping[str, int]) -> dict[str, int]:
    """Return how many workers each node gets when nodes are to be given back: those with most workers fill first.

    >>> pack(3, {"a": 2, "b": 2, "c": 2}, {"b": 2, "c": 1})
    {'b': 2, 'c': 1, 'a': 0}
    """
    found: dict[str, int] = {}
    for node in sorted(room, key=lambda node: -here.get(node, 0)):
        found[node] = min(room[node], workers - sum(found.values()))
    return found
