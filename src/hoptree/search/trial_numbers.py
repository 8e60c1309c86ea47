"""Trial numbers: assigned once when a trial is requested, and the same in journal, requests and results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from hoptree.core.events import Asker
from hoptree.core.plan import Trial


@final
class TrialNumbers:
    """Numbers the trials of the studies in an engine; the n-th trial of a study has number n.

    In a group of m studies the engine number of trial n of the k-th study is n * m + k, so numbers never collide.
    """

    def __init__(self, studies: Sequence[str] = ("",)) -> None:
        self._indices = {study: index for index, study in enumerate(studies)}
        self._counts = dict.fromkeys(studies, 0)
        self._numbers: dict[tuple[str, Asker], int] = {}
        self._askers: dict[int, tuple[str, Asker]] = {}

    def recall(self, trials: Iterable[Trial]) -> None:
        """Load the numbers of a journal's trials: whoever requests one of them again gets the same number."""
        for trial in trials:
            if trial.study not in self._indices:
                continue
            count = self.within_study(trial.number) + 1
            self._counts[trial.study] = max(self._counts[trial.study], count)
            if trial.asked_by is not None:
                self._numbers[trial.study, trial.asked_by] = trial.number
                self._askers[trial.number] = trial.study, trial.asked_by

    def number(self, study: str, asker: Asker) -> int:
        """Return the engine number of a trial: its existing one, or the next of its study."""
        known = self._numbers.get((study, asker))
        if known is None:
            known = self._counts[study] * len(self._indices) + self._indices[study]
            self._counts[study] += 1
            self._numbers[study, asker] = known
            self._askers[known] = study, asker
        return known

    def asker(self, number: int) -> tuple[str, Asker] | None:
        """Return the study and the requester of a trial; None if it was not requested here."""
        return self._askers.get(number)

    def within_study(self, number: int) -> int:
        """Return the number of a trial within its study."""
        return number // len(self._indices)
