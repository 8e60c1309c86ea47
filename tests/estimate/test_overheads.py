"""The overhead of a unit is what a worker needs besides training."""

from __future__ import annotations

from hoptree.core.events import DriverStarted, Event, StateEvaluated, UnitFinished
from hoptree.core.steps import Step
from hoptree.estimate.overheads import Overheads
from tests.estimate.test_estimator import unit


def step(event: Event, now: float) -> Step:
    return Step(event, now, False, [], unit({"width": 8}))


def test_it_is_the_median_gap_between_the_ends_of_what_a_worker_did() -> None:
    overheads = Overheads()
    assert overheads.unit is None
    assert overheads.evaluation is None
    now = 0.0
    for gap in [5.0, 0.25, 0.25, 9.0, 0.25]:  # the first is unknown; a worker that waited does not count
        now += gap + 1.0
        overheads.watch(step(UnitFinished(0, "a", 1.0), now))
        overheads.watch(step(UnitFinished(0, "b", 1.0), now))
    assert overheads.unit == 0.25
    overheads.watch(step(StateEvaluated(0, "a", {"loss": 1.0}, 0.5), now + 0.625))
    assert (overheads.unit, overheads.evaluation) == (0.25, 0.125)


def test_a_session_begins_anew_and_unknown_times_do_not_count() -> None:
    overheads = Overheads()
    overheads.watch(step(UnitFinished(0, "a", 1.0), 1.0))
    overheads.watch(Step(DriverStarted(), 100.0, False, []))
    overheads.watch(step(UnitFinished(0, "a", 1.0), 102.0))
    overheads.watch(step(UnitFinished(0, "a", 0.0), 110.0))
    assert overheads.unit is None
    overheads.watch(step(UnitFinished(0, "a", 1.0), 110.5))  # an event that came late
    assert overheads.unit == 0.0
