"""The statistics of a run, driven through random histories: at every step they agree with the engine."""

from __future__ import annotations

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from hoptree.core.actions import EndTrial, Report
from hoptree.core.engine import Engine
from hoptree.core.events import Metrics, TrialAsked, TrialStopped
from hoptree.core.lineage import config_items
from hoptree.core.schedules import multistep
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.estimate import Estimator
from hoptree.progress import RunStats, RunViews
from hoptree.search.protocol import Goal
from tests.histories import History

GOAL = Goal("loss", maximize=False)


def expected_best(engine: Engine, curves: dict[int, dict[int, Metrics]]) -> set[int]:
    last = {
        number: curve[max(curve)]["loss"]
        for number, curve in curves.items()
        if curve and engine.trials[number].ending != "failed"
    }
    return {number for number, value in last.items() if value == min(last.values())}


class Tallied(History):
    """A history that is counted as it happens; a driver that takes it up counts anew from what is known."""

    def __init__(self, random: Random, gangs: int = 1) -> None:
        super().__init__(random, steps=40, gangs=gangs)
        self.curves: dict[int, dict[int, Metrics]] = {}
        self.take_up()

    def take_up(self) -> None:
        self.stats = RunStats(self.engine, {"": GOAL})
        self.views = RunViews(self.stats, len(self.workers), Estimator())

    def record(self, step: Step) -> None:
        super().record(step)
        self.stats.see(step)
        for action in step.actions:
            if isinstance(action, Report):
                self.curves.setdefault(action.trial, {})[action.epoch] = action.metrics
        self.check()

    def check(self) -> None:
        engine, stats, curves = self.engine, self.stats, self.curves
        endings = [trial.ending for trial in engine.trials.values()]
        assert {key: n for key, n in stats.endings.items() if n} == {
            key: endings.count(key) for key in ("complete", "stopped", "failed") if key in endings
        }
        assert set(stats.live) == {n for n, trial in engine.trials.items() if trial.ending is None}
        assert set(stats.workers) == set(engine.workers.by_name)
        assert len(set(stats.workers.values())) == len(stats.workers)
        for name, worker in engine.workers.by_name.items():
            assert {action.run for action in stats.queues.get(name, ())} == {run.number for run in worker.queue}
        view = self.views.view()
        assert sum(view.counts.values()) == len(engine.trials)
        assert view.fraction is not None
        assert 0.0 <= view.fraction <= 1.0
        if curves and "loss" in next(iter(curves.values()))[min(next(iter(curves.values())))]:
            best = expected_best(engine, curves)
            assert {each.trial.number for each in stats.best.values()} <= best


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), gangs=st.sampled_from([1, 4]))
@example(seed=29, gangs=1)  # a driver that starts twice
def test_run_stats_agree_with_the_engine_at_every_step(seed: int, gangs: int) -> None:
    Tallied(Random(seed), gangs).run()


class TalliedLate(History):
    """A history that one object follows from its beginning, and another from an entry on."""

    def __init__(self, random: Random, cut: int) -> None:
        super().__init__(random, steps=40)
        self.cut = cut
        self.whole = RunStats(self.engine, {"": GOAL})
        self.late: RunStats | None = None

    def restart(self) -> None:
        """Both follow one engine to the end."""

    def record(self, step: Step) -> None:
        super().record(step)
        for stats in (self.whole, self.late):
            if stats is not None:
                stats.see(step)
        if len(self.journal) == self.cut:
            self.late = RunStats(self.engine, {"": GOAL})


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.integers(1, 60))
def test_run_stats_of_a_resumed_study_include_what_was_before(seed: int, cut: int) -> None:
    history = TalliedLate(Random(seed), cut)
    history.run()
    whole, late = history.whole, history.late
    if late is not None:
        assert +late.endings == +whole.endings
        assert {n: f.number for n, f in late.trials.items()} == {n: f.number for n, f in whole.trials.items()}
        assert {n: f.values[-1:] for n, f in late.trials.items()} == {
            n: f.values[-1:] for n, f in whole.trials.items()
        }
        assert list(late.searched) == list(whole.searched)


def test_differing_values_come_first_and_numbers_are_short() -> None:
    """Configs are cut at the edge of a terminal: what is the same in many trials would be all that is seen."""
    engine = Engine(Settings(partitions=1))
    stats = RunStats(engine, {"": GOAL})
    views = RunViews(stats, 1, Estimator())
    for number in range(6):
        rate = multistep(0.0123456789 + number, at=[3], gamma=0.1)
        items = config_items({"batch": 32 << number % 2, "depth": 2, "lr": rate})
        event = TrialAsked(number, items, 2, root="r")
        stats.see(engine.state.note(event, 0.0, False, engine.step(event, 0.0)))
    rows = views.view().rows
    assert rows[0].config == "lr=multistep(0.01235, [3], 0.1), batch=32"
    assert len({row.config[:20] for row in rows}) == 6


def test_the_end_is_counted_anew_and_names_the_best_that_results_name() -> None:
    engine = Engine(Settings(1))
    stats = RunStats(engine, {"": GOAL})
    views = RunViews(stats, 1, Estimator(), cpu=iter(range(10_000)).__next__)  # every count takes too long
    for number in (0, 1):
        event = TrialAsked(number, config_items({"lr": float(number)}), 2, every=1)
        stats.see(engine.state.note(event, 0.0, False, engine.step(event, 0.0)))
        views.view()
    stop = TrialStopped(1)
    stats.see(engine.state.note(stop, 0.0, False, engine.step(stop, 0.0)))
    stats.see(Step(stop, 0.0, False, [Report(0, 2, {"loss": 0.5}), Report(1, 1, {"loss": 0.1})]))
    stats.see(Step(stop, 0.0, False, [EndTrial(0, "complete", "")]))
    assert [best.number for best in views.view().best_trials] == [1]
    assert [best.number for best in views.view(over=True).best_trials] == [0]
    assert views.view(over=True).epochs_asked == engine.plan.work(engine.trials.values()).asked
