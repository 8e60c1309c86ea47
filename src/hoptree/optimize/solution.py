"""The result of a scheduler."""

import msgspec


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """A feasible schedule of one epoch, and how good it is.

    `bound` is a lower bound on every makespan, so `makespan / bound` is an upper bound on the ratio to the optimum.
    `proven`: the makespan meets the bound, within 1e-9 of it (milp: 1e-6, the tolerance of HiGHS).
    """

    makespan: float
    bound: float
    proven: bool
    starts: tuple[tuple[float, ...], ...]
    """By config and worker, as in `times`."""
    method: str
    seconds: float
    """The time it took to find the schedule."""
