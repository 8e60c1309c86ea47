"""The time left, in simulated runs whose end is known afterwards: it comes from what the estimator has learned."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import hoptree as ht
from hoptree.backends.event_loop import drive
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.actions import RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import USER, Event, StateEvaluated, TrialAsked, UnitFinished, WorkerJoined, WorkerLost
from hoptree.core.keys import fraction
from hoptree.core.lineage import Values, config_items
from hoptree.core.schedules import Config
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.estimate import Estimator
from hoptree.progress import BudgetTracker, RunStats, RunViews, TimeLeft, TimeLeftEstimator
from hoptree.search.budget_estimate import BudgetEstimate, total_budget_estimate
from hoptree.search.fixed import Fixed
from hoptree.search.protocol import Goal
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.search.tuner import Tuner, Tuners
from hoptree.simulator import Cluster, WorkerSpec
from hoptree.simulator.workload import Landscape

GOALS = {name: Goal("loss", maximize=False) for name in ("", "a", "b")}
PARTITIONS = 4


def seconds_of(values: Values) -> float:
    width = values.constants()["width"]
    assert isinstance(width, int)
    return width / 4


def metrics_of(values: Values, epoch: int, key: str) -> dict[str, float]:
    return {"loss": fraction("loss", key) + 1 / (1 + epoch)}


LANDSCAPE = Landscape(seconds_of, metrics_of, lambda values: 5.0)


class Telling:
    """A simulated backend that tells now and then what was learned about costs, as the real one does.

    Its workers say that things took them ``says`` times as long as they did.
    """

    def __init__(self, cluster: Cluster, estimator: Estimator, says: float = 1.0) -> None:
        self.says = says
        self.inner = SimulatedBackend(cluster, PARTITIONS, LANDSCAPE, state_bytes=0.0)
        self.estimator = estimator
        self.start, self.submit, self.stop = self.inner.start, self.inner.submit, self.inner.stop

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        now, events = self.inner.wait(seconds)
        events = [
            msgspec.structs.replace(event, seconds=self.says * event.seconds)
            if isinstance(event, UnitFinished | StateEvaluated)
            else event
            for event in events
        ]
        news = self.estimator.news()
        return now, [news, *events] if news is not None and events else events


class Followed:
    """A run in whose every moment the time left is asked for."""

    def __init__(
        self, tuners: Tuners, cluster: Cluster, budget: BudgetTracker | None = None, says: float = 1.0
    ) -> None:
        self.now = 0.0
        self.estimator = Estimator()
        self.engine = Engine(Settings(PARTITIONS))
        self.stats = RunStats(self.engine, GOALS, lambda: self.now)
        self.views = RunViews(self.stats, 1, self.estimator, budget, cpu=lambda: 0.0)
        self.remaining = TimeLeftEstimator(self.stats, self.estimator, budget, cpu=lambda: 0.0)
        self.said: list[tuple[float, TimeLeft]] = []
        self.fractions: list[float | None] = []
        self.end = drive(self.engine, Telling(cluster, self.estimator, says), tuners, [self.watch])

    def watch(self, step: Step) -> None:
        self.now = step.now
        self.stats.see(step)
        self.estimator.watch(step)
        if not step.more:
            self.fractions.append(self.views.view().fraction)
        if not step.more and (left := self.remaining.remaining()) is not None:
            assert 0.0 <= left.least <= left.expected <= left.most
            self.said.append((step.now, left))

    def off(self, share: float) -> float:
        """Return by how much of the whole time it was off on average, once a share of the time was over."""
        late = [(now, left) for now, left in self.said if share * self.end <= now]
        return sum(abs(now + left.expected - self.end) for now, left in late) / len(late) / self.end

    def held(self) -> float:
        """Return how often the end lay in the range that was told."""
        return sum(left.least <= self.end - now <= left.most for now, left in self.said) / len(self.said)


def widths(*some: int) -> list[Config]:
    return [{"lr": 0.1 + i / 100, "width": width} for i, width in enumerate(some)]


def asks(*studies: tuple[str, list[Config], int]) -> Tuners:
    numbers = TrialNumbers([name for name, _, _ in studies])
    made = [
        Tuner(Fixed(configs, epochs, every=1), study=name, root="r", numbers=numbers)
        for name, configs, epochs in studies
    ]
    return Tuners(made, numbers)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_it_is_right_for_units_that_differ_and_says_how_sure_it_is(workers: int, noise: float) -> None:
    configs = widths(*[8, 64, 16, 128, 32] * 4)
    run = Followed(asks(("", configs, 6)), Cluster(workers=workers, replicas=min(workers, 4), noise=noise))
    assert run.off(0.5) < 0.03
    assert run.held() > 0.9
    first, last = run.said[0][1], run.said[-1][1]
    assert first.most / first.least > 3 > last.most / max(last.least, 1e-9) or not last.most


def test_overhead_besides_training_counts() -> None:
    """Of tiny units half of the time goes into moving states and deciding what comes next."""
    run = Followed(asks(("", widths(*[8, 64, 16, 128, 32] * 4), 6)), Cluster(workers=2, replicas=2), says=0.5)
    assert run.off(0.3) < 0.05
    assert run.held() > 0.9


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_studies_that_run_together_end_together(workers: int) -> None:
    """What they share counts once, and each study's own work counts."""
    studies = ("a", widths(8, 64, 16), 4), ("b", widths(8, 64, 16, 128, 32, 32), 6)
    run = Followed(asks(*studies), Cluster(workers=workers, replicas=min(workers, 4)))
    assert run.off(0.6) < 0.1
    assert run.held() > 0.9
    alone = [Followed(asks(each), Cluster(workers=workers, replicas=min(workers, 4))).end for each in studies]
    assert run.end < sum(alone)


