"""The numbers of trials: given once, when a trial is asked for, and the same in journal, requests and results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from hoptree.core.events import Asker
from hoptree.core.plan import Trial


@final
class TrialNumbers:
    """Numbers the trials of the studies that an engine runs; the n-th trial of a study is number n.

    In a group of m studies the engine knows trial n of the k-th study as n * m + k, so that no two meet.
    """

    def __init__(self, studies: Sequence[str] = ("",)) -> None:
        self._places = {study: place for place, study in enumerate(studies)}
        self._counts = dict.fromkeys(studies, 0)
        self._numbers: dict[tuple[str, Asker], int] = {}
        self._askers: dict[int, tuple[str, Asker]] = {}

    def recall(self, trials: Iterable[Trial]) -> None:
        """Take in the trials of a journal: who asks for one of them again is told its number."""
        for trial in trials:
            if trial.study not in self._places:
                continue
            count = self.shown(trial.number) + 1
            self._counts[trial.study] = max(self._counts[trial.study], count)
            if trial.asked_by is not None:
                self._numbers[trial.study, trial.asked_by] = trial.number
                self._askers[trial.number] = trial.study, trial.asked_by

    def number(self, study: str, asker: Asker) -> int:
        """Return the number of a trial in the engine: the one that it has, or the next of its study."""
        known = self._numbers.get((study, asker))
        if known is None:
            known = self._counts[study] * len(self._places) + self._places[study]
            self._counts[study] += 1
            self._numbers[study, asker] = known
            self._askers[known] = study, asker
        return known

    def asker(self, number: int) -> tuple[str, Asker] | None:
        """Return who asked for a trial, with the study; None if nobody here did."""
        return self._askers.get(number)

    def shown(self, number: int) -> int:
        """Return the number under which its study shows a trial."""
        return number // len(self._places)
