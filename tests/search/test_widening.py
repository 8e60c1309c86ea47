"""Widened searches: given the reports of the journal, they request only what is missing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

import hoptree as ht
from hoptree.backends.event_loop import drive
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.actions import RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import DriverStarted, TrialAsked, TrialBranched, TrialExtended, TrialStopped
from hoptree.core.fact_writer import FactWriter
from hoptree.core.facts import Entry, FactPlace, RunFailedFact, TrialEnded
from hoptree.core.settings import Settings
from hoptree.core.steps import Step
from hoptree.record.record import Record
from hoptree.search.errors import NoExtensionError
from hoptree.search.plain_data import rebuild_setting, rebuild_space, setting_data, space_data
from hoptree.search.protocol import Goal, Search
from hoptree.search.streams import share
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.search.tuner import Tuner, Tuners
from hoptree.search.widening import SearchVersion, is_wider, searches
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Landscape
from hoptree.store.journal import Recorded

ASKED = TrialAsked | TrialBranched | TrialExtended | TrialStopped
GOAL = Goal("loss", maximize=False)
SPACE: dict[str, Any] = {"lr": ht.log(1e-4, 1.0), "width": ht.choice(8, 16, 32)}
SMALL: dict[str, Any] = {"lr": ht.choice(0.1, 0.2), "width": ht.choice(8, 16)}
WIDE: dict[str, Any] = {"lr": ht.choice(0.1, 0.15, 0.2), "width": ht.choice(8, 16, 32)}


class Begun(msgspec.Struct):
    """A simulated study: its versions as in the catalog, and its journal."""

    versions: list[SearchVersion] = []
    journal: list[Recorded] = []
    asked: int = 0  # units trained by the last run


def stored(version: SearchVersion) -> SearchVersion:
    """Return a version as it is read from the catalog."""
    return msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(version))), SearchVersion)


def run(begun: Begun, procedure: Any, space: Any, steps: int | None = None) -> Record:
    """Resume a study, to the end or for some steps, like a driver: fold, then drive."""
    procedures = procedure if isinstance(procedure, list) else [procedure]
    if not begun.versions or is_wider(procedures, space, GOAL, 0, begun.versions):
        begun.versions.append(stored(SearchVersion.of(procedures, space)))
    found = searches(procedures, space, GOAL, 0, begun.versions)
    record = Record(Settings(partitions=2, retries=0))
    numbers = TrialNumbers()
    tuner = Tuners([Tuner(each, place=place, numbers=numbers) for place, each in enumerate(found)], numbers)
    owed = record.resume(tuner, begun.journal, numbers)

    engine, writer = Engine(record.settings, state=record.state), FactWriter(record.state)

    def note(step: Step) -> None:
        begun.journal.append(Recorded(len(begun.journal) + 1, step.now, writer.entry(step)))
        record.note(step)

    def enough() -> bool:
        return steps is not None and len(begun.journal) >= steps

    first = [DriverStarted(), *owed]
    backend = SimulatedBackend(Cluster(workers=3, replicas=3), 2, Landscape(lambda _: 1.0, metrics))
    if owed or record.live:
        drive(engine, backend, tuner, [note], first, None, enough, record.now)
    begun.asked = backend.units
    return record


def metrics(_values: Any, epoch: int, key: str) -> dict[str, float]:
    return {"loss": share(key, epoch) + 1 / (1 + epoch)}


def trials(record: Record) -> list[tuple[Any, int, str | None]]:
    """Return all trials as a set that does not depend on their numbers."""
    return sorted((repr(trial.history), trial.epochs, trial.ending) for trial in record.trials)


def lr(count: int) -> dict[str, Any]:
    return {"lr": ht.choice(*(0.1 * n for n in range(1, count + 1))), "width": ht.choice(8, 16)}


def versions(kind: Any, *settings: dict[str, Any], **same: Any) -> tuple[list[Any], list[Any]]:
    """Return three versions of a procedure over one space."""
    return [kind(**same, **each) for each in settings], [SPACE] * len(settings)


CASES: list[tuple[list[Any], list[Any]]] = [
    versions(ht.Random, {"trials": 4, "epochs": 2}, {"trials": 7, "epochs": 2}, {"trials": 9, "epochs": 4}),
    versions(
        ht.Random, {"trials": 4, "epochs": 2}, {"trials": 4, "epochs": 3}, {"trials": 6, "epochs": 3}, every=0
    ),
    versions(ht.Random, {"trials": 4}, {"trials": 7}, {"trials": 8}, epochs=2, sampler="sobol"),
    ([ht.Grid(epochs=2), ht.Grid(epochs=2), ht.Grid(epochs=4)], [lr(2), lr(3), lr(5)]),
    ([ht.Grid(epochs=2), ht.Grid(epochs=3), ht.Grid(epochs=4)], [SMALL, SMALL, WIDE]),
    versions(ht.Optuna, {"trials": 6}, {"trials": 11}, {"trials": 16}, method="tpe", epochs=2),
    versions(ht.PBT, {"epochs": 4}, {"epochs": 6}, {"epochs": 9}, population=4, interval=2),
    versions(ht.Hyperband, {"rounds": 1}, {"rounds": 2}, {"rounds": 4}, max_epochs=4, factor=2),
    versions(ht.SuccessiveHalving, {"max_epochs": 2}, {"max_epochs": 4}, {"max_epochs": 8}, trials=16, factor=2),
]
NAMES = [f"{type(procedures[0]).__name__}-{number}" for number, (procedures, _) in enumerate(CASES)]


@pytest.fixture(params=range(len(CASES)), ids=NAMES)
def case(request: pytest.FixtureRequest) -> tuple[list[Any], list[Any]]:
    return CASES[request.param]


def scratch(case: tuple[list[Any], list[Any]], version: int) -> tuple[Record, int]:
    begun = Begun()
    record = run(begun, case[0][version], case[1][version])
    return record, begun.asked


def test_widened_when_it_is_complete_and_again(case: tuple[list[Any], list[Any]]) -> None:
    begun = Begun()
    trained = 0
    for version, (procedure, space) in enumerate(zip(*case, strict=True)):
        record = run(begun, procedure, space)
        trained += begun.asked
        alone, units = scratch(case, version)
        assert trials(record) == trials(alone)
        assert trained == units  # only what is new
    assert len(begun.versions) == 3
    entries = len(begun.journal)
    assert trials(run(begun, case[0][2], case[1][2])) == trials(record)
    assert len(begun.journal) == entries  # nothing is requested again


@pytest.mark.parametrize("killed", [3, 17, 40])
def test_widened_in_the_middle(case: tuple[list[Any], list[Any]], killed: int) -> None:
    begun = Begun()
    run(begun, case[0][0], case[1][0], steps=killed)
    run(begun, case[0][1], case[1][1], steps=killed + 9)
    record = run(begun, case[0][2], case[1][2])
    assert trials(record) == trials(scratch(case, 2)[0])
    events = [recorded.entry.event for recorded in begun.journal]
    numbers = [event.trial for event in events if isinstance(event, TrialAsked | TrialBranched)]
    assert len(numbers) == len(set(numbers)) == len(record.trials)  # each is requested once


def test_widened_twice_before_the_first_had_results(case: tuple[list[Any], list[Any]]) -> None:
    begun = Begun()
    run(begun, case[0][0], case[1][0])
    begun.versions.append(stored(SearchVersion.of([case[0][1]], case[1][1])))  # killed right then
    assert trials(run(begun, case[0][2], case[1][2])) == trials(scratch(case, 2)[0])


def test_a_widened_grid_keeps_its_numbers() -> None:
    begun = Begun()
    before = run(begun, ht.Grid(epochs=2), SMALL)
    after = run(begun, ht.Grid(epochs=2), WIDE)
    for number, trial in before.by_number.items():
        assert after.by_number[number].history == trial.history
    assert list(after.by_number) == list(range(9))


@pytest.mark.parametrize("killed", [None, 25])
def test_new_trials_of_a_widened_procedure_do_not_affect_the_others(killed: int | None) -> None:
    """Its new trials come late in the journal, after later decisions of others."""
    others = [ht.PBT(4, epochs=4, interval=2), ht.SuccessiveHalving(4, max_epochs=4, factor=2)]
    begun = Begun()
    run(begun, [ht.Random(3, epochs=2), *others], SPACE, steps=killed)
    record = run(begun, [ht.Random(6, epochs=3), *others], SPACE)
    assert trials(record) == trials(run(Begun(), [ht.Random(6, epochs=3), *others], SPACE))
    asked = [recorded.entry.event for recorded in begun.journal if isinstance(recorded.entry.event, ASKED)]
    assert len(asked) == len(set(asked))  # nothing is requested twice
    entries = len(begun.journal)
    run(begun, [ht.Random(6, epochs=3), *others], SPACE)
    assert len(begun.journal) == entries


def test_failed_trials_do_not_block_the_search() -> None:
    """What failed is not trained further, and what is new is trained."""
    begun = Begun()
    run(begun, ht.Random(3, epochs=2), SPACE, steps=8)
    record = Record(Settings(partitions=2, retries=0))
    for _ in record.replay(begun.journal):
        pass
    engine = Engine(record.settings, state=record.state)
    run_ = next(run_ for run_ in record.state.runs.under_way() if isinstance(run_, RunUnit))
    (trial,) = (t for t in record.trials if engine.plan.path_with_ends(t, run_.unit + 1)[-1][0].id == run_.node)
    failed = RunFailedFact(
        run_.run, run_.worker, FactPlace(run_.key, run_.unit, run_.tree), "it broke", "user", run_.partition
    )
    ended = TrialEnded(trial.number, "failed", "it broke")
    begun.journal.append(Recorded(len(begun.journal) + 1, record.now, Entry(failed, (ended,))))
    after = run(begun, ht.Random(5, epochs=4), SPACE)
    endings = [(trial.ending, trial.until) for trial in after.trials]
    assert endings.count(("complete", 4)) == 4
    assert [ending for ending, _ in endings].count("failed") == 1


# --- asynchronous searches: what is asked for follows the order of the reports ----------------------------


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ht.MedianStopping(8, epochs=4, startup=2), ht.MedianStopping(14, epochs=4, startup=2)),
        (ht.ASHA(8, max_epochs=4, factor=2, mode="stop"), ht.ASHA(14, max_epochs=8, factor=2, mode="stop")),
    ],
)
@pytest.mark.parametrize("killed", [None, 30])
def test_asynchronous_searches(first: Any, second: Any, killed: int | None) -> None:
    begun = Begun()
    before = run(begun, first, SPACE, steps=killed)
    after = run(begun, second, SPACE)
    assert len(after.by_number) == 14
    for number, trial in before.by_number.items():
        assert after.by_number[number].history == trial.history
    configs = {trial.history[0].config for trial in after.trials}
    alone = run(Begun(), second, SPACE)
    assert configs == {trial.history[0].config for trial in alone.trials}
    entries = len(begun.journal)
    run(begun, second, SPACE)
    assert len(begun.journal) == entries


# --- what is no extension ---------------------------------------------------------------------------------


class Other(msgspec.Struct, frozen=True):
    """A procedure of a user's, that cannot be widened."""

    trials: int

    def search(self, space: Any, goal: Goal, seed: int) -> Search:
        return ht.Random(self.trials, epochs=1).search(space, goal, seed)


