"""Budget estimates: how many epochs a procedure will have granted to its trials when it ends."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, runtime_checkable


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

    def budget_estimate(self) -> BudgetEstimate:
        """Return the epochs that its trials will have been granted at the end."""
        ...


def total_budget_estimate(procedures: object) -> BudgetEstimate | None:
    """Return the sum of the estimates of one procedure or several; None if one of them has no estimate.

    >>> from hoptree.search.successive_halving import SuccessiveHalving
    >>> total_budget_estimate([SuccessiveHalving(9, max_epochs=9)])
    BudgetEstimate(least=21.0, expected=21.0, most=21.0)
    """
    several = procedures if isinstance(procedures, list | tuple) else [procedures]
    found = [each.budget_estimate() for each in several if isinstance(each, EstimatesBudget)]
    if len(found) < len(several):
        return None
    return BudgetEstimate(*(sum(part) for part in zip(*found, strict=True)))
