"""Layouts: a unit gets the first one that is not known to need more memory than a worker has."""

from __future__ import annotations

from math import inf
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.core.actions import Action, EndTrial, RunUnit
from hoptree.core.allotment import Allotment
from hoptree.core.engine import Engine
from hoptree.core.events import (
    DriverStarted,
    Event,
    TrialAsked,
    TrialStopped,
    UnitFailed,
    UnitFinished,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.invariants import InvariantChecker
from hoptree.core.layout_choice import LayoutChoice, LayoutOptions
from hoptree.core.layouts import Layout
from hoptree.core.lineage import config_items
from hoptree.core.profile import Profile, ProfileEntry
from hoptree.core.settings import Settings
from hoptree.core.snapshots import read_snapshot, take_snapshot
from hoptree.driver.run_layouts import tried_in_vain
from tests.histories import History

ALONE = LayoutOptions(("single",), (False, True), (False,))
ALL = LayoutOptions(("single", "data", "sharded", "pipeline"), (False, True), (False, True))
DIVIDED = LayoutOptions(("single", "sharded"))
PIPELINE = LayoutOptions(("pipeline",))


class Trained:
    """An engine whose steps are checked, with workers on one machine; a trial for each width."""

    def __init__(
        self,
        *widths: int,
        options: LayoutOptions = ALONE,
        workers: int = 1,
        limit: int = 100,
        profile: Profile | None = None,
        irrelevant: tuple[str, ...] = (),
    ) -> None:
        layouts = LayoutChoice(workers, limit, profile or Profile())
        layouts.offer(LayoutOptions(options.kinds, options.offload, options.checkpoint, irrelevant))
        self.engine = Engine(Settings(1), allotment=Allotment(workers) if workers > 1 else None, layouts=layouts)
        self.checker = InvariantChecker(self.engine)
        self.runs: list[RunUnit] = []
        self.ended: list[EndTrial] = []
        for number, width in enumerate(widths):
            config = {"width": width, "lr": 0.1 * (number + 1)}
            self.step(TrialAsked(number, config_items(config), 3), more=True)
        for number in range(workers):
            self.step(WorkerJoined(f"w{number}", (0,)), more=number + 1 < workers)

    def step(self, event: Event, *, more: bool = False) -> list[Action]:
        actions = self.engine.step(event, 0.0, more=more)
        self.checker.see(self.engine.state.note(event, 0.0, more, actions))
        self.runs += [action for action in actions if isinstance(action, RunUnit)]
        self.ended += [action for action in actions if isinstance(action, EndTrial)]
        return actions

    def fail(self, run: RunUnit, limit: int = 100, asked: int = 0) -> RunUnit | None:
        """Let a run be out of memory; return the next one, if there is one."""
        before = len(self.runs)
        self.step(UnitFailed(run.run, run.worker, "out of memory", "memory", limit, asked))
        return self.runs[before] if len(self.runs) > before else None


def test_a_unit_out_of_memory_is_trained_in_the_next_layout_and_the_others_begin_with_it() -> None:
    trained = Trained(8, irrelevant=("lr",))
    assert [run.layout for run in trained.runs] == ["single", "single"]  # the second one is given ahead
    again = trained.fail(trained.runs[0])
    assert again is not None
    assert (trained.runs[0].layout, again.layout, again.unit) == ("single", "single+offload", 0)
    trained.step(TrialAsked(1, config_items({"width": 8, "lr": 0.7}), 3))
    trained.step(TrialAsked(2, config_items({"width": 4, "lr": 0.7}), 3))
    trained.step(WorkerJoined("w8", (0,)), more=True)
    trained.step(WorkerJoined("w9", (0,)))
    layouts = {run.values.constants()["width"]: run.layout for run in trained.runs if run.run >= again.run}
    assert layouts == {8: "single+offload", 4: "single"}


def test_a_trial_fails_when_no_layout_is_left_and_names_each_with_what_was_missing() -> None:
    trained = Trained(8)
    again = trained.fail(trained.runs[0], 3_000_000, 5_000_000)
    assert again is not None
    assert not trained.ended
    assert trained.fail(again, 3_000_000) is None
    (ended,) = trained.ended
    assert ended.ending == "failed"
    first, second = (line for line in ended.reason.splitlines() if "single" in line)
    assert "3 MB" in first
    assert "5 MB" in first
    assert "single+offload" in second


def test_without_a_limit_the_last_layout_gets_all_attempts() -> None:
    trained = Trained(8, options=LayoutOptions(("single",)))
    runs = [trained.runs[0]]
    while (again := trained.fail(runs[-1], limit=0)) is not None:
        runs.append(again)
    assert len(runs) == 1 + Settings(1).retries
    assert [each.ending for each in trained.ended] == ["failed"]


def test_layouts_are_tried_from_the_fastest_to_that_with_least_memory() -> None:
    names = [(each.layout.name, each.devices) for each in ALL.candidates(2)]
    assert names[:5] == [
        ("single", 1),
        ("single+checkpoint", 1),
        ("sharded", 2),
        ("pipeline", 2),
        ("sharded+checkpoint", 2),
    ]
    assert names.index(("single+offload", 1)) < names.index(("single+offload+checkpoint", 1))
    assert len(set(names)) == len(names)


def test_a_fixed_layout_leaves_only_its_own_candidates() -> None:
    fixed = LayoutOptions(("pipeline",), (False, True), (True,))
    names = [each.layout.name for each in fixed.candidates(2)]
    assert names == ["pipeline+checkpoint", "pipeline+offload+checkpoint"]


def test_copies_of_a_model_that_does_not_fit_are_not_trained_together_again() -> None:
    trained = Trained(8, options=ALL, workers=2)
    trained.step(UnitFinished(trained.runs[0].run, trained.runs[0].worker, 4.0))
    together = trained.runs[-1]
    assert (together.layout, len(together.crew)) == ("data", 1)
    again = trained.fail(together)
    assert again is not None
    assert (again.layout, again.crew) == ("single", ())


def test_a_divided_model_waits_for_a_second_worker_and_is_not_overtaken() -> None:
    trained = Trained(8, 4, options=LayoutOptions(("single", "sharded")), workers=2)
    first, second = trained.runs
    assert trained.fail(first) is None  # the other worker is busy
    trained.step(UnitFinished(second.run, second.worker, 1.0))
    assert [(run.layout, len(run.crew)) for run in trained.runs[2:]] == [("sharded", 1)]


def test_a_divided_model_goes_on_alone_if_its_helper_is_lost() -> None:
    trained = Trained(8, options=LayoutOptions(("single", "sharded"), (False, True)), workers=2)
    together = trained.fail(trained.runs[0])
    assert together is not None
    trained.step(WorkerLost(together.crew[0]))
    trained.step(UnitFailed(together.run, together.worker, "a worker was lost", "system"))
    assert (trained.runs[-1].layout, trained.runs[-1].crew) == ("single+offload", ())


def test_a_fixed_pipeline_waits_until_there_are_two_workers() -> None:
    trained = Trained(8, options=PIPELINE, workers=2)
    assert [(run.layout, len(run.crew)) for run in trained.runs] == [("pipeline", 1)]


@pytest.mark.parametrize(("now", "begins"), [(100, "single+offload"), (101, "single"), (0, "single")])
def test_what_did_not_fit_is_remembered_for_the_same_limit_and_smaller_ones(now: int, begins: str) -> None:
    known = Profile((ProfileEntry({"width": 8}, "single", 1, "cpu", inf, 100),))
    assert Trained(8, limit=now, profile=known, irrelevant=("lr",)).runs[0].layout == begins
    assert Trained(4, limit=now, profile=known, irrelevant=("lr",)).runs[0].layout == "single"


def test_the_profile_decides_between_layouts_of_as_many_workers() -> None:
    entries = [
        ProfileEntry({}, name, 2, "cpu", seconds, 1) for name, seconds in [("sharded", 9.0), ("pipeline", 5.0)]
    ]
    large = ProfileEntry({}, "single", 1, "cpu", inf, 100)
    options = LayoutOptions(("single", "sharded", "pipeline"))
    trained = Trained(8, options=options, workers=2, profile=Profile((large, *entries)))
    assert trained.runs[0].layout == "pipeline"


def test_a_layout_that_is_slower_and_larger_than_another_is_not_used() -> None:
    options = LayoutOptions(("single",), (False, True), (False, True))
    times = {"single": (1.0, 50), "single+checkpoint": (2.0, 60), "single+offload": (9.0, 70)}
    known = [ProfileEntry({}, name, 1, "cpu", seconds, peak) for name, (seconds, peak) in times.items()]
    trained = Trained(8, options=options, profile=Profile(tuple(known)))
    again = trained.fail(trained.runs[0])
    assert again is not None
    assert again.layout == "single+offload"


RESUMED = LayoutOptions(("single",), (False, True), (False,), ("lr",))


def resumed(limit: int, *, before: int = 100, again: int = 8) -> RunUnit:
    """Let a unit be out of memory with a limit, resume with another limit; return the first run."""
    trained = Trained(8, irrelevant=("lr",))
    assert trained.fail(trained.runs[0], before) is not None
    state, _ = read_snapshot(take_snapshot(trained.engine.state, 0.0), Settings(1))
    layouts = LayoutChoice(1, limit)
    layouts.resume(tried_in_vain(state, ""))
    layouts.offer(RESUMED)
    engine = Engine(Settings(1), state=state, layouts=layouts)
    events = [DriverStarted(), TrialAsked(1, config_items({"width": again, "lr": 0.3}), 3), TrialStopped(0)]
    for event in events:
        engine.step(event, 0.0, more=True)
    actions = engine.step(WorkerJoined("w0", (0,)), 0.0)
    return next(action for action in actions if isinstance(action, RunUnit))


@pytest.mark.parametrize(("limit", "begins"), [(100, "single+offload"), (99, "single+offload"), (101, "single")])
def test_a_resumed_run_does_not_try_again_what_did_not_fit(limit: int, begins: str) -> None:
    assert resumed(limit).layout == begins
    assert resumed(limit, again=4).layout == "single"


def test_without_a_limit_a_resumed_run_tries_again_what_did_not_fit_with_one() -> None:
    assert resumed(0).layout == "single"
    assert resumed(0, before=0).layout == "single+offload"
    assert resumed(100, before=0).layout == "single"


def test_what_did_not_fit_with_other_code_is_tried_again() -> None:
    trained = Trained(8)
    trained.fail(trained.runs[0])
    assert [each[1].layout.name for each in tried_in_vain(trained.engine.state, "")] == ["single"]
    assert not list(tried_in_vain(trained.engine.state, "other code"))


def test_a_snapshot_of_an_earlier_version_has_no_shortages() -> None:
    trained = Trained(8)
    trained.fail(trained.runs[0])
    now = take_snapshot(trained.engine.state, 0.0)
    assert read_snapshot(now, Settings(1))[0].too_large == {(1, "single", 1): (100, 0)}
    before = msgspec.msgpack.encode(msgspec.msgpack.decode(now)[:-2])
    assert read_snapshot(before, Settings(1))[0].too_large == {}


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 4]), st.sampled_from([ALONE, ALL, DIVIDED]))
def test_random_histories_with_too_little_memory_keep_all_invariants(
    seed: int, widest: int, options: LayoutOptions
) -> None:
    history = History(Random(seed), steps=40, gangs=widest, layouts=options)
    history.run()
    for _, layout, devices in history.too_large:
        assert devices == 1 or Layout.parse(layout).kind in options.kinds