def test_the_busiest_partition_decides_where_workers_hold_few() -> None:
    """One worker of three holds three of four partitions: it is the last to be done."""
    where = [WorkerSpec(name="a", partitions=(0, 1, 2)), WorkerSpec(name="b", partitions=(3,))]
    run = Followed(
        asks(("", widths(*[32] * 8), 3)), Cluster(workers=[*where, WorkerSpec(name="c", partitions=(3,))])
    )
    assert run.off(0.3) < 0.15


def test_slow_workers_are_counted_as_such() -> None:
    workers = [WorkerSpec(name="fast", speed=4.0), WorkerSpec(name="slow", speed=1.0)]
    run = Followed(asks(("", widths(*[32] * 10), 10)), Cluster(workers=workers, replicas=2))
    assert run.off(0.3) < 0.1


def test_time_passes_while_a_unit_trains() -> None:
    run = Stopped()
    run.until(2)
    left = run.remaining.remaining()
    assert left is not None
    run.now += 1.5
    later = run.remaining.remaining()
    assert later is not None
    assert left.expected - later.expected == pytest.approx(1.5)
    run.now += 1000.0  # it takes longer than anybody expected: what comes after it is still to be done
    late = run.remaining.remaining()
    assert late is not None
    assert 0.0 < late.expected < later.expected


def test_nothing_is_shown_before_anything_is_known() -> None:
    run = Stopped()
    assert run.remaining.remaining() is None  # nobody is there
    run.step(WorkerJoined("w", tuple(range(PARTITIONS))))
    assert run.remaining.remaining() is None  # nothing was measured
    run.until(1)
    assert run.remaining.remaining() is not None
    run.step(WorkerLost("w"))
    assert run.remaining.remaining() is None


def test_a_look_that_takes_long_is_taken_less_often() -> None:
    run = Stopped()
    run.until(3)
    run.tick = 0.1  # whoever looks at the processor's time takes a tenth of a second
    first = run.remaining.remaining()
    run.until(4)
    run.now -= 1.5
    second = run.remaining.remaining()
    assert first is not None
    assert second is not None
    assert first.expected - second.expected == pytest.approx(0.5)  # nothing was looked at
    run.now += 0.5  # but not for longer than a second
    third = run.remaining.remaining()
    assert third is not None
    assert third.expected < second.expected - 0.5 - 0.9


SEARCHES = [
    ht.ASHA(trials=60, max_epochs=9),
    ht.ASHA(trials=60, max_epochs=9, mode="stop"),
    ht.SuccessiveHalving(27, max_epochs=9),
    ht.Hyperband(max_epochs=9, sampler=ht.Optuna("tpe")),
    ht.PBT(population=8, epochs=12, interval=3),
    ht.MedianStopping(trials=40, epochs=6),
    ht.Optuna("random", trials=30, epochs=4),
]


