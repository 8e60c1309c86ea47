"""A snapshot of a trial for mirrors, taken from the record of its study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, final

import msgspec

from hoptree.core.events import Metrics
from hoptree.core.plan import Trial
from hoptree.core.schedules import Config
from hoptree.record.record import Record
from hoptree.report.study_timeline import StudyTimeline

Standing: TypeAlias = Literal["running", "complete", "stopped", "failed"]


@final
class TrialSnapshot(msgspec.Struct, frozen=True):
    """The state of a trial at some time, under its number in the study.

    ``begun`` and ``ended`` are Unix times from the journal; None in a live mirror.
    """

    number: int
    config: Config
    state: Standing
    curve: dict[int, Metrics]
    error: str = ""
    begun: float | None = None
    ended: float | None = None

    @classmethod
    def take(cls, number: int, trial: Trial) -> TrialSnapshot:
        """Return the current snapshot of a trial."""
        config = dict(trial.history[-1].config)
        return cls(number, config, trial.ending or "running", dict(trial.curve), trial.reason)

    @property
    def metrics(self) -> Metrics:
        """The metrics of the last report."""
        return self.curve[max(self.curve)] if self.curve else {}


def shown_trials(record: Record, study: str) -> list[TrialSnapshot]:
    """Return the current snapshots of all trials of a study."""
    own = [trial for trial in record.trials if trial.study == study]
    return [TrialSnapshot.take(number, trial) for number, trial in enumerate(own)]


def timed(trials: Sequence[TrialSnapshot], history: StudyTimeline) -> list[TrialSnapshot]:
    """Return trials with their start and end times."""
    at = {trial_timeline.number: trial_timeline for trial_timeline in history.trials}
    return [
        msgspec.structs.replace(
            trial,
            begun=history.created + trial_timeline.begun,
            ended=None if trial_timeline.ended is None else history.created + trial_timeline.ended,
        )
        if (trial_timeline := at.get(trial.number)) is not None
        else trial
        for trial in trials
    ]
