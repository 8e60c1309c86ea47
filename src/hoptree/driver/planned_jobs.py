"""The jobs of a study before it runs: what searches grant in a play, cut into brackets and stages."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, final

from hoptree.core.lineage import Values
from hoptree.core.plan import Plan
from hoptree.driver.stage_work import StageWork, relative_spread
from hoptree.search.outlook import Outlook, split_brackets
from hoptree.search.played_stages import Grant
from hoptree.search.rungs import Rung

SearchPlace: TypeAlias = tuple[str, int]
"""The study of a search, and its index there."""


class PlannedBracket(NamedTuple):
    """Trials of a search that are compared with each other: from number ``first`` on."""

    first: int
    rungs: Sequence[Rung]

    def rung(self, epochs: int) -> int:
        """Return the index of the rung to which a trial with so many epochs trains."""
        return next((index for index, rung in enumerate(self.rungs) if epochs <= rung.epochs), len(self.rungs) - 1)


class PlannedJob(NamedTuple):
    """A job as it was played: its brackets, which run one after the other, or none; and the work of its stages."""

    place: SearchPlace
    brackets: Sequence[PlannedBracket]
    stages: Sequence[StageWork]
    spreads: Sequence[float]


@final
class PlayedJobs:
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
                place, outlook, [grant for grant in grants if search_place(grant.study, grant.asked_by) == place]
            )
        ]

    def _search(self, place: SearchPlace, outlook: Outlook | None, grants: Sequence[Grant]) -> Iterable[PlannedJob]:
        if outlook is None:
            yield self._by_waves(place, grants)
            return
        first = 0
        for rungs in outlook:
            brackets: list[PlannedBracket] = []
            for bracket in split_brackets(rungs):
                brackets.append(PlannedBracket(first, bracket))
                first += bracket[0].trials
            mine = [g for g in grants if g.asked_by and brackets[0].first <= g.asked_by[1] < first]
            stages: list[StageWork] = []
            spreads: list[float] = []
            for position, each in enumerate(brackets):
                end = brackets[position + 1].first if position + 1 < len(brackets) else first
                own = [g for g in mine if g.asked_by and each.first <= g.asked_by[1] < end]
                for rung in range(len(each.rungs)):
                    work, spread = self._work([grant for grant in own if each.rung(grant.until) == rung])
                    stages.append(work)
                    spreads.append(spread)
            yield PlannedJob(place, brackets, stages, spreads)

    def _by_waves(self, place: SearchPlace, grants: Sequence[Grant]) -> PlannedJob:
        """Return stages by wave; waves of equally many lineages are one stage."""
        stages: list[StageWork] = []
        spreads: list[float] = []
        for wave in sorted({grant.wave for grant in grants}):
            work, spread = self._work([grant for grant in grants if grant.wave == wave])
            if stages and stages[-1].lineages == work.lineages:
                last = stages[-1]
                units, evaluations = Counter(last.units), Counter(last.evaluations)
                units.update(work.units)
                evaluations.update(work.evaluations)
                stages[-1] = StageWork(work.lineages, units, evaluations)
            elif work.lineages:
                stages.append(work)
                spreads.append(spread)
        return PlannedJob(place, (), stages, spreads)

    def _work(self, grants: Sequence[Grant]) -> tuple[StageWork, float]:
        """Return the work of some grants that is not done before, and the relative spread among them."""
        units: Counter[Values] = Counter()
        evaluations: Counter[Values] = Counter()
        tips: set[tuple[int, int]] = set()
        sizes: list[float] = []
        for grant in grants:
            tree = f"{grant.study}/{grant.trial}" if grant.alone else ""
            root = self._plan.root("", tree)
            end = grant.until * self._partitions
            path = self._plan.path(grant.history, root, end)
            starts = [node.start for node in path]
            for node, stop in zip(path, [*starts[1:], end], strict=True):
                reach = self._reach.get(node.id, node.start)
                if stop > reach:
                    units[node.values] += stop - reach
                    self._reach[node.id] = stop
                    tips.add((path[-1].id, end))
            for epoch in grant.reports:
                unit = epoch * self._partitions
                node = path[bisect_right(starts, unit - 1) - 1]
                if (node.id, unit) not in self._evaluated:
                    self._evaluated.add((node.id, unit))
                    evaluations[node.values] += 1
            sizes.append(float(grant.until - grant.begin))
        return StageWork(len(tips), dict(units), dict(evaluations)), relative_spread(sizes)


def search_place(study: str, asked_by: tuple[int, int] | None) -> SearchPlace | None:
    """Return the place of the search that requested a trial; None if it is unknown."""
    return None if asked_by is None else (study, asked_by[0])


def average_jobs(plays: Sequence[Sequence[PlannedJob]]) -> list[PlannedJob]:
    """Return the first play, with the work of stages averaged over all plays that have the same stages."""
    found: list[PlannedJob] = []
    for index, job in enumerate(plays[0]):
        shape = [work.lineages for work in job.stages]
        same = [each[index] for each in plays if [work.lineages for work in each[index].stages] == shape]
        stages = [
            StageWork(
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
        total.update(each)
    return {values: count / len(counts) for values, count in total.items()}