@dataclasses.dataclass(frozen=True)
class Widening:
    """One that can be."""

    trials: int

    def search(self, space: Any, goal: Goal, seed: int) -> Search:
        return ht.Random(self.trials, epochs=1).search(space, goal, seed)

    def widen(self, earlier: Sequence[Any], space: Any, goal: Goal, seed: int) -> Search:
        assert all(isinstance(before.procedure, Widening) for before in earlier)
        return self.search(space, goal, seed)


def small(config: dict[str, Any]) -> bool:
    return bool(config["lr"] < 10)


def large(config: dict[str, Any]) -> bool:
    return bool(config["lr"] > 1e-9)


NONE: list[tuple[Any, Any, str]] = [
    (ht.Random(4, epochs=2), ht.Random(3, epochs=2), "trials: was 4, is 3, which is less"),
    (ht.Random(4, epochs=2), ht.Random(4, epochs=1), "epochs: was 2, is 1, which is less"),
    (ht.Random(4, epochs=2), ht.Random(5, epochs=2, every=2), "every: was 1, is 2"),
    (ht.Random(4, epochs=2), ht.Random(5, epochs=2, sampler="sobol"), "sampler: was 'random', is 'sobol'"),
    (
        ht.Random(4, epochs=2, sampler="latin-hypercube"),
        ht.Random(5, epochs=2, sampler="latin-hypercube"),
        "trials: a Latin hypercube is built for a fixed number of configs",
    ),
    (ht.Random(4, epochs=2), ht.PBT(4, epochs=4, interval=2), "was Random, is PBT"),
    (
        ht.Optuna("tpe", trials=4, epochs=2),
        ht.Optuna("tpe", trials=4, epochs=3),
        "epochs: was 2, is 3",
    ),
    (ht.Optuna("tpe", trials=4, epochs=2), ht.Optuna("cmaes", trials=8, epochs=2), "method: was 'tpe', is 'cmaes'"),
    (ht.PBT(4, epochs=4, interval=2), ht.PBT(6, epochs=4, interval=2), "population: was 4, is 6"),
    (ht.PBT(4, epochs=3, interval=2), ht.PBT(4, epochs=6, interval=2), "the last generation ended after 3 epochs"),
    (ht.Hyperband(max_epochs=4), ht.Hyperband(max_epochs=9), "max_epochs: was 4, is 9"),
    (ht.SuccessiveHalving(9, max_epochs=9), ht.SuccessiveHalving(27, max_epochs=9), "trials: was 9, is 27"),
    (
        ht.SuccessiveHalving(27, max_epochs=8),
        ht.SuccessiveHalving(27, max_epochs=9),
        r"max_epochs: rungs were at \[1, 3, 8\], are at \[1, 3, 9\]",
    ),
    (ht.ASHA(9, max_epochs=9), ht.ASHA(18, max_epochs=9), "with mode='promote' the paused trials are stopped"),
    (ht.MedianStopping(4, epochs=4), ht.MedianStopping(4, epochs=6), "epochs: was 4, is 6"),
    (Other(3), Other(4), "trials: was 3, is 4"),
]


