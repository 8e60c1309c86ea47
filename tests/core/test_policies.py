"""Policies: who goes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.actions import EndTrial, Report, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.errors import WorkloadError
from hoptree.core.events import DriverStarted
from hoptree.core.lineage import Values
from hoptree.core.nodes import ActiveLineage
from hoptree.core.policies import POLICIES, BreadthFirst, Policy
from hoptree.core.schedules import Config, multistep, piecewise
from hoptree.core.snapshots import restored, snapshot_of
from hoptree.core.steps import Step
from hoptree.forecast.simulation import simulate
from hoptree.search import Decision, Extend, Train
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape
from tests.core.driver import Driver
from tests.core.strategies import configs

asked_ = st.lists(st.tuples(configs(), st.integers(1, 4)), min_size=2, max_size=6)


class Given:
    """A watch that remembers what workers were given."""

    def __init__(self) -> None:
        self.runs: list[RunUnit] = []

    def see(self, step: Step) -> None:
        self.runs += [action for action in step.actions if isinstance(action, RunUnit)]


class Budgets:
    """A search that trains each config for a number of epochs of its own."""

    def __init__(self, asked: Sequence[tuple[Config, int]]) -> None:
        self._asked = asked

    def start(self) -> Sequence[Decision]:
        return [Train(config, until) for config, until in self._asked]

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        return ()


def cost(values: Values) -> float:
    return 1.0 + len(repr(values)) % 3


class Ways:
    """What is left to train, by brute force, for one worker that is told what to do unit by unit."""

    def __init__(self, driver: Driver) -> None:
        self._plan = driver.engine.plan
        self._partitions = driver.partitions
        self._trials = list(driver.engine.trials.values())
        self.trained: set[tuple[int, int]] = set()

    def left(self) -> dict[tuple[int, int], float]:
        """Return for every unit that could be trained next the time to the furthest end behind it."""
        found: dict[tuple[int, int], float] = {}
        for trial in self._trials:
            way = self._plan.path_with_ends(trial, trial.until * self._partitions)
            units = [(node, unit) for node, end in way for unit in range(node.start, end)]
            rest = [(node, unit) for node, unit in units if (node.id, unit) not in self.trained]
            if rest:
                first = (rest[0][0].id, rest[0][1])
                found[first] = max(found.get(first, 0.0), sum(node.cost for node, _ in rest))
        return found


def decisions(asked: list[tuple[Config, int]], named: str, partitions: int = 1):
    """Let one worker train everything and yield each choice with what could have been chosen."""
    driver = Driver(partitions, cost, named=named, ahead=False, affinity=False)
    for number, (config, until) in enumerate(asked):
        driver.ask(number, config, until)
    ways = Ways(driver)
    driver.join("w")
    while driver.queues["w"]:
        run = driver.queues["w"][0]
        if isinstance(run, RunUnit) and (run.node, run.unit) not in ways.trained:
            yield (run.node, run.unit), ways.left()
            ways.trained.add((run.node, run.unit))
        driver.go_on("w")
    assert not ways.left()


@settings(max_examples=60, deadline=None)
@given(asked_, st.sampled_from([1, 2]))
def test_longest_path_serves_the_longest_remaining_path(asked: list[tuple[Config, int]], partitions: int):
    for chosen, left in decisions(asked, "longest-path", partitions):
        assert left[chosen] == pytest.approx(max(left.values()))


@settings(max_examples=40, deadline=None)
@given(asked_)
def test_breadth_first_serves_the_least_trained(asked: list[tuple[Config, int]]):
    for (_, unit), left in decisions(asked, "breadth-first"):
        assert unit == min(ready for _, ready in left)


@settings(max_examples=40, deadline=None)
@given(asked_, st.sampled_from(POLICIES))
def test_every_policy_trains_everything_once(asked: list[tuple[Config, int]], named: str):
    chosen = [place for place, _ in decisions(asked, named)]
    assert len(chosen) == len(set(chosen))


def first_values(named: str, *asked: tuple[Config, int]) -> list[float]:
    """Return the learning rates that one worker trains with, in order."""
    driver = Driver(1, named=named, ahead=False, affinity=False)
    for number, (config, until) in enumerate(asked):
        driver.ask(number, config, until)
    driver.join("w")
    driver.finish()
    return [run.values.at(run.unit)["lr"] for run in driver.trained]  # type: ignore[misc]


TREE = [
    ({"lr": 0.5}, 2),
    ({"lr": piecewise([0.1, 0.2], at=[1])}, 2),
    ({"lr": piecewise([0.1, 0.3], at=[1])}, 4),
    ({"lr": piecewise([0.1, 0.4], at=[1])}, 2),
]


def test_longest_path_follows_the_critical_path_of_a_tree():
    values = first_values("longest-path", *TREE)
    assert values[:2] == [0.1, 0.3]  # 4 units are left behind 0.1, and 3 behind 0.3
    assert sorted(values[2:4]) == [0.3, 0.5]


def test_breadth_first_goes_level_by_level():
    assert first_values("breadth-first", *TREE)[:2] == [0.5, 0.1]
    assert sorted(first_values("breadth-first", *TREE)[2:6]) == [0.2, 0.3, 0.4, 0.5]
    assert first_values("breadth-first", *TREE)[6:] == [0.3, 0.3]


def test_most_children_opens_the_widest_stage_first():
    tree = [({"lr": 0.9}, 9), *TREE]
    assert first_values("most-children", *tree)[0] == 0.1
    assert first_values("longest-path", *tree)[0] == 0.9


def test_the_longest_path_first_ends_earlier_than_the_shortest():
    asked = [({"lr": 0.1}, 4), *(({"lr": 1.0 + index}, 1) for index in range(4))]
    workload, cluster = Workload(configs=1, partitions=1), Cluster(workers=2)
    results = {
        policy: simulate(workload, cluster, policy=policy, search=Budgets(asked), ahead=False, affinity=False)
        for policy in ("longest-path", "breadth-first")
    }
    assert results["longest-path"].makespan == 4.0 == results["longest-path"].bound
    assert results["breadth-first"].makespan > 4.0


# --- first come, until a path becomes critical ------------------------------------------------------------


def turns(*asked: tuple[Config, int], workers: int = 1) -> list[float]:
    """Return the learning rates in the order in which workers were given them, first come first served."""
    watch = Given()
    workload = Workload(configs=1, partitions=1)
    cluster = Cluster(workers=workers)
    simulate(workload, cluster, search=Budgets(asked), watches=[watch.see], ahead=False, affinity=False, check=True)
    return [run.values.at(run.epoch)["lr"] for run in watch.runs]  # type: ignore[misc]


def test_first_come_trains_trials_in_the_order_in_which_they_were_requested():
    asked = [({"lr": float(number)}, 1 + number % 2) for number in range(8)]
    found = turns(*asked)
    assert found[:6] == [0.0, 1.0, 1.0, 2.0, 3.0, 3.0]  # there is much left: neither the longest nor each in turn
    assert sorted(found) == sorted(rate for config, until in asked for rate in [config["lr"]] * until)


SECONDS = [3.0, 1.0, 2.0, 1.005, 1.0, 2.0, 3.0, 1.0]


class Waves(Budgets):
    """A search that requests the same configs again after its first report, or without waiting for it."""

    def __init__(self, untils: Sequence[int], *, wait: bool) -> None:
        super().__init__([({"config": index}, untils[0]) for index in range(len(SECONDS))])
        self._late: list[Decision] = [
            Train({"config": index, "late": 1}, untils[1]) for index in range(len(SECONDS))
        ]
        self._wait = wait

    def start(self) -> Sequence[Decision]:
        if self._wait:
            return super().start()
        now, self._late = self._late, []
        return [*super().start(), *now]

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        now, self._late = self._late, []
        return now


def begun(search: Waves) -> list[int]:
    """Return the trials in the order in which one worker began them: 0 to 7 first wave, 8 to 15 second."""
    watch = Given()
    landscape = Landscape(lambda values: SECONDS[values.constants()["config"]], lambda *_: {"loss": 1.0})  # type: ignore[index]
    cluster = Cluster(workers=1)
    simulate(Workload(partitions=1), cluster, search=search, landscape=landscape, watches=[watch.see], ahead=False)
    found = [run.values.constants() for run in watch.runs if run.unit == 0]
    return [each["config"] + len(SECONDS) * ("late" in each) for each in found]  # type: ignore[operator]


SHORTEST_FIRST = [1, 3, 4, 7, 2, 5, 0, 6]  # times that differ by less than 1 % count as equal


def test_of_trials_requested_together_the_shortest_go_first():
    assert begun(Waves((1, 1), wait=False))[:8] == [1, 3, 4, 7, 9, 11, 12, 15]


@pytest.mark.parametrize(("untils", "wait"), [((1, 1), True), ((1, 2), False)])
def test_later_trials_stand_behind_if_a_report_or_another_budget_came_between(untils: tuple[int, int], wait: bool):
    order = begun(Waves(untils, wait=wait))
    assert order[:7] == SHORTEST_FIRST[:7]
    assert sorted(order) == list(range(16))


def test_equal_trials_requested_together_complete_one_after_the_other():
    found = turns(*(({"lr": float(number)}, 2) for number in range(9)))
    assert found[:8] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]  # not the first epoch of each


def test_a_report_of_a_trial_that_goes_on_separates_those_requested_before_and_after():
    driver = Driver(1)
    for number in range(2):
        driver.ask(number, 0.1 + number, until=2, every=1)
    driver.join("w")
    driver.train("w")
    driver.evaluate("w")
    assert driver.reports == [(0, 1)]
    driver.ask(2, 0.1, until=2)
    assert [trial.standing for trial in driver.engine.trials.values()] == [0, 0, 2]


def test_a_resumed_study_has_the_standings_that_it_had():
    driver = Driver(1, named="first-come")
    for number in range(4):
        driver.ask(number, 0.1 + number, until=1 + number // 2)
    driver.join("w")
    driver.train("w")
    driver.evaluate("w")
    for number in range(4, 7):
        driver.ask(number, 0.1 + number, until=2)
    had = {number: trial.standing for number, trial in driver.engine.trials.items()}
    assert had == {0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4}
    settings = driver.engine.settings
    engine = Engine(settings, state=restored(snapshot_of(driver.engine.state, 0.0), settings))
    engine.step(DriverStarted(), 0.0)
    assert {number: trial.standing for number, trial in engine.trials.items()} == had
    assert [node.standing for node in engine.plan.walk()] == [0, 0, 2, 2, 4, 4, 4]


def test_a_path_that_becomes_critical_goes_first():
    short = [({"lr": float(number)}, 1) for number in range(12)]
    found = turns(*short, ({"lr": 99.0}, 3), workers=2)
    # 15 units on 2 workers: twice 3 units and one more outlast what is left, shared by both, when 13 are left
    assert found.index(99.0) == 2
    found = turns(*short, ({"lr": 99.0}, 2), workers=2)
    assert found.index(99.0) == 6  # twice 2 units and one more outlast 9


def test_an_extended_trial_keeps_its_rank():
    """A trial that is extended goes before those that were asked for after it."""

    class Promoted(Budgets):
        def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
            return [Extend(0, 2)] if isinstance(news, Report) and (news.trial, news.epoch) == (0, 1) else ()

    watch = Given()
    changing = multistep(0.1, at=[1], gamma=0.1)  # the second epoch is another node than the first
    asked = [({"lr": changing}, 1), *(({"lr": float(n)}, 2) for n in range(1, 9))]
    simulate(Workload(configs=1, partitions=1), Cluster(workers=1), search=Promoted(asked), watches=[watch.see])
    assert [run.values.at(run.epoch)["lr"] for run in watch.runs][:4] == pytest.approx([0.1, 1.0, 1.0, 0.01])


def test_first_come_is_the_default_and_keeps_lineages_where_they_are():
    workload, cluster = Workload(configs=8, epochs=4, partitions=4), Cluster(workers=4, replicas=4)
    result = simulate(workload, cluster)
    assert result.engine.settings.policy == "first-come"
    assert result.hops == 0
    assert result.makespan == result.bound


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from(["strict", "free"]),
)
def test_first_come_loses_at_most_one_unit_of_each_path_to_the_longest_path(
    costs: list[float], workers: int, order: str
):
    """All workers hold everything: what the order costs is at most the longest unit, at the end."""
    workload = Workload(configs=len(costs), epochs=3, partitions=1, seconds=costs)
    cluster = Cluster(workers=workers)
    longest, first = (
        simulate(workload, cluster, policy=policy, order=order, ahead=False, check=True).makespan  # type: ignore[arg-type]
        for policy in ("longest-path", "first-come")
    )
    assert first <= longest + max(costs)


@pytest.mark.parametrize("order", ["strict", "free"])
def test_random_is_reproduced_by_its_seed_and_only_by_it(order: str):
    def given_(seed: int) -> list[tuple[int, int, str]]:
        driver = Driver(4, named="random", order=order, seed=seed)
        for number in range(8):
            driver.ask(number, 0.1 + number)
        driver.join("a", 0, 1)
        driver.join("b", 2, 3)
        driver.finish()
        return [(run.node, run.unit, run.worker) for run in driver.given]

    assert given_(1) == given_(1)
    assert len({tuple(given_(seed)) for seed in range(5)}) == 5


def test_a_policy_of_ones_own_can_be_given():
    workload, cluster = Workload(configs=4, epochs=2, partitions=2), Cluster(workers=2)
    own = simulate(workload, cluster, policy=BreadthFirst(), check=True)
    assert own.makespan == simulate(workload, cluster, policy="breadth-first").makespan


class Answers(Policy):
    """Answers whatever it is given; ``selective``, so that it is asked whether it admits."""

    selective = True

    def __init__(self, rank: Any = 0, admits: Any = True) -> None:
        self._rank = rank
        self._admits = admits

    def rank(self, lineage: ActiveLineage, partition: int) -> float:
        return self._rank

    def admits(self, lineage: ActiveLineage, partition: int) -> bool:
        return self._admits


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Answers(float("nan")), r"Answers\.rank\(lineage at node \d unit 0, \d\) returned nan; expected a number"),
        (Answers("low"), r"returned 'low'; expected a number"),
        (Answers(None), r"returned None; expected a number"),
        (Answers(admits=1), r"Answers\.admits\(lineage at node \d unit 0, \d\) returned 1; expected True or False"),
        (Answers(admits=None), r"returned None; expected True or False"),
    ],
)
def test_a_policy_that_answers_nonsense_is_refused_with_what_it_answered(policy: Policy, message: str):
    with pytest.raises(WorkloadError, match=rf"^policy: .*{message}"):
        simulate(Workload(configs=2, partitions=2), Cluster(workers=2), policy=policy)


def test_infinity_is_a_rank():
    assert simulate(Workload(configs=2, partitions=2), Cluster(workers=2), policy=Answers(float("inf"))).units == 4
