"""The stages of a study as jobs for the planner of nodes: before a run, and what is left during it.

Stages are those of the plan after merging prefixes: units that several trials share count once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, final

import msgspec

from hoptree.core.trial import Trial
from hoptree.driver.planned_jobs import PlayedJobs, SearchPlace, average_jobs, search_place
from hoptree.driver.remaining_stages import KnownUnits, RemainingStages, open_work
from hoptree.driver.stage_work import StageWork, TrainingTimes
from hoptree.elastic.job import Job, JobStage
from hoptree.search.outlook import KnowsStages, Outlook
from hoptree.search.played_stages import PlaysTrials, play

if TYPE_CHECKING:
    from hoptree.core.study_state import StudyState
    from hoptree.driver.study_group import StudyGroup
    from hoptree.record.spec import StudySpec

__all__ = ["JobTerms", "StudyStages", "TrainingTimes"]

_EXAMPLES = 3  # plays with different made-up reports, over which the seconds of later stages are averaged


class JobTerms(msgspec.Struct, frozen=True):
    """What a ``Job`` says besides its stages."""

    speed_ups: dict[int, float] = msgspec.field(default_factory=lambda: {1: 1.0})
    divisible: bool = True
    sync: float = 0.0
    data_gb: float = 0.0


@final
class StudyStages:
    """Says which jobs a study consists of, and what is left of them.

    ``searches`` are the procedures of the study by place; ``make_tuner`` returns their searches in their initial
    state, which are played with made-up values of ``metrics``. ``simulated`` says whether stages come from that
    alone, because a search decides by results and does not know its stages.
    """

    def __init__(
        self,
        searches: Mapping[SearchPlace, object],
        make_tuner: Callable[[], PlaysTrials],
        metrics: Sequence[str],
        partitions: int,
        terms: JobTerms = JobTerms(),  # noqa: B008 frozen
    ) -> None:
        self._partitions = partitions
        self._terms = terms
        outlooks = {place: _outlook(procedure) for place, procedure in searches.items()}
        first = play(make_tuner(), metrics, 0)
        unknown = {place for place, outlook in outlooks.items() if outlook is None}
        self.simulated = any(g.wave and search_place(g.study, g.asked_by) in unknown for g in first)
        plays = [first]
        if any(grant.wave for grant in first):  # which trials continue depends on reports
            plays += [play(make_tuner(), metrics, salt) for salt in range(1, _EXAMPLES)]
        self._known: KnownUnits = {}
        self._jobs = average_jobs([PlayedJobs(grants, partitions, outlooks).jobs for grants in plays])

    @classmethod
    def of_group(cls, group: StudyGroup, spec: StudySpec, terms: JobTerms = JobTerms()) -> StudyStages:  # noqa: B008
        """Return the stages of the studies that one driver runs together."""
        searches = {
            (study.name, place): procedure
            for study in group.studies
            for place, procedure in enumerate(
                study.search if isinstance(study.search, list | tuple) else [study.search]
            )
        }
        metrics = list(dict.fromkeys(goal.metric for goal in group.goals.values()))
        return cls(searches, lambda: group.tuners(spec), metrics, spec.settings.partitions, terms)

    def jobs(self, times: TrainingTimes) -> list[Job]:
        """Return the jobs of the whole study; the last one, for requests of users, has no stages."""
        found = [
            [work.stage(times, spread=spread) for work, spread in zip(job.stages, job.spreads, strict=True)]
            for job in self._jobs
        ]
        return [self._job(stages, works, times) for stages, works in zip([*found, []], self._works(), strict=True)]

    def remaining(self, state: StudyState, times: TrainingTimes) -> tuple[int, list[Job]]:
        """Return how many stages have ended, and the jobs with what is left, in the same order as ``jobs``."""
        members: dict[int, list[Trial]] = {index: [] for index in range(len(self._jobs) + 1)}
        for trial in state.trials.values():
            members[self._index(trial)].append(trial)
        ended, jobs = 0, []
        for index, job in enumerate(self._jobs):
            left = RemainingStages(state, job, members[index], times, self._known)
            closed, stages = left.by_rungs() if job.brackets else left.by_units()
            ended += closed
            jobs.append(self._job(stages, job.stages, times))
        others = open_work(state.plan, members[len(self._jobs)])
        stages = [others.stage(times)] if others.lineages else []
        jobs.append(self._job(stages, [others], times))
        return ended, jobs

    def _works(self) -> list[Sequence[StageWork]]:
        return [*(job.stages for job in self._jobs), ()]

    def _job(self, stages: Sequence[JobStage], works: Sequence[StageWork], times: TrainingTimes) -> Job:
        terms = self._terms
        size = sum(work.size for work in works)
        unit = sum(work.seconds(times.unit) for work in works) / size + times.hop if size else 0.0
        return Job(
            tuple(stages),
            dict(terms.speed_ups),
            terms.divisible,
            terms.sync,
            terms.data_gb,
            unit=unit,
            unit_spread=unit * times.noise,
        )

    def _index(self, trial: Trial) -> int:
        """Return the index of a trial's job; the last one if it was requested by a user."""
        if trial.asked_by is not None:
            place, number = (trial.study, trial.asked_by[0]), trial.asked_by[1]
            for index in reversed(range(len(self._jobs))):
                job = self._jobs[index]
                if job.place == place and (not job.brackets or number >= job.brackets[0].first):
                    return index
        return len(self._jobs)


def _outlook(procedure: object) -> Outlook | None:
    return procedure.stages() if isinstance(procedure, KnowsStages) else None
