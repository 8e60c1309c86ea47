"""The outlook of a procedure: how many epochs its trials will have been granted when it is through."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, runtime_checkable


class BudgetEstimate(NamedTuple):
    """Epochs that a search grants in all, over all its trials; nine of ten times it is from least to most."""

    least: float
    expected: float
    most: float


def exactly(epochs: int) -> BudgetEstimate:
    """Return the outlook of a search whose epochs do not depend on what comes out."""
    return BudgetEstimate(float(epochs), float(epochs), float(epochs))


AT_ONCE: Final = BudgetEstimate(0.0, 0.0, 0.0)  # all is asked for at the start: nothing comes later


@runtime_checkable
class EstimatesBudget(Protocol):
    """A procedure that can say what it will ask for: the time left and the percent of a run come from it."""

    def outlook(self) -> BudgetEstimate:
        """Return the epochs that its trials will have been granted in the end."""
        ...


def outlook_of(procedures: object) -> BudgetEstimate | None:
    """Return what procedures, or a single one, ask for together; None where one of them cannot say.

    >>> from hoptree.search.successive_halving import SuccessiveHalving
    >>> outlook_of([SuccessiveHalving(9, max_epochs=9)])
    Outlook(least=21.0, expected=21.0, most=21.0)
    """
    several = procedures if isinstance(procedures, list | tuple) else [procedures]
    found = [each.outlook() for each in several if isinstance(each, EstimatesBudget)]
    if len(found) < len(several):
        return None
    return BudgetEstimate(*(sum(part) for part in zip(*found, strict=True)))