@pytest.mark.parametrize(("before", "after", "why"), NONE)
def test_a_search_that_is_not_an_extension_is_refused_with_the_difference(
    before: Any, after: Any, why: str
) -> None:
    version = stored(SearchVersion.of([before], SPACE))
    with pytest.raises(NoExtensionError, match=why):
        is_wider([after], SPACE, GOAL, 0, [version])


def test_a_space_that_lost_or_changed_something_is_refused() -> None:
    version = stored(SearchVersion.of([ht.Grid(epochs=2)], WIDE))
    for space in (SMALL, {**WIDE, "momentum": 0.9}, {"lr": WIDE["lr"]}):
        with pytest.raises(NoExtensionError, match=r"the config \{.*'width': \d+\} was in the grid and is not"):
            is_wider([ht.Grid(epochs=2)], space, GOAL, 0, [version])
    version = stored(SearchVersion.of([ht.Random(2, epochs=2)], SMALL))
    with pytest.raises(NoExtensionError, match="the space has changed, and only a Grid can take additional values"):
        is_wider([ht.Random(2, epochs=2)], WIDE, GOAL, 0, [version])


def test_conditions_are_those_of_the_present_space_if_they_do_the_same() -> None:
    version = stored(SearchVersion.of([ht.Grid(epochs=2)], ht.where(SMALL, small)))
    assert is_wider([ht.Grid(epochs=2)], ht.where(WIDE, small), GOAL, 0, [version])
    assert not is_wider([ht.Grid(epochs=2)], ht.where(SMALL, small), GOAL, 0, [version])
    with pytest.raises(NoExtensionError, match="the code of the condition large differs from that of small"):
        is_wider([ht.Grid(epochs=2)], ht.where(WIDE, large), GOAL, 0, [version])
    with pytest.raises(NoExtensionError, match="where: was 1 conditions, is 0"):
        is_wider([ht.Grid(epochs=2)], WIDE, GOAL, 0, [version])


