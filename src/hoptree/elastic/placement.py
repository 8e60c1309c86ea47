"""Placement of trials on nodes: keep what fits, largest gangs first, best fit, and whole nodes to give back.

This is the placement controller of RubberBand (algorithm 3), as a pure function of the devices that each trial is
to have, the nodes, and the placement so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import TypeAlias, final

from hoptree.core.errors import WorkloadError

Placement: TypeAlias = dict[str, dict[str, int]]
"""The devices of each node that a trial has, by trial and node."""


def place_trials(
    devices: Mapping[str, int], nodes: Mapping[str, int], last: Mapping[str, Mapping[str, int]] | None = None
) -> Placement:
    """Return a placement of trials, each with as many ``devices`` as given, on ``nodes`` of so many devices.

    Trials stay where they were in the ``last`` placement if that still suits them. The others are placed from the
    largest to the smallest, each on the node that it fills best; if none has room, smaller trials that have not
    been placed in this call make room and are placed again. A trial that fits one node is never divided among
    several. What fits nowhere is left out, and waits.

    >>> place_trials({"a": 2, "b": 1}, {"x": 4, "y": 4}, {"b": {"y": 1}})
    {'b': {'y': 1}, 'a': {'y': 2}}
    """
    for what, counts in (("devices", devices), ("nodes", nodes)):
        wrong = next(((name, count) for name, count in counts.items() if count < 1), None)
        if wrong is not None:
            raise WorkloadError(f"{what}[{wrong[0]!r}]: {wrong[1]}; expected at least one device")
    return _Controller(devices, nodes, last or {}).place()


def nodes_to_release(
    count: int, devices: Mapping[str, int], nodes: Mapping[str, int], last: Mapping[str, Mapping[str, int]]
) -> tuple[str, ...]:
    """Return ``count`` nodes to give back: those from which the fewest devices in use have to move.

    Trials that are to have other ``devices`` than they have move in any case.

    >>> nodes_to_release(1, {"a": 2, "b": 1}, {"x": 2, "y": 2}, {"a": {"x": 2}, "b": {"y": 1}})
    ('y',)
    """
    if not 0 <= count <= len(nodes):
        raise WorkloadError(f"count: {count} of {len(nodes)} nodes; expected 0 to {len(nodes)}")
    used: Counter[str] = Counter()
    for trial, parts in _suitable(devices, nodes, last).items():
        # A trial on several nodes moves as a whole if it loses one of them.
        used.update(dict.fromkeys(parts, devices[trial]))
    order = list(nodes)
    return tuple(sorted(order, key=lambda node: (used[node], -order.index(node)))[:count])


def _suitable(
    devices: Mapping[str, int], nodes: Mapping[str, int], last: Mapping[str, Mapping[str, int]]
) -> Placement:
    """Return the part of the last placement that can stay."""
    free = dict(nodes)
    found: Placement = {}
    for trial, parts in last.items():
        wanted = devices.get(trial)
        if wanted is None or sum(parts.values()) != wanted:
            continue
        if any(count > free.get(node, 0) for node, count in parts.items()):
            continue
        if len(parts) > 1 and wanted <= max(nodes[node] for node in parts):
            continue  # it would fit one node
        found[trial] = dict(parts)
        for node, count in parts.items():
            free[node] -= count
    return found


@final
class _Controller:
    """One run of the algorithm."""

    def __init__(
        self, devices: Mapping[str, int], nodes: Mapping[str, int], last: Mapping[str, Mapping[str, int]]
    ) -> None:
        self._devices, self._nodes = devices, nodes
        self._placement = _suitable(devices, nodes, last)
        self._free = dict(nodes)
        for parts in self._placement.values():
            self._take(parts)
        self._fixed: set[str] = set()  # placed in this run

    def place(self) -> Placement:
        waiting = [trial for trial in self._devices if trial not in self._placement]
        while waiting:
            waiting.sort(key=lambda trial: -self._devices[trial])
            trial = waiting.pop(0)
            waiting += self._place(trial)
        return self._placement

    def _place(self, trial: str) -> list[str]:
        """Place a trial if that is possible, and return the trials that were displaced."""
        left = self._devices[trial]
        largest = max(self._nodes.values(), default=0)
        parts: dict[str, int] = {}
        displaced: list[str] = []
        while left:
            part = min(left, largest)
            node = self._best_fit(part, parts)
            if node is None:
                node = self._make_room(trial, part, displaced, parts)
            if node is None:
                # Room that was made stays free: the displaced trials are placed after this one.
                self._give(parts)
                return displaced
            parts[node] = part
            self._free[node] -= part
            left -= part
        self._placement[trial] = parts
        self._fixed.add(trial)
        return displaced

    def _best_fit(self, part: int, without: Collection[str]) -> str | None:
        """Return the node that has the least free devices of those that have enough."""
        fit = [node for node, free in self._free.items() if free >= part and node not in without]
        return min(fit, key=lambda node: self._free[node], default=None)

    def _make_room(self, trial: str, part: int, displaced: list[str], without: Collection[str]) -> str | None:
        """Displace smaller trials from the node on which the fewest devices have to move; None: there is none."""
        found: list[tuple[int, str, list[str]]] = []
        for node in self._nodes:
            if node in without:
                continue
            smaller = [
                other
                for other, parts in self._placement.items()
                if node in parts and other not in self._fixed and self._devices[other] < self._devices[trial]
            ]
            smaller.sort(key=lambda other: self._devices[other])
            free, moved = self._free[node], list[str]()
            while free < part and smaller:
                moved.append(smaller.pop())
                free += self._placement[moved[-1]][node]
            if free >= part:
                found.append((sum(self._devices[other] for other in moved), node, moved))
        if not found:
            return None
        _, node, moved = min(found, key=lambda each: each[0])
        for other in moved:
            self._give(self._placement.pop(other))
        displaced += moved
        return node

    def _take(self, parts: Mapping[str, int]) -> None:
        for node, count in parts.items():
            self._free[node] -= count

    def _give(self, parts: Mapping[str, int]) -> None:
        for node, count in parts.items():
            self._free[node] += count
