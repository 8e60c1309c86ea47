"""What a session asks for before workers start, and the times by which it plans again."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import pytest

import hoptree as ht
from hoptree.core.events import AllocationPlanned, NodesRequested
from hoptree.core.lineage import Values, history, segments
from hoptree.core.settings import Settings
from hoptree.core.study_state import StudyState
from hoptree.driver.elastic_settings import ElasticSettings
from hoptree.driver.fixed_nodes import FixedNodes
from hoptree.driver.followed_plan import FollowedPlan
from hoptree.driver.stage_work import TrainingTimes
from hoptree.driver.study_stages import StudyStages
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.planner import Planner
from hoptree.estimate import Estimator
from hoptree.search.protocol import Goal
from hoptree.search.tuner import Tuner

INSTANCE = ht.Instance("large", devices=2, price=36.0, minimum=0.0, provision=10.0, start=2.0)
SPACE = {"lr": ht.uniform(0.1, 1.0)}
SEARCH = ht.SuccessiveHalving(16, 16, factor=4)


class Nodes:
    """A backend that notes how many nodes are requested."""

    def __init__(self) -> None:
        self.scaled: list[int] = []

    def scale(self, nodes: int, release: Sequence[str] = ()) -> None:
        self.scaled.append(nodes)

    def start(self) -> None: ...

    def submit(self, action: object) -> None: ...

    def wait(self, seconds: float | None = None) -> tuple[float, list[Any]]:
        return 0.0, []

    def stop(self, *, failed: bool) -> None: ...


def stages() -> StudyStages:
    def tuner() -> Tuner:
        return Tuner(SEARCH.search(SPACE, Goal("loss", maximize=False), 0))

    return StudyStages({("", 0): SEARCH}, tuner, ["loss"], partitions=2)


def settings(**given: Any) -> ElasticSettings:
    times = TrainingTimes(lambda _: 4.0, lambda _: 1.0)
    return ElasticSettings(instance=INSTANCE, stages=stages(), times=times, **given)


def followed(chosen: ElasticSettings, now: float = 0.0, clock: float = 0.0) -> FollowedPlan:
    return FollowedPlan(chosen, StudyState(Settings(2)), Estimator(), now, lambda: clock)


def planned(events: Sequence[object]) -> AllocationPlan:
    [found] = [event for event in events if isinstance(event, AllocationPlanned)]
    return AllocationPlan.read(found.plan)


def values(**config: float) -> Values:
    return segments(history(dict(config)), partitions=1, units=1)[0].values


def test_the_deadline_counts_from_the_call_of_the_run() -> None:
    backend = Nodes()
    plan = followed(settings(deadline=600.0, asked=1000.0), now=50.0, clock=1007.0)
    events, run = plan.connect(backend)
    assert run is not None
    assert planned(events).deadline == pytest.approx(593.0)
    requested = [event.count for event in events if isinstance(event, NodesRequested)]
    assert backend.scaled == requested
    assert requested[0] >= 1


def test_the_first_plan_holds_the_doubt_about_units() -> None:
    sure, unsure = (
        planned(followed(settings(deadline=600.0, doubt=doubt)).connect(Nodes())[0]) for doubt in (0.0, 0.2)
    )
    assert unsure.cost.expected == sure.cost.expected
    assert unsure.cost.most > sure.cost.most
    assert unsure.cost.least < sure.cost.least


def test_a_deadline_that_has_become_too_tight_is_missed_by_as_little_as_possible(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="hoptree"):
        events, run = followed(settings(deadline=30.0, asked=0.0), clock=29.0).connect(Nodes())
    assert run is not None
    assert "cannot be met any more" in caplog.text
    jobs = [job for job in stages().jobs(TrainingTimes(lambda _: 4.0, lambda _: 1.0)) if job.stages]
    earliest = Planner(jobs, INSTANCE).front()[0].seconds.expected
    assert planned(events).seconds.expected == pytest.approx(earliest, rel=0.02)


def test_fixed_nodes_are_only_recorded() -> None:
    figures = planned(followed(settings(deadline=600.0)).connect(Nodes())[0])
    backend = Nodes()
    plan = followed(ElasticSettings(instance=INSTANCE, fixed=figures))
    events, run = plan.connect(backend)
    assert run is None
    assert backend.scaled == []
    assert planned(events) == figures
    assert isinstance(plan.wrap(backend), FixedNodes)
    assert followed(settings(deadline=600.0)).wrap(backend) is backend


def test_without_anything_to_plan_there_is_one_node_for_lost_states() -> None:
    backend = Nodes()
    events, run = followed(ElasticSettings(instance=INSTANCE)).connect(backend)
    assert (backend.scaled, run, events) == ([1], None, [NodesRequested(1)])


def test_times_of_the_run_replace_those_known_before_where_it_has_measured() -> None:
    estimator = Estimator()
    chosen = settings(deadline=600.0, overhead=0.5)
    plan = FollowedPlan(chosen, StudyState(Settings(2)), estimator, 0.0, lambda: 0.0)
    assert plan.times().unit(values(width=8.0)) == 4.0
    assert plan.times().evaluation(values(width=8.0)) == 1.0
    for _ in range(20):
        estimator.units.add(values(width=8.0), "w", 2.0)
        estimator.evaluations.add(values(width=8.0), "w", 0.25)
    times = plan.times()
    assert times.unit(values(width=8.0)) == pytest.approx(2.5, rel=0.01)
    assert times.unit(values(width=80.0)) == 4.0
    assert times.evaluation(values(width=8.0)) == pytest.approx(0.25, rel=0.01)
    assert math.isfinite(times.noise)
