"""Which node holds which partitions: in proportion to its workers, with replicas, moving as little as possible.

Pure functions of the nodes, their workers and the partitions that they hold now.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from hoptree.core.errors import WorkloadError


def quotas(partitions: int, workers: Mapping[str, int], replicas: int = 1) -> dict[str, int]:
    """Return how many partitions each node should hold: in proportion to its workers, at least one, at most all.

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
    """Return the partitions that each node should hold; those ``held`` already stay where quotas allow it.

    >>> place(4, {"a": 1, "b": 3})
    {'a': (3,), 'b': (0, 1, 2)}
    """
    nodes = [node for node, count in workers.items() if count > 0]
    if not nodes:
        raise WorkloadError("workers: no node has room for one; expected at least one node with workers")
    copies = min(replicas, len(nodes))
    room = quotas(partitions, workers, replicas)
    found: dict[str, set[int]] = {node: set() for node in nodes}
    known = {node: (held or {}).get(node, frozenset()) for node in nodes}

    def give(node: str, partition: int) -> None:
        found[node].add(partition)
        room[node] -= 1

    def roomiest(candidates: list[str]) -> str:
        return max(candidates, key=lambda node: room[node])  # the first of several equal ones

    for partition in range(partitions):
        for _ in range(copies):
            holders = [n for n in nodes if partition in known[n] and partition not in found[n] and room[n] > 0]
            if holders:
                give(roomiest(holders), partition)
    for partition in range(partitions):
        while sum(partition in found[node] for node in nodes) < copies:
            fit = [node for node in nodes if partition not in found[node]]
            # A model moves from one partition to the next: if one node has both, nothing crosses the network.
            # Replicas are better spread in turn: nodes that hold the same partitions may be lost together.
            adjacent = [node for node in fit if room[node] > 0 and partition - 1 in found[node]]
            give(roomiest(adjacent if copies == 1 and adjacent else fit), partition)
    for node in nodes:
        while room[node] > 0 and len(found[node]) < partitions:
            spread = [sum(p in found[n] for n in nodes) for p in range(partitions)]
            missing = [p for p in range(partitions) if p not in found[node]]
            give(node, min(missing, key=lambda p: (spread[p], p not in known[node], p)))
    return {node: tuple(sorted(found[node])) for node in nodes}


def share(workers: int | None, room: Mapping[str, int]) -> dict[str, int]:
    """Return how many workers each node gets: as many as fit, or ``workers`` in total, spread evenly.

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


def pack(workers: int, room: Mapping[str, int], current: Mapping[str, int]) -> dict[str, int]:
    """Return how many workers each node gets if some nodes are released: nodes with most workers fill first.

    >>> pack(3, {"a": 2, "b": 2, "c": 2}, {"b": 2, "c": 1})
    {'b': 2, 'c': 1, 'a': 0}
    """
    found: dict[str, int] = {}
    for node in sorted(room, key=lambda node: -current.get(node, 0)):
        found[node] = min(room[node], workers - sum(found.values()))
    return found
