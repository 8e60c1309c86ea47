"""The time limit of a run: it ends with the best so far, and the study can be resumed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import hoptree as ht
from hoptree.backends.event_loop import drive
from hoptree.core.actions import EndTrial, Report
from hoptree.core.engine import Engine
from hoptree.core.events import Event, TrialAsked, TrialExtended
from hoptree.core.settings import Settings
from hoptree.driver.driver import Driver
from hoptree.driver.event_sources import Draining, StopRequest
from hoptree.driver.options import RunOptions
from hoptree.driver.study_group import StudyGroup
from hoptree.driver.time_limit import TimeLimit, first_report_seconds
from hoptree.progress.run_view import RunViews
from hoptree.record.results import Results
from hoptree.store.logs import Logs
from tests.system.plain import study

SPACE = {"lr": ht.choice(0.1, 0.2), "nap": 0.05}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Requests:
    """A search that requests a trial after each message, and extends the first one."""

    def __init__(self) -> None:
        self.count = 0

    def start(self) -> Sequence[Event]:
        return [self._ask()]

    def tell(self, news: Report | EndTrial) -> Sequence[Event]:
        return [TrialExtended(0, 9), TrialExtended(self.count - 1, 9), self._ask()]

    def _ask(self) -> TrialAsked:
        self.count += 1
        return TrialAsked(self.count - 1, (("lr", 0.1),), until=2, asked_by=(0, self.count - 1))


def test_the_time_is_over_once() -> None:
    clock, calls = Clock(), list[str]()
    limit = TimeLimit(60.0, clock)
    limit.call(lambda: calls.append("stop"))
    assert (limit.pause(), list(limit.poll()), limit.is_over) == (60.0, [], False)
    clock.now = 60.0
    assert limit.pause() == 0.0
    limit.poll()
    limit.poll()
    assert (calls, limit.is_over, limit.pause()) == (["stop"], True, float("inf"))


def test_without_a_limit_nothing_ends_and_nothing_is_held_back() -> None:
    limit, requests = TimeLimit(None), Requests()
    limit.poll()
    assert (limit.is_over, limit.pause()) == (False, float("inf"))
    assert limit.holding_back(requests, lambda _: 1e9) is requests


def test_new_trials_that_could_not_report_are_held_back_with_what_follows_from_them() -> None:
    clock, limit = Clock(), None
    limit = TimeLimit(60.0, clock)
    tuner = limit.holding_back(Requests(), lambda _: 20.0)
    news = EndTrial(0, "complete")
    assert len(tuner.start()) == 1
    assert len(tuner.tell(news)) == 3
    clock.now = 41.0
    assert tuner.tell(news) == [TrialExtended(0, 9), TrialExtended(1, 9)]
    clock.now = 0.0  # a later one is held back in any case: numbers are given in order
    assert tuner.tell(news) == [TrialExtended(0, 9)]
    assert limit.held == {2, 3}


class Silent:
    """A backend of which nobody ever hears; its clock advances by as long as it is asked to wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def start(self) -> None: ...

    def submit(self, action: object) -> None: ...

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        assert seconds is not None
        self._clock.now += seconds
        return self._clock.now, []

    def stop(self, *, failed: bool) -> None:
        assert not failed


def test_a_run_in_which_nothing_happens_ends_on_time() -> None:
    clock, stop, engine = Clock(), StopRequest(), Engine(Settings(1))
    limit, draining = TimeLimit(60.0, clock), Draining(engine, stop)
    limit.call(lambda: setattr(stop, "asked", True))
    drive(engine, Silent(clock), Requests(), enough=lambda: draining.is_over, sources=[draining, limit])
    assert clock.now == 60.0


def test_the_first_report_comes_after_the_units_of_its_epochs() -> None:
    asked = TrialAsked(0, (("lr", 0.1),), until=9, every=3)
    assert first_report_seconds(asked, 4, lambda _: 2.0, lambda _: 1.0) == 3 * 4 * 2.0 + 1.0
    once = TrialAsked(0, (("lr", 0.1),), until=9)
    assert first_report_seconds(once, 4, lambda _: 2.0, lambda _: 1.0) == 9 * 4 * 2.0 + 1.0


class Hurry:
    """A display that sets the clock when so many epochs are trained."""

    def __init__(self, clock: Clock, times: dict[float, float]) -> None:
        self._clock = clock
        self._times = times

    def begin(self, views: RunViews, logs: Logs) -> None: ...

    def update(self, views: RunViews) -> None:
        trained = views.view().epochs_trained
        self._clock.now = max([now for epochs, now in self._times.items() if trained >= epochs], default=0.0)

    def end(self, views: RunViews) -> None: ...


