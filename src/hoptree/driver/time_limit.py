"""The time limit of a run: when it is over, the run ends as on a stop request, and can be resumed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import final

from hoptree.backends.event_loop import TrialAsker
from hoptree.core.actions import EndTrial, Report
from hoptree.core.events import USER, Event, TrialAsked, TrialBranched, TrialExtended, TrialStopped
from hoptree.core.lineage import Values, history, segments
from hoptree.report.tables import duration

log = logging.getLogger("hoptree")


@final
class TimeLimit:
    """An event source without events; the time counts from its construction. None: there is no limit.

    New trials that could not report before the end are held back: they are no part of the journal, so the search
    requests them again when the study is resumed. Which decisions a search makes never depends on the clock.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._end = float("inf") if seconds is None else clock() + seconds
        self._stop: Callable[[], None] = lambda: None
        self.is_over = False
        self.held: set[int] = set()  # new trials that were not started for lack of time

    @property
    def left(self) -> float:
        """The seconds that are left; infinite without a limit."""
        return self._end - self._clock()

    def call(self, stop: Callable[[], None]) -> None:
        """Set what is called once when the time is over."""
        self._stop = stop

    def pause(self) -> float:
        """Return the seconds until the time is over."""
        return float("inf") if self.is_over else max(0.0, self.left)

    def poll(self) -> Sequence[Event]:
        """Stop the run if the time is over."""
        if not self.is_over and self.left <= 0:
            self.is_over = True
            assert self._seconds is not None
            log.warning(
                "stopping when the running units are done: the time limit of %s is over", duration(self._seconds)
            )
            self._stop()
        return ()

    def holding_back(self, tuner: TrialAsker, seconds: Callable[[TrialAsked], float]) -> TrialAsker:
        """Wrap a tuner so that it requests no new trial whose first report takes more ``seconds`` than are left."""
        return tuner if self._seconds is None else _TunerWithLimit(tuner, self, seconds)


@final
class _TunerWithLimit:
    def __init__(self, tuner: TrialAsker, limit: TimeLimit, seconds: Callable[[TrialAsked], float]) -> None:
        self._tuner = tuner
        self._limit = limit
        self._seconds = seconds

    def start(self) -> Sequence[Event]:
        return self._tuner.start()

    def tell(self, news: Report | EndTrial) -> Sequence[Event]:
        return [event for event in self._tuner.tell(news) if not self._holds(event)]

    def _holds(self, event: Event) -> bool:
        held = self._limit.held
        match event:
            case TrialAsked(number, asked_by=by) if by is not None and by[0] != USER:
                # Once one is held back, all later ones are: trials are numbered in the order of their requests.
                if held or self._seconds(event) > self._limit.left:
                    held.add(number)
                    return True
                return False
            case TrialBranched(number, source) if source in held:
                held.add(number)
                return True
            case TrialExtended(number) | TrialStopped(number):
                return number in held
            case _:
                return False


def first_report_seconds(
    event: TrialAsked, partitions: int, unit: Callable[[Values], float], evaluation: Callable[[Values], float]
) -> float:
    """Return the time of a new trial's training until its first report, if it trains alone on one worker."""
    values = segments(history(dict(event.config)), partitions=1, units=1)[0].values
    epochs = min(event.every or event.until, event.until)
    return epochs * partitions * unit(values) + evaluation(values)
