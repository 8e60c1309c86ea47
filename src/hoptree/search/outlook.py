"""Outlooks: the stages that a search has, known before anything was trained.

A search that compares its trials at rungs says its stages (``KnowsStages``). Of any other search, one run with
made-up reports is an example (``played_stages.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from hoptree.search.rungs import Bracket, Rung

Outlook: TypeAlias = list[list[Rung]]
"""The rungs of each bracket; brackets run side by side, those in one list one after the other."""


@runtime_checkable
class KnowsStages(Protocol):
    """A procedure that knows its stages before anything was trained."""

    def stages(self) -> Outlook:
        """Return the trials that train to each rung, one list for each bracket.

        A rung at fewer epochs than the one before begins with new trials.
        """
        ...


def side_by_side(brackets: Sequence[Bracket]) -> Outlook:
    """Return the outlook of brackets that run at the same time."""
    return [list(rungs) for rungs in brackets]


def one_after_the_other(brackets: Sequence[Bracket]) -> Outlook:
    """Return the outlook of brackets of which each begins when the one before has ended.

    >>> one_after_the_other([(Rung(3, 1), Rung(1, 3)), (Rung(1, 3),)])
    [[Rung(trials=3, epochs=1), Rung(trials=1, epochs=3), Rung(trials=1, epochs=3)]]
    """
    return [[rung for rungs in brackets for rung in rungs]]


def split_brackets(rungs: Sequence[Rung]) -> list[list[Rung]]:
    """Return the brackets that run one after the other: each begins where the epochs do not grow.

    >>> split_brackets([Rung(3, 1), Rung(1, 3), Rung(1, 3)])
    [[Rung(trials=3, epochs=1), Rung(trials=1, epochs=3)], [Rung(trials=1, epochs=3)]]
    """
    found: list[list[Rung]] = []
    for rung in rungs:
        if not found or rung.epochs <= found[-1][-1].epochs:
            found.append([])
        found[-1].append(rung)
    return found
