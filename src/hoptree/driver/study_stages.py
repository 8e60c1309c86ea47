"""The stages of a study as jobs for the planner of nodes: before a run, and what is left during it.

Stages are those of the plan after merging prefixes: units that several trials share count once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

import msgspec

from hoptree.core.lineage import History, Values, segments
from hoptree.core.plan import Plan
from hoptree.core.trial import Trial
from hoptree.elastic.job import Job, JobStage
from hoptree.search.outlook import KnowsStages, Outlook, split_brackets
from hoptree.search.played_stages import Grant, PlaysTrials, play
from hoptree.search.rungs import Rung

if TYPE_CHECKING:
    from hoptree.core.study_state import StudyState
    from hoptree.driver.study_group import StudyGroup
    from hoptree.record.spec import StudySpec

_EXAMPLES = 3  # plays with different made-up reports, over which the seconds of later stages are averaged
_LEAST = 1e-9  # seconds of a stage of which nothing has to be trained

SearchPlace: TypeAlias = tuple[str, int]
"""The study of a search, and its index there."""


def _nothing(_values: Values) -> float:
    return 0.0


class TrainingTimes(msgspec.Struct, frozen=True):
    """Seconds of a unit and of an evaluation on one device, by values, and of a hop.

    ``noise`` is the standard deviation of a unit's time, relative to the time.
    """

    unit: Callable[[Values], float]
    evaluation: Callable[[Values], float] = _nothing
    hop: float = 0.0
    noise: float = 0.0


class JobTerms(msgspec.Struct, frozen=True):
    """What a ``Job`` says besides its stages."""

    speed_ups: dict[int, float] = msgspec.field(default_factory=lambda: {1: 1.0})
    divisible: bool = True
    sync: float = 0.0
    data_gb: float = 0.0


class _StageWork(NamedTuple):
    """What is trained in a stage: lineages side by side, distinct units and evaluations by values."""

    lineages: int
    units: Mapping[Values, float]
    evaluations: Mapping[Values, float]

    @property
    def size(self) -> float:
        return sum(self.units.values())

    def stage(self, times: TrainingTimes, *, scale: float = 1.0, spread: float = 0.0) -> JobStage:
        """Return the stage for the planner; ``spread`` is that of the trials, relative to their time."""
        seconds = sum(count * (times.unit(values) + times.hop) for values, count in self.units.items())
        seconds += sum(count * times.evaluation(values) for values, count in self.evaluations.items())
        trials = max(1, self.lineages)
        each = max(_LEAST, scale * seconds / trials)
        units = max(1.0, scale * self.size / trials)
        return JobStage(trials, each, each * math.hypot(spread, times.noise / math.sqrt(units)))


class _Bracket(NamedTuple):
    """Trials of a search that are compared with each other: from number ``first`` on."""

    first: int
    rungs: Sequence[Rung]

    def rung(self, epochs: int) -> int:
        """Return the index of the rung to which a trial with so many epochs trains."""
        return next((index for index, rung in enumerate(self.rungs) if epochs <= rung.epochs), len(self.rungs) - 1)


class _PlannedJob(NamedTuple):
    """A job as it was played: its brackets, which run one after the other, or none; and the work of its stages."""

    place: SearchPlace
    brackets: Sequence[_Bracket]
    stages: Sequence[_StageWork]
    spreads: Sequence[float]


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
        self.simulated = any(g.wave and _place(g.study, g.asked_by) in unknown for g in first)
        plays = [first]
        if any(grant.wave for grant in first):  # which trials continue depends on reports
            plays += [play(make_tuner(), metrics, salt) for salt in range(1, _EXAMPLES)]
        self._jobs = _average([_Played(grants, partitions, outlooks).jobs for grants in plays])

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
        return [self._job(stages) for stages in [*found, []]]

    def remaining(self, state: StudyState, times: TrainingTimes) -> tuple[int, list[Job]]:
        """Return how many stages have ended, and the jobs with what is left, in the same order as ``jobs``."""
        members: dict[int, list[Trial]] = {index: [] for index in range(len(self._jobs) + 1)}
        for trial in state.trials.values():
            members[self._index(trial)].append(trial)
        ended, jobs = 0, []
        for index, job in enumerate(self._jobs):
            left = _Remaining(state, job, members[index], times)
            closed, stages = left.by_rungs() if job.brackets else left.by_units()
            ended += closed
            jobs.append(self._job(stages))
        others = _open_work(state.plan, members[len(self._jobs)])
        jobs.append(self._job([others.stage(times)] if others.lineages else []))
        return ended, jobs

    def _job(self, stages: Sequence[JobStage]) -> Job:
        terms = self._terms
        return Job(tuple(stages), dict(terms.speed_ups), terms.divisible, terms.sync, terms.data_gb)

    def _index(self, trial: Trial) -> int:
        """Return the index of a trial's job; the last one if it was requested by a user."""
        if trial.asked_by is not None:
            place, number = (trial.study, trial.asked_by[0]), trial.asked_by[1]
            for index in reversed(range(len(self._jobs))):
                job = self._jobs[index]
                if job.place == place and (not job.brackets or number >= job.brackets[0].first):
                    return index
        return len(self._jobs)


