"""What a run needs to follow a plan of nodes, and the checks of what a user says about money and time."""

from __future__ import annotations

import math
from typing import final

import msgspec

from hoptree.core.errors import WorkloadError
from hoptree.driver.study_stages import StudyStages, TrainingTimes
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.instance import Instance


@final
class ElasticSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of nodes, what the study consists of, and for what it is planned: a deadline or a budget.

    ``times`` are those known before the run; ``asked`` is when it was called, by a monotonic clock. On ``fixed``
    nodes nothing is planned again. Without ``stages`` nothing is left to plan for. ``doubt`` is the spread of the
    log of the time of units: the ranges of the first plan hold it. ``overhead`` are seconds of a worker for
    each unit besides training.
    """

    instance: Instance
    deadline: float | None = None
    budget: float | None = None
    asked: float = 0.0
    stages: StudyStages | None = None
    times: TrainingTimes | None = None
    fixed: AllocationPlan | None = None
    doubt: float = 0.0
    overhead: float = 0.0


def check_instance(given: object) -> Instance:
    """Return an instance type; raise an error for anything else."""
    if isinstance(given, Instance):
        return given
    raise WorkloadError(
        f"instance: {given!r}; expected the terms of a node, such as ht.Instance('p3.8xlarge', devices=4, "
        "price=12.24)"
    )


def check_budget(given: object) -> float:
    """Return a budget in dollars; raise an error for anything else."""
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not (isinstance(given, int | float) and 0 < given < math.inf):
        raise WorkloadError(f"budget: {given!r}; expected dollars, more than 0")
    return float(given)
