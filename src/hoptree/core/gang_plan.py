"""A solved joint schedule as the first plan of the dry runs: which config visits which node when, and how wide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from hoptree.core.dry_run import PlannedStart
from hoptree.core.gang_tasks import GangProblem


class PlannedVisit(NamedTuple):
    """A config is trained on all partitions of a node, with so many of its devices."""

    start: float
    config: str  # the key of the node in which its lineages begin
    machine: int  # in the order in which machines have joined
    width: int


GangPlan: TypeAlias = tuple[PlannedVisit, ...]


def planned_starts(
    plan: GangPlan,
    problem: GangProblem,
    task_of: Mapping[str, int],
    machine_of: Callable[[int], int],
) -> Iterator[PlannedStart]:
    """Yield the starts of a plan, repeated in every epoch; ``machine_of`` returns the machine of a pool."""
    stages = max((len(task.stages) for task in problem.tasks), default=0)
    for epoch in range(stages):
        for visit in sorted(plan):
            task = problem.tasks[task_of[visit.config]]
            if epoch >= len(task.stages):
                continue
            for kind, count in task.stages[epoch]:
                if _machines(problem, kind, machine_of) == [visit.machine]:
                    yield from [PlannedStart(task.key, kind, _power(visit.width, task.speeds))] * count


def _machines(problem: GangProblem, kind: int, machine_of: Callable[[int], int]) -> Sequence[int]:
    return list(dict.fromkeys(machine_of(site[0]) for site in problem.kinds[kind]))


def _power(width: int, speeds: Mapping[int, float]) -> int:
    """Return the widest gang that pays and is not wider than planned."""
    return max(known for known in speeds if known == 1 or known <= width)