# --- before a run -------------------------------------------------------------------------------------------


def _outlook(procedure: object) -> Outlook | None:
    return procedure.stages() if isinstance(procedure, KnowsStages) else None


@final
class _Played:
    """One play of the searches, cut into jobs and stages."""

    def __init__(
        self, grants: Sequence[Grant], partitions: int, outlooks: Mapping[SearchPlace, Outlook | None]
    ) -> None:
        self._plan = Plan(partitions)
        self._partitions = partitions
        self._reach: dict[int, int] = {}  # by node, the units that are trained in an earlier stage
        self._evaluated: set[tuple[int, int]] = set()
        self.jobs = [
            job
            for place, outlook in outlooks.items()
            for job in self._search(
                place, outlook, [grant for grant in grants if _place(grant.study, grant.asked_by) == place]
            )
        ]

    def _search(
        self, place: SearchPlace, outlook: Outlook | None, grants: Sequence[Grant]
    ) -> Iterable[_PlannedJob]:
        if outlook is None:
            yield self._by_waves(place, grants)
            return
        first = 0
        for rungs in outlook:
            brackets: list[_Bracket] = []
            for bracket in split_brackets(rungs):
                brackets.append(_Bracket(first, bracket))
                first += bracket[0].trials
            mine = [g for g in grants if g.asked_by and brackets[0].first <= g.asked_by[1] < first]
            stages: list[_StageWork] = []
            spreads: list[float] = []
            for position, each in enumerate(brackets):
                end = brackets[position + 1].first if position + 1 < len(brackets) else first
                own = [g for g in mine if g.asked_by and each.first <= g.asked_by[1] < end]
                for rung in range(len(each.rungs)):
                    work, spread = self._work([grant for grant in own if each.rung(grant.until) == rung])
                    stages.append(work)
                    spreads.append(spread)
            yield _PlannedJob(place, brackets, stages, spreads)

    def _by_waves(self, place: SearchPlace, grants: Sequence[Grant]) -> _PlannedJob:
        """Return stages by wave; waves of equally many lineages are one stage."""
        stages: list[_StageWork] = []
        spreads: list[float] = []
        for wave in sorted({grant.wave for grant in grants}):
            work, spread = self._work([grant for grant in grants if grant.wave == wave])
            if stages and stages[-1].lineages == work.lineages:
                last = stages[-1]
                units, evaluations = Counter(last.units), Counter(last.evaluations)
                units.update(work.units)
                evaluations.update(work.evaluations)
                stages[-1] = _StageWork(work.lineages, units, evaluations)
            elif work.lineages:
                stages.append(work)
                spreads.append(spread)
        return _PlannedJob(place, (), stages, spreads)

    def _work(self, grants: Sequence[Grant]) -> tuple[_StageWork, float]:
        """Return the work of some grants that is not done before, and the relative spread among them."""
        units: Counter[Values] = Counter()
        evaluations: Counter[Values] = Counter()
        tips: set[tuple[int, int]] = set()
        sizes: list[float] = []
        for grant in grants:
            tree = f"{grant.study}/{grant.trial}" if grant.alone else ""
            root = self._plan.root("", tree)
            ends = grant.until * self._partitions
            path = self._plan.path(grant.history, root, ends)
            starts = [*(node.start for node in path[1:]), ends]
            for node, end in zip(path, starts, strict=True):
                reach = self._reach.get(node.id, node.start)
                if end > reach:
                    units[node.values] += end - reach
                    self._reach[node.id] = end
                    tips.add((path[-1].id, ends))
            for node, unit in self._plan.places(grant.history, root, sorted(grant.reports)):
                if (node.id, unit) not in self._evaluated:
                    self._evaluated.add((node.id, unit))
                    evaluations[node.values] += 1
            sizes.append(float(grant.until - grant.begin))
        return _StageWork(len(tips), dict(units), dict(evaluations)), _relative_spread(sizes)


def _place(study: str, asked_by: tuple[int, int] | None) -> SearchPlace | None:
    return None if asked_by is None else (study, asked_by[0])


def _relative_spread(sizes: Sequence[float]) -> float:
    mean = sum(sizes) / len(sizes) if sizes else 0.0
    return math.sqrt(sum((size - mean) ** 2 for size in sizes) / len(sizes)) / mean if mean else 0.0


def _average(plays: Sequence[Sequence[_PlannedJob]]) -> list[_PlannedJob]:
    """Return the first play, with the work of stages averaged over all plays that have the same stages."""
    found: list[_PlannedJob] = []
    for index, job in enumerate(plays[0]):
        shape = [work.lineages for work in job.stages]
        same = [each[index] for each in plays if [work.lineages for work in each[index].stages] == shape]
        stages = [
            _StageWork(
                work.lineages,
                _mean([each.stages[place].units for each in same]),
                _mean([each.stages[place].evaluations for each in same]),
            )
            for place, work in enumerate(job.stages)
        ]
        found.append(job._replace(stages=stages))
    return found