def test_more_or_fewer_procedures_are_refused() -> None:
    version = stored(SearchVersion.of([ht.Random(2, epochs=1)], SPACE))
    with pytest.raises(NoExtensionError, match="the number of procedures was 1, is 2"):
        is_wider([ht.Random(2, epochs=1)] * 2, SPACE, GOAL, 0, [version])


def test_one_of_several_procedures_is_widened() -> None:
    mine = Other(2)
    version = stored(SearchVersion.of([mine, ht.Random(2, epochs=1)], SPACE))
    assert is_wider([mine, ht.Random(4, epochs=1)], SPACE, GOAL, 0, [version])
    assert not is_wider([mine, ht.Random(2, epochs=1)], SPACE, GOAL, 0, [version])


def test_a_later_format_is_refused() -> None:
    version = msgspec.structs.replace(SearchVersion.of([ht.Random(2, epochs=1)], SPACE), format=9)
    with pytest.raises(NoExtensionError, match="the store describes it in format 9; this Hoptree reads 1"):
        is_wider([ht.Random(4, epochs=1)], SPACE, GOAL, 0, [version])


def test_a_procedure_of_the_users_own_can_be_widened() -> None:
    begun = Begun()
    run(begun, Widening(3), SPACE)
    assert len(run(begun, Widening(5), SPACE).by_number) == 5


