"""The nodes of a study over time, as plain records for plots."""

from __future__ import annotations

import msgspec


class NodesOverTime(msgspec.Struct, frozen=True):
    """How many nodes there were when, and what had been paid by then, beside the first plan.

    ``nodes`` and ``planned`` are steps: a time, and the number of nodes from then on. ``paid`` are points in
    dollars. ``planned_cost`` and ``planned_seconds`` are expected, with their least and most; the plan begins at
    ``begun``.
    """

    nodes: tuple[tuple[float, int], ...]
    paid: tuple[tuple[float, float], ...]
    planned: tuple[tuple[float, int], ...] = ()
    begun: float = 0.0
    planned_cost: tuple[float, float, float] = (0.0, 0.0, 0.0)
    planned_seconds: tuple[float, float, float] = (0.0, 0.0, 0.0)
    stages: tuple[float, ...] = ()  # when each stage began

    @property
    def most(self) -> int:
        """The most nodes at one time."""
        return max((count for _, count in self.nodes), default=0)

    @property
    def money(self) -> float:
        """What was paid in the end."""
        return self.paid[-1][1] if self.paid else 0.0
