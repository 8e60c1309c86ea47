"""The stages of a study as jobs: what sharing leaves of them, and what remains during a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from hoptree.backends.event_loop import drive
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.engine import Engine
from hoptree.core.events import TrialAsked
from hoptree.core.lineage import Values, config_items
from hoptree.core.schedules import multistep
from hoptree.core.settings import Settings
from hoptree.driver.study_stages import JobTerms, StudyStages, TrainingTimes
from hoptree.elastic.job import Job
from hoptree.search import ASHA, PBT, Goal, Hyperband, Optuna, Random, SuccessiveHalving
from hoptree.search.grid import Grid
from hoptree.search.protocol import begin
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.search.tuner import Tuner, Tuners
from hoptree.search.value_kinds import choice, uniform
from hoptree.simulator import Cluster, Workload

SPACE = {"lr": uniform(0.0, 1.0), "width": choice(8, 16, 32)}
PARTITIONS = 4
TIMES = TrainingTimes(lambda _: 2.0)


def stages_of(*procedures: object, space: object = SPACE) -> tuple[StudyStages, Callable[[], Tuners]]:
    goal = Goal("loss", maximize=False)

    def tuners() -> Tuners:
        numbers = TrialNumbers()
        searches = [begin(procedure, space, goal, 0) for procedure in procedures]  # type: ignore[arg-type]
        return Tuners([Tuner(s, place=n, numbers=numbers, root="r") for n, s in enumerate(searches)], numbers)

    searches = {("", place): procedure for place, procedure in enumerate(procedures)}
    return StudyStages(searches, tuners, ["loss"], PARTITIONS), tuners


def figures(job: Job) -> list[tuple[int, float]]:
    return [(stage.trials, stage.seconds) for stage in job.stages]


def seconds(jobs: list[Job]) -> float:
    return math.fsum(stage.trials * stage.seconds for job in jobs for stage in job.stages)


class Run:
    """A simulated run that looks at what remains after every step."""

    def __init__(self, stages: StudyStages, tuners: Callable[[], Tuners]) -> None:
        self.engine = Engine(Settings(PARTITIONS))
        backend = SimulatedBackend(
            Cluster(workers=3, replicas=3), PARTITIONS, Workload(seconds=2.0, partitions=PARTITIONS).landscape()
        )
        self.seen: list[tuple[int, list[Job]]] = []
        self._units: list[int] = []

        def look(step: object) -> None:
            if not step.more:  # type: ignore[attr-defined]
                self.seen.append(stages.remaining(self.engine.state, TIMES))
                self._units.append(self.engine.state.units)

        drive(self.engine, backend, tuners(), [look])

    def at_units(self, counts: Sequence[int]) -> list[tuple[int, list[Job]]]:
        """Return what remained when so many units were trained, with all trials requested."""
        rows = list(zip(self._units, self.seen, strict=True))
        return [[seen for units, seen in rows if units <= count][-1] for count in counts]


def test_rungs_become_stages() -> None:
    stages, _ = stages_of(SuccessiveHalving(9, max_epochs=9))
    job, users = stages.jobs(TIMES)
    assert figures(job) == [(9, 8.0), (3, 16.0), (1, 48.0)]
    assert not users.stages
    assert not stages.simulated


def test_units_that_trials_share_count_once() -> None:
    rates = choice(*(multistep(0.1, at=[2], gamma=gamma) for gamma in (0.1, 0.2, 0.5)))
    job, _ = stages_of(Grid(epochs=3), space={"lr": rates})[0].jobs(TIMES)
    # Two epochs are common, and then each trains one of its own.
    [stage] = job.stages
    assert stage.trials == 3
    assert stage.seconds == pytest.approx((2 + 3) * PARTITIONS * 2.0 / 3)


def test_evaluations_and_hops_are_part_of_a_stage() -> None:
    stages, _ = stages_of(Random(trials=2, epochs=2))
    times = TrainingTimes(lambda _: 2.0, lambda _: 5.0, 0.5, noise=0.2)
    job, _ = stages.jobs(times)
    assert figures(job) == [(2, 2 * PARTITIONS * 2.5 + 2 * 5.0)]
    assert job.stages[0].spread == pytest.approx(job.stages[0].seconds * 0.2 / math.sqrt(2 * PARTITIONS))


def test_brackets_are_jobs_of_their_own_unless_they_wait_for_each_other() -> None:
    procedure = Hyperband(max_epochs=9)
    jobs = stages_of(procedure)[0].jobs(TIMES)
    assert [[stage.trials for stage in job.stages] for job in jobs] == [[9, 3, 1], [5, 1], [3], []]
    waiting = stages_of(Hyperband(max_epochs=9, sampler=Optuna("tpe")))[0].jobs(TIMES)
    assert [[stage.trials for stage in job.stages] for job in waiting] == [[9, 3, 1, 5, 1, 3], []]
    assert seconds(waiting) == pytest.approx(seconds(jobs))


def test_a_search_that_does_not_know_its_stages_is_simulated() -> None:
    stages, _ = stages_of(SuccessiveHalving(9, max_epochs=9), ASHA(9, max_epochs=9, concurrent=3))
    assert stages.simulated
    assert len(stages.jobs(TIMES)) == 3
    assert not stages_of(Random(trials=2, epochs=2))[0].simulated


def test_speed_ups_come_from_the_terms() -> None:
    stages = StudyStages({}, lambda: Tuners([], TrialNumbers()), [], PARTITIONS, JobTerms({1: 1.0, 2: 1.8}))
    assert stages.jobs(TIMES)[0].speed_ups == {1: 1.0, 2: 1.8}


@pytest.mark.parametrize(
    "procedure",
    [
        SuccessiveHalving(9, max_epochs=9, every=2),
        Hyperband(max_epochs=9),
        Hyperband(max_epochs=9, sampler=Optuna("tpe")),
        Random(trials=5, epochs=3),
    ],
)
def test_what_remains_falls_to_nothing_and_stages_end_one_by_one(procedure: object) -> None:
    stages, tuners = stages_of(procedure)
    run = Run(stages, tuners)
    whole = stages.jobs(TIMES)
    trained = run.engine.state.units * 2.0
    assert seconds(whole) == pytest.approx(trained)
    begun = next(index for index, (_, jobs) in enumerate(run.seen) if seconds(jobs) == pytest.approx(trained))
    ended = [closed for closed, _ in run.seen[begun:]]
    assert ended == sorted(ended)
    assert ended[-1] == sum(len(job.stages) for job in whole)
    left = [round(seconds(jobs), 6) for _, jobs in run.seen[begun:]]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0.0
    assert all(len(jobs) == len(whole) for _, jobs in run.seen)


def test_what_remains_of_a_simulated_search_is_an_estimate_that_ends_at_nothing() -> None:
    stages, tuners = stages_of(ASHA(12, max_epochs=9, concurrent=4))
    run = Run(stages, tuners)
    trained = run.engine.state.units * 2.0
    assert seconds(stages.jobs(TIMES)) == pytest.approx(trained, rel=0.5)
    ended = [closed for closed, _ in run.seen]
    assert ended == sorted(ended)
    assert seconds(run.seen[-1][1]) == 0.0


def test_what_remains_of_a_simulated_search_counts_what_it_will_still_ask_for() -> None:
    stages, tuners = stages_of(PBT(population=4, epochs=6, interval=2))
    run = Run(stages, tuners)
    whole = 4 * 6 * PARTITIONS * 2.0
    assert seconds(stages.jobs(TIMES)) == whole
    for done, (_, jobs) in zip(range(0, 96, 8), run.at_units(range(0, 96, 8)), strict=True):
        assert seconds(jobs) == pytest.approx(whole - done * 2.0, abs=8 * 4 * 2.0), done


def test_learned_times_change_what_remains() -> None:
    stages, tuners = stages_of(SuccessiveHalving(9, max_epochs=3))
    engine = Engine(Settings(PARTITIONS))
    for event in tuners().start():
        engine.state.note(event, 0.0, False, engine.step(event, 0.0))

    def slower(values: Values) -> float:
        return 4.0 if values.constants()["width"] == 32 else 2.0

    _, [job, _] = stages.remaining(engine.state, TrainingTimes(slower))
    wide = sum(trial.history[0].config[1][1] == 32 for trial in engine.trials.values())
    assert job.stages[0].seconds == pytest.approx(PARTITIONS * (2.0 + 2.0 * wide / 9))
    assert job.stages[1].seconds == pytest.approx(2 * PARTITIONS * (2.0 + 2.0 * wide / 9))


def test_trials_that_users_ask_for_are_a_job_of_their_own() -> None:
    stages, _ = stages_of(SuccessiveHalving(9, max_epochs=3))
    engine = Engine(Settings(PARTITIONS))
    event = TrialAsked(0, config_items({"lr": 0.5, "width": 8}), 2, asked_by=(-1, 0))
    engine.state.note(event, 0.0, False, engine.step(event, 0.0))
    _, [search, users] = stages.remaining(engine.state, TIMES)
    assert [stage.trials for stage in search.stages] == [9, 3]
    assert figures(users) == [(1, 2 * PARTITIONS * 2.0)]
