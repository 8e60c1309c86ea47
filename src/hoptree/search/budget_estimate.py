"""Budget estimates: how many epochs a procedure will have granted to its trials when it ends."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, runtime_checkable

from hoptree.core.errors import WorkloadError


class BudgetEstimate(NamedTuple):
    """Total epochs that a search grants over all its trials: from ``least`` to ``most`` in nine of ten runs."""

    least: float
    expected: float
    most: float


def exactly(epochs: int) -> BudgetEstimate:
    """Return the estimate for a search whose total does not depend on the losses."""
    return BudgetEstimate(float(epochs), float(epochs), float(epochs))


AT_ONCE: Final = BudgetEstimate(0.0, 0.0, 0.0)  # everything is requested at the start, nothing later


@runtime_checkable
class EstimatesBudget(Protocol):
    """A procedure that can estimate its total epochs, for the time left and the percentage of a run."""

    def budget_estimate(self) -> BudgetEstimate | None:
        """Return the epochs that its trials will have been granted at the end; None if nobody can tell."""
        ...


@runtime_checkable
class IsEndless(Protocol):
    """A procedure that may go on until the time limit of a run is over."""

    @property
    def endless(self) -> bool:
        """Whether only a time limit ends it."""
        ...


def check_has_end(procedures: object, what: str) -> None:
    """Raise an error if a procedure would never end; ``what`` cannot do without an end."""
    several = procedures if isinstance(procedures, list | tuple) else [procedures]
    for each in several:
        if isinstance(each, IsEndless) and each.endless:
            raise WorkloadError(f"search: {each!r} goes on until a time limit; {what}")


def total_budget_estimate(procedures: object) -> BudgetEstimate | None:
    """Return the sum of the estimates of one procedure or several; None if one of them has no estimate.

    >>> from hoptree.search.successive_halving import SuccessiveHalving
    >>> total_budget_estimate([SuccessiveHalving(9, max_epochs=9)])
    BudgetEstimate(least=21.0, expected=21.0, most=21.0)
    """
    several = procedures if isinstance(procedures, list | tuple) else [procedures]
    found = [each.budget_estimate() if isinstance(each, EstimatesBudget) else None for each in several]
    known = [estimate for estimate in found if estimate is not None]
    if len(known) < len(found):
        return None
    return BudgetEstimate(*(sum(part) for part in zip(*known, strict=True)))
