"""How long it will still take: the least, the expected and the most, in seconds."""

from __future__ import annotations

import statistics
from typing import NamedTuple, Protocol, final

from hoptree.progress.tally import Tally

_FEWEST = 4  # units from which anything can be told
_DOUBT = 0.05  # what is left of a range when units take the same time again and again


class TimeLeft(NamedTuple):
    """Seconds until nothing that has been asked for is left."""

    least: float
    expected: float
    most: float


class Remaining(Protocol):
    """Who knows how long it will take; None while nobody can say."""

    def remaining(self) -> TimeLeft | None:
        """Return the time that is left from now."""
        ...


@final
class MeasuredPace:
    """Tells the time left from how long units have taken, and from what has been asked for.

    The time is that of all open units over all workers, or that of the trial with the longest way to go if that
    takes longer. The range follows from the spread of the units' times; what a search may still ask for is not
    in it.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def remaining(self) -> TimeLeft | None:
        """Return the time that is left, if some units have been measured."""
        tally = self._tally
        paces, workers = tally.paces, len(tally.workers)
        if len(paces) < _FEWEST or not workers or tally.cost <= 0:
            return None
        engine = tally.engine
        pace = statistics.fmean(paces)
        cost = tally.cost / max(1, tally.units)
        longest = max((each.trial.until - each.trial.reached for each in tally.live.values()), default=0)
        way = max(engine.demand.backlog / workers, longest * engine.settings.partitions * cost)
        expected = max(0.0, way) * pace
        spread = statistics.pstdev(paces) / pace if pace > 0 else 0.0
        doubt = min(0.9, 2 * spread / len(paces) ** 0.5 + _DOUBT)
        return TimeLeft(expected * (1 - doubt), expected, expected * (1 + doubt))