# --- plain data -------------------------------------------------------------------------------------------


def stepping(space: Any, seed: int) -> Any:
    return None


def test_settings_come_back_from_their_data() -> None:
    for value in (
        ht.Random(4, epochs=2, sampler=stepping),
        ht.Hyperband(9, sampler=ht.Optuna("tpe", options={"n_startup_trials": 3})),
        ht.PBT(4, epochs=4, interval=2, factors=[0.5, 2.0], change=["lr"]),
    ):
        data = json.loads(json.dumps(setting_data(value)))
        assert rebuild_setting(data, value) == value
    data = setting_data(ht.Hyperband(9, sampler=ht.Optuna("tpe", options={"n_startup_trials": 3})))
    present = ht.Hyperband(9, rounds=2, sampler=ht.Optuna("tpe", options={"n_startup_trials": 5}))
    assert rebuild_setting(data, present).sampler.options == {"n_startup_trials": 3}


def test_a_setting_that_was_added_later_has_its_default() -> None:
    data = setting_data(ht.Random(4, epochs=2))
    del data["record"][1]["every"]
    assert rebuild_setting(data, ht.Random(7, epochs=2)) == ht.Random(4, epochs=2)


def test_spaces_come_back_from_their_data() -> None:
    space = {
        "lr": ht.choice(0.1, 1, True, None, "a", ht.warmup(0.0, 1, ht.cosine(0.1, period=4))),
        "schedule": ht.multistep(ht.log(1e-4, 0.1), at=ht.choice([4], [4, 8]), gamma=0.5),
        "steps": ht.uniform(0.0, 1.0, step=0.25),
        "count": ht.integer(1, 64, log=True),
        "optimizer": ht.choice(
            ht.where({"name": "sgd", "momentum": ht.uniform(0, 1)}, large_momentum), {"name": "adam"}
        ),
    }
    data = json.loads(json.dumps(space_data(space)))
    again = rebuild_space(data, space)
    assert space_data(again) == data == space_data(space)
    drawn = [ht.Random(9, epochs=1).search(each, GOAL, 3).start() for each in (space, again)]
    assert drawn[0] == drawn[1]


def large_momentum(config: dict[str, Any]) -> bool:
    return bool(config["momentum"] > 0.2)
