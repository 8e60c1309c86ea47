"""Errors of planning: what was asked for cannot be had with these nodes."""

from __future__ import annotations

from hoptree.core.errors import RefusedError


class DeadlineError(RefusedError):
    """No plan meets the deadline; ``earliest`` can be met, at ``cost``."""

    def __init__(self, message: str, *, earliest: float, cost: float) -> None:
        super().__init__(message)
        self.earliest = earliest
        self.cost = cost


class BudgetError(RefusedError):
    """No plan keeps to the budget; ``least`` is what the cheapest costs."""

    def __init__(self, message: str, *, least: float) -> None:
        super().__init__(message)
        self.least = least