def test_a_run_ends_with_the_best_so_far_and_the_next_one_completes_it(tmp_path: Path) -> None:
    reference = study(tmp_path / "whole", space=SPACE, epochs=20).run(workers=1, quiet=True)
    mine, clock = study(tmp_path, space=SPACE, epochs=20), Clock()
    options = RunOptions(workers=1, display=Hurry(clock, {1: 3600.0}), time_limit="1 h")
    driver = Driver(StudyGroup([mine]), options, clock=clock)
    part = driver.run(mine.outcome)
    assert driver.reached_limit
    assert {trial.state for trial in part.trials} == {"running"}
    assert 0 < part.best.epochs < 20
    assert part.best.load()["units"] == 2 * part.best.epochs
    with mine.open_store() as store:
        found = store.catalog.find("plain")
    assert found is not None
    assert found.status == "stopped"
    whole = mine.run(workers=2, quiet=True, time_limit="1 h")
    assert not whole.limit_reached
    assert [trial.state for trial in whole.trials] == ["complete"] * 2
    assert [trial.fingerprint for trial in whole.trials] == [trial.fingerprint for trial in reference.trials]


def test_a_limit_that_is_over_while_workers_start_trains_nothing(tmp_path: Path) -> None:
    mine = study(tmp_path, space=SPACE, epochs=1)
    part = mine.run(workers=1, quiet=True, time_limit=1e-9)
    assert part.limit_reached
    assert "time limit" in repr(part)
    assert part.trials == []
    assert [trial.state for trial in mine.run(workers=1, quiet=True).trials] == ["complete"] * 2


def explored(folder: Path, times: dict[float, float]) -> Results:
    """Run a search without a number of trials, whose units take 0.02 s, with a clock that counts epochs."""
    search = ht.ASHA(trials=None, max_epochs=4, factor=2, concurrent=2)
    mine, clock = study(folder, space={"lr": ht.uniform(0.1, 1.0), "nap": 0.02}, search=search), Clock()
    options = RunOptions(workers=1, display=Hurry(clock, times), time_limit="1 h")
    return Driver(StudyGroup([mine]), options, clock=clock).run(mine.outcome)


def test_a_search_without_a_number_of_trials_explores_until_the_time_is_over(tmp_path: Path) -> None:
    first = explored(tmp_path, {10: 3600.0})
    assert first.best.curve
    more = explored(tmp_path, {20: 3600.0})
    assert len(more.trials) > len(first.trials)
    assert [trial.config for trial in more.trials[: len(first.trials)]] == [trial.config for trial in first.trials]


def test_towards_the_end_trials_are_promoted_and_no_new_ones_start(tmp_path: Path) -> None:
    """Less than the time of a first rung is left after 10 epochs; the next run starts what was held back."""
    first = explored(tmp_path, {10: 3600.0 - 0.01, 30: 3600.0})
    assert "running" not in {trial.state for trial in first.trials}  # paused ones are complete up to their rung
    with study(tmp_path).open_store() as store:
        found = store.catalog.find("plain")
    assert found is not None
    assert found.status == "stopped"
    more = explored(tmp_path, {20: 3600.0})
    assert len(more.trials) > len(first.trials)
    assert [trial.config for trial in more.trials[: len(first.trials)]] == [trial.config for trial in first.trials]


def test_a_search_without_a_number_of_trials_needs_a_time_limit(tmp_path: Path) -> None:
    mine = study(tmp_path, search=ht.ASHA(trials=None, max_epochs=4), space={"lr": ht.uniform(0.1, 1.0)})
    with pytest.raises(ht.WorkloadError, match="time_limit"):
        mine.run(workers=1, quiet=True)
    with pytest.raises(ht.WorkloadError, match="needs a number of trials"):
        mine.explain()


@pytest.mark.parametrize("limit", [0, -3, True, "soon", "3 weeks", float("nan"), [1]])
def test_a_limit_that_is_no_duration_is_refused_before_anything_starts(tmp_path: Path, limit: object) -> None:
    mine = study(tmp_path, epochs=1)
    with pytest.raises(ht.WorkloadError, match="time_limit: .*; expected a duration above 0"):
        mine.run(workers=1, quiet=True, time_limit=limit)  # type: ignore[arg-type]
    assert not (tmp_path / "store" / "journal.db").exists()