def _mean(counts: Sequence[Mapping[Values, float]]) -> dict[Values, float]:
    total: Counter[Values] = Counter()
    for each in counts:
        total.update(each)  # type: ignore[arg-type]  # counts may be fractions
    return {values: count / len(counts) for values, count in total.items()}


# --- during a run -------------------------------------------------------------------------------------------


@final
class _Remaining:
    """What is left of one job."""

    def __init__(self, state: StudyState, job: _PlannedJob, members: Sequence[Trial], times: TrainingTimes) -> None:
        self._state = state
        self._job = job
        self._members = members
        self._times = times

    def by_rungs(self) -> tuple[int, list[JobStage]]:
        """Return how many rungs have closed, and the stages that are left."""
        closed, stages, first = 0, list[JobStage](), 0
        for position, bracket in enumerate(self._job.brackets):
            rows = slice(first, first + len(bracket.rungs))
            works, spreads = self._job.stages[rows], self._job.spreads[rows]
            first += len(bracket.rungs)
            end = self._job.brackets[position + 1].first if position + 1 < len(self._job.brackets) else math.inf
            members = [t for t in self._members if t.asked_by and bracket.first <= t.asked_by[1] < end]
            live = [trial for trial in members if trial.ending is None]
            rung = max(
                (bracket.rung(trial.until) for trial in members if trial.ending in (None, "complete")), default=-1
            )
            if members and not live:  # the trials of a rung that has just closed are continued next
                rung = len(bracket.rungs) if rung < 0 else rung + 1
            rung = max(rung, 0)
            closed += rung
            if rung == len(bracket.rungs):
                continue
            if live:
                now = _open_work(self._state.plan, live)
                stages.append(now.stage(self._times, spread=_spread_left(self._state.plan, live)))
            scale = self._scale(works[rung], live, bracket.rungs, rung)
            for later in range(rung + bool(live), len(bracket.rungs)):
                work = works[later]._replace(
                    lineages=min(works[later].lineages, len(members) or works[later].lineages)
                )
                stages.append(work.stage(self._times, scale=scale, spread=spreads[later]))
        return closed, stages

    def _scale(self, work: _StageWork, live: Sequence[Trial], rungs: Sequence[Rung], rung: int) -> float:
        """Return how much longer the trials that are left take for a unit than those of the play."""
        played = work.size and sum(n * self._times.unit(values) for values, n in work.units.items()) / work.size
        if not live or not played:
            return 1.0
        begin = rungs[rung - 1].epochs if rung else 0
        partitions = self._state.settings.partitions
        mean = sum(
            _mean_seconds(trial.history, partitions, begin, rungs[rung].epochs, self._times.unit) for trial in live
        ) / len(live)
        return mean / played

    def by_units(self) -> tuple[int, list[JobStage]]:
        """Return how many played stages are trained by now, by number of units, and the stages that are left."""
        works, plan = self._job.stages, self._state.plan
        live = [trial for trial in self._members if trial.ending is None]
        now = _open_work(plan, live)
        if not self._members:
            return 0, [work.stage(self._times) for work in works]
        done = plan.work(self._members, done=True).unique
        index, before = 0, 0.0
        while index < len(works) - 1 and before + works[index].size <= done:
            before += works[index].size
            index += 1
        if not live:
            return len(works), []
        later = works[index + 1 :]
        size = sum(work.size for work in later)
        left = max(0.0, sum(work.size for work in works) - done - now.size)
        stages = [now.stage(self._times, spread=_spread_left(plan, live))]
        if size and left:
            stages += [work.stage(self._times, scale=left / size) for work in later]
        return index, stages


def _mean_seconds(phases: History, partitions: int, begin: int, end: int, unit: Callable[[Values], float]) -> float:
    """Return the mean seconds of a trial's units from one epoch to another."""
    first, last = begin * partitions, end * partitions
    parts = segments(phases, partitions, last)
    ends = [*(part.start for part in parts[1:]), last]
    total = sum(
        max(0, stop - max(first, part.start)) * unit(part.values) for part, stop in zip(parts, ends, strict=True)
    )
    return total / max(1, last - first)


def _open_work(plan: Plan, live: Iterable[Trial]) -> _StageWork:
    """Return what has to be trained for trials: units that no stored state covers, each once."""
    units: Counter[Values] = Counter()
    evaluations: Counter[Values] = Counter()
    places = {place for trial in live for place in trial.open.values()}
    for stage in plan.stages(places):
        units[plan.nodes[stage.node].values] += stage.last - stage.first
    for node, _ in places:
        evaluations[node.values] += 1
    tips = {max(trial.open.values(), key=lambda place: place.unit) for trial in live if trial.open}
    return _StageWork(len(tips), dict(units), dict(evaluations))


def _spread_left(plan: Plan, live: Sequence[Trial]) -> float:
    """Return how much the units that trials have left differ, relative to their mean."""
    left: list[float] = []
    for trial in live:
        if trial.open:
            node, unit = max(trial.open.values(), key=lambda place: place.unit)
            source = plan.source(node, unit)
            left.append(float(unit - (source.unit if source is not None else 0)))
    return _relative_spread(left)