@pytest.mark.parametrize("procedure", SEARCHES, ids=repr)
def test_the_remaining_time_includes_future_requests_of_the_search(procedure: Any) -> None:
    """The share that is done never falls, and the range of the time left holds before all has been asked for."""
    space = {"lr": ht.log(1e-4, 1e-1), "width": ht.choice(16, 32)}
    tuner = Tuner(procedure.search(space, GOALS[""], 1), root="r")
    budget = BudgetTracker({"": total_budget_estimate(procedure)})
    run = Followed(Tuners([tuner], tuner.numbers), Cluster(workers=2, replicas=2), budget)
    fractions = [fraction for fraction in run.fractions if fraction is not None]
    assert len(fractions) == len(run.fractions)
    assert fractions == sorted(fractions)
    assert fractions[-1] < 1.0
    assert run.views.view(over=True).fraction == 1.0
    half = [(now, left) for now, left in run.said if now >= run.end / 2]
    if not isinstance(procedure, ht.MedianStopping):  # of what it has asked for it may give up any part
        assert sum(left.least <= run.end - now <= left.most for now, left in half) > 0.8 * len(half)
    now, left = half[0]
    most = 3.5 if isinstance(procedure, ht.MedianStopping) else 2.5  # it gives up what it has asked for
    assert 0.5 < left.expected / (run.end - now) < most


def test_a_search_that_cannot_say_what_it_will_ask_for_gets_no_percent() -> None:
    class OneByOne:
        def search(self, space: Any, goal: Goal, seed: int) -> Any:
            return ht.Optuna("random", trials=6, epochs=2, batch=1).search(space, goal, seed)

    procedure = OneByOne()
    assert total_budget_estimate([ht.Grid(epochs=2), procedure]) is None
    tuner = Tuner(procedure.search({"lr": ht.log(1e-4, 1e-1), "width": 8}, GOALS[""], 1), root="r")
    run = Followed(
        Tuners([tuner], tuner.numbers), Cluster(workers=1), BudgetTracker({"": total_budget_estimate(procedure)})
    )
    assert set(run.fractions) == {None}
    assert run.views.view(over=True).fraction == 1.0


def test_trials_that_users_added_are_not_taken_for_those_of_the_search() -> None:
    run = Stopped()
    budget = BudgetTracker({"": BudgetEstimate(6.0, 6.0, 6.0)})
    assert budget.remaining(run.stats).expected == pytest.approx(1.0)  # three of six epochs are asked for
    run.step(TrialAsked(100, config_items(widths(8, 16)[1]), 3, root="r", asked_by=(USER, 1)))
    assert budget.remaining(run.stats).expected == pytest.approx(0.5)
    assert not budget.is_exceeded(run.stats)


def test_a_search_that_asks_for_more_than_it_said_is_open_ended() -> None:
    run = Stopped()
    views = RunViews(
        run.stats, 1, run.estimator, BudgetTracker({"": BudgetEstimate(1.0, 2.0, 2.0)}), cpu=lambda: 0.0
    )
    assert views.view().open_ended
    assert (
        not RunViews(run.stats, 1, run.estimator, BudgetTracker({"": BudgetEstimate(1.0, 2.0, 3.0)}))
        .view()
        .open_ended
    )


class Stopped:
    """A trial of three epochs on one worker, one event after the other; looking takes a tick."""

    def __init__(self) -> None:
        self.now = self.tick = 0.0
        self.estimator = Estimator()
        self.engine = Engine(Settings(PARTITIONS))
        self.stats = RunStats(self.engine, GOALS, lambda: self.now)
        self.spent = 0.0
        self.remaining = TimeLeftEstimator(self.stats, self.estimator, cpu=self.cpu)
        self.given: list[RunUnit] = []
        self.units = 0
        self.step(TrialAsked(0, config_items(widths(8)[0]), 3, root="r"))

    def cpu(self) -> float:
        self.spent += self.tick
        return self.spent

    def step(self, event: Event) -> None:
        actions = self.engine.step(event, self.now)
        step = self.engine.state.note(event, self.now, False, actions)
        self.stats.see(step)
        self.estimator.watch(step)
        self.given += [action for action in actions if isinstance(action, RunUnit)]

    def until(self, units: int) -> None:
        """Let units finish, each in two seconds."""
        if not self.engine.workers.by_name:
            self.step(WorkerJoined("w", tuple(range(PARTITIONS))))
        while self.units < units:
            self.now += 2.0
            run = self.given.pop(0)
            self.step(UnitFinished(run.run, run.worker, 2.0))
            self.units += 1
