"""Gangs: several workers train a unit together when no other lineage needs them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import Action, CancelUnit, RunUnit
from hoptree.core.allotment import Allotment
from hoptree.core.engine import Engine
from hoptree.core.events import (
    Event,
    StateEvaluated,
    TrialAsked,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.invariants import InvariantChecker
from hoptree.core.lineage import Values, config_items, history, segments
from hoptree.core.nodes import Node
from hoptree.core.profile import Profile, ProfileEntry
from hoptree.core.settings import Settings
from tests.histories import History


class Driven:
    """An engine whose steps are checked, with some workers that hold all partitions."""

    def __init__(
        self, workers: int, trials: int, widest: int = 8, epochs: int = 3, profile: Profile | None = None
    ) -> None:
        self.engine = Engine(Settings(partitions=2), allotment=Allotment(widest, profile or Profile()))
        self.checker = InvariantChecker(self.engine)
        self.runs: list[RunUnit] = []
        for number in range(trials):
            self.step(TrialAsked(number, config_items({"lr": 0.1 * (number + 1)}), epochs), more=True)
        for number in range(workers):
            self.step(WorkerJoined(f"w{number}", (0, 1)), more=number + 1 < workers)

    def step(self, event: Event, *, more: bool = False) -> list[Action]:
        actions = self.engine.step(event, 0.0, more=more)
        self.checker.see(self.engine.state.note(event, 0.0, more, actions))
        self.runs += [action for action in actions if isinstance(action, RunUnit)]
        return actions

    def finish(self, run: RunUnit, seconds: float = 1.0) -> list[RunUnit]:
        """Let a unit end, and its evaluation; return the units that begin."""
        before = len(self.runs)
        self.step(UnitFinished(run.run, run.worker, seconds), more=run.evaluate)
        if run.evaluate:
            self.step(StateEvaluated(run.run, run.worker, {"loss": 1.0}))
        return self.runs[before:]


def widths(runs: list[RunUnit]) -> list[int]:
    return [1 + len(run.crew) for run in runs]


def test_a_lineage_alone_gets_more_workers_as_long_as_that_pays() -> None:
    driven = Driven(workers=4, trials=1)
    (alone,) = driven.runs
    (two,) = driven.finish(alone, 8.0)
    (again,) = driven.finish(two, 9.0)  # they had to connect first
    (four,) = driven.finish(again, 4.5)
    (four_again,) = driven.finish(four, 4.4)
    (settled,) = driven.finish(four_again, 4.4)  # four are not worth it
    assert widths([alone, two, again, four, four_again, settled]) == [1, 2, 2, 4, 4, 2]
    assert (alone.layout, two.layout) == ("single", "data")
    assert two.crew == ("w1",)


def test_ready_lineages_come_before_gangs() -> None:
    driven = Driven(workers=4, trials=4)
    assert widths(driven.runs) == [1, 1, 1, 1]
    driven = Driven(workers=4, trials=2)
    first, second = driven.runs
    (again,) = driven.finish(first)
    assert widths([again]) == [2]
    (again,) = driven.finish(second)
    assert widths([again]) == [2]


def test_no_unit_is_given_ahead_while_workers_are_idle() -> None:
    driven = Driven(workers=2, trials=1)
    assert len(driven.runs) == 1


@pytest.mark.parametrize("lost", ["w0", "w1"])
def test_a_unit_is_trained_again_if_one_of_its_workers_is_lost(lost: str) -> None:
    driven = Driven(workers=2, trials=1)
    (two,) = driven.finish(driven.runs[0])
    assert (two.worker, two.crew) == ("w0", ("w1",))
    actions = driven.step(WorkerLost(lost))
    left = "w1" if lost == "w0" else "w0"
    assert CancelUnit(two.run, left, silent=True) in actions
    again = driven.runs[-1]
    assert (again.worker, again.crew, again.unit) == (left, (), two.unit)
    driven.step(UnitFailed(two.run, two.worker, "a late message", "system"))


def test_a_worker_that_is_to_leave_ends_its_gang_and_joins_no_other() -> None:
    driven = Driven(workers=2, trials=1)
    (two,) = driven.finish(driven.runs[0])
    driven.step(WorkerDrained("w1"))
    (after,) = driven.finish(two, 0.5)
    assert widths([two, after]) == [2, 1]


@pytest.mark.parametrize("event", [UnitFailed, UnitCancelled])
def test_all_workers_are_free_when_a_gangs_run_ends_without_a_result(event: type) -> None:
    driven = Driven(workers=2, trials=1)
    (two,) = driven.finish(driven.runs[0])
    ended = UnitFailed(two.run, "w0", "it broke", "user") if event is UnitFailed else UnitCancelled(two.run, "w0")
    driven.step(ended)
    assert widths([driven.runs[-1]]) == [2]
    assert driven.runs[-1].unit == two.unit


def test_workers_of_different_machines_form_no_gang() -> None:
    driven = Driven(workers=1, trials=1)
    driven.step(WorkerJoined("far", (0, 1), machine="another"))
    (next_unit,) = driven.finish(driven.runs[0])
    assert widths([next_unit]) == [1]


def test_while_the_leader_evaluates_the_others_are_free() -> None:
    driven = Driven(workers=2, trials=2, epochs=1)
    first, second = driven.runs
    driven.finish(second)
    (last,) = [run for run in driven.finish(first) if run.evaluate][:1] or [driven.runs[-1]]
    driven.step(UnitFinished(last.run, last.worker, 1.0))
    busy = {worker.name for worker in driven.engine.workers.by_name.values() if worker.queue}
    assert last.worker in busy or not last.evaluate
    assert not busy.intersection(last.crew)


@given(st.integers(0, 2**32), st.sampled_from([2, 4, 8]))
def test_random_histories_with_gangs_keep_all_invariants(seed: int, widest: int) -> None:
    History(Random(seed), steps=40, gangs=widest).run()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["first-come", "longest-path", "monte-carlo"]), st.booleans())
def test_random_histories_with_dry_runs_keep_all_invariants(seed: int, policy: str, free: bool) -> None:
    random = Random(seed)
    chosen = Settings(random.choice([1, 2, 3, 4]), "free" if free else "strict", policy)
    known = profile((1, 8.0), (2, 5.0), (4, 3.0))
    History(random, steps=40, settings=chosen, gangs=4, profile=known).run()


@given(st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.floats(0.01, 100)), max_size=20), st.integers(1, 9))
def test_a_width_is_a_power_of_two_within_what_is_free(seen: list[tuple[int, float]], free: int) -> None:
    allotment = Allotment(4)
    node = Node(1, None, 0, Values(()), "key")
    for width, seconds in seen:
        allotment.observe(node, width, seconds)
    width = allotment.width(node, free)
    assert width in (1, 2, 4)
    assert width <= free


def profile(*seconds: tuple[int, float], **values: float) -> Profile:
    """Return a profile with the seconds of a unit by the number of devices."""
    return Profile(
        tuple(
            ProfileEntry(dict(values), "single" if devices == 1 else "data", devices, "cpu", each, 0)
            for devices, each in seconds
        )
    )


def test_a_profile_that_pays_leads_to_a_gang_at_once() -> None:
    driven = Driven(workers=4, trials=1, profile=profile((1, 8.0), (2, 5.0), (4, 4.9)))
    assert widths(driven.runs) == [2]  # four take as long as two
    node = driven.engine.plan.nodes[driven.runs[0].node]
    assert Allotment(8, profile((1, 8.0), (2, 5.0), (4, 3.0))).width(node, 8) == 4


def test_a_profile_that_does_not_pay_leads_to_no_gang() -> None:
    driven = Driven(workers=2, trials=1, profile=profile((1, 8.0), (2, 8.0)))
    while len(driven.runs) < 6:
        driven.finish(driven.runs[-1], 8.0)
    assert widths(driven.runs) == [1] * 6


def test_durations_count_before_the_profile() -> None:
    node = Node(1, None, 0, Values(()), "key")
    allotment = Allotment(2, profile((1, 8.0), (2, 5.0)))
    allotment.observe(node, 2, 9.0)
    assert allotment.width(node, 2) == 2  # the first one had to connect
    allotment.observe(node, 2, 9.0)
    assert allotment.width(node, 2) == 1
    allotment.observe(node, 1, 12.0)  # the profile was measured on an idle machine
    assert allotment.width(node, 2) == 2


def test_a_width_that_was_not_profiled_is_tried() -> None:
    node = Node(1, None, 0, Values(()), "key")
    allotment = Allotment(4, profile((1, 8.0), (2, 5.0)))
    for _ in range(2):
        assert allotment.width(node, 4) == 2
        allotment.observe(node, 2, 5.0)
    assert allotment.width(node, 4) == 4


def test_the_profile_of_the_same_architecture_counts_before_others() -> None:
    slow, fast = profile((1, 8.0), (2, 9.0), size=1), profile((1, 80.0), (2, 50.0), size=2)
    both = Profile(slow.entries + fast.entries)
    chosen = {}
    for size in (1, 2, 3):
        values = segments(history({"size": size, "lr": 0.1}), partitions=1, units=1)[0].values
        chosen[size] = Allotment(2, both).width(Node(1, None, 0, values, "key"), 2)
    assert chosen == {1: 1, 2: 2, 3: 2}  # of an unknown one, the sum over all decides
