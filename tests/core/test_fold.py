"""Folding a journal decides nothing, and refuses entries that contradict each other."""

from __future__ import annotations

from random import Random
from typing import Any, NoReturn

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core import policies
from hoptree.core.dispatch import Dispatcher
from hoptree.core.engine import Engine
from hoptree.core.errors import ProtocolError
from hoptree.core.events import TrialAsked, WorkerJoined
from hoptree.core.fact_reader import fold
from hoptree.core.fact_writer import FactWriter
from hoptree.core.facts import (
    Entry,
    EvaluationGiven,
    FactPlace,
    RunCancelledFact,
    RunFailedFact,
    StateEvaluatedFact,
    StateSavedFact,
    TrialEnded,
    TrialReported,
    UnitFinishedFact,
    UnitGiven,
)
from hoptree.core.lineage import config_items
from hoptree.core.policies import POLICIES
from hoptree.core.ready import ReadyQueue
from hoptree.core.settings import Settings
from hoptree.core.snapshots import snapshot_of
from hoptree.core.study_state import StudyState
from tests.histories import History

TimedEntry = tuple[float, Entry]


def folded(settings: Settings, journal: list[TimedEntry]) -> StudyState:
    state = StudyState(settings)
    fold(state, journal)
    return state


def told(state: StudyState) -> list[tuple[Any, ...]]:
    """Return what a user sees of every trial."""
    return [
        (trial.number, trial.history, trial.until, trial.reached, trial.ending, trial.reason, trial.curve)
        for trial in state.trials.values()
    ]


def best(state: StudyState) -> int | None:
    """Return the trial with the lowest last loss."""
    last = {number: trial.curve[max(trial.curve)]["loss"] for number, trial in state.trials.items() if trial.curve}
    return min(last, key=lambda number: (last[number], number)) if last else None


# --- whoever reads it, a journal means the same -----------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**63),
    learns=st.booleans(),
    policy=st.sampled_from(POLICIES),
    ahead=st.booleans(),
    affinity=st.booleans(),
    other_seed=st.integers(0, 9),
)
def test_a_journal_folds_to_the_same_state_under_any_policy(
    seed: int, learns: bool, policy: Any, ahead: bool, affinity: bool, other_seed: int
) -> None:
    history = History(Random(seed), 40, learns=learns)
    history.run()
    changed = msgspec.structs.replace(
        history.settings, policy=policy, ahead=ahead, affinity=affinity, seed=other_seed
    )
    state = folded(changed, history.journal)
    assert told(state) == told(history.engine.state)
    assert best(state) == best(history.engine.state)
    assert snapshot_of(state, 0.0) == snapshot_of(history.engine.state, 0.0)


def test_a_state_has_one_report_the_first() -> None:
    """Pinned: a report came from the store while the state was evaluated, and a snapshot told trials the second."""
    history = History(Random(17543), 40, learns=True)
    history.run()
    assert told(folded(history.settings, history.journal)) == told(history.engine.state)


def forbidden(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("a fold has asked for a decision")


def methods_of(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if callable(value)]


@pytest.mark.parametrize("seed", range(12))
def test_a_fold_calls_neither_policy_nor_dispatcher(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(Random(seed), 60, learns=seed % 2 == 0)
    history.run()
    expected = snapshot_of(history.engine.state, 0.0)
    kinds = [
        kind for kind in vars(policies).values() if isinstance(kind, type) and issubclass(kind, policies.Policy)
    ]
    assert len(kinds) > len(POLICIES)
    for kind in (Dispatcher, ReadyQueue, Engine, *kinds):
        for name in methods_of(kind):
            monkeypatch.setattr(kind, name, forbidden)
    assert snapshot_of(folded(history.settings, history.journal), 0.0) == expected


@pytest.mark.parametrize("seed", range(6))
def test_an_engine_that_continues_from_a_fold_knows_all_that_the_one_before_knew(seed: int) -> None:
    history = History(Random(seed), 40)
    history.run()
    state = folded(history.settings, history.journal)
    engine = history.fresh_engine(state)
    assert snapshot_of(engine.state, 0.0) == snapshot_of(history.engine.state, 0.0)
    assert engine.trials is state.trials


# --- entries that contradict each other -------------------------------------------------------------------


STUDY = Settings(partitions=2, ahead=False)
ASKED = TrialAsked(0, config_items({"lr": 0.1}), until=1)


def begun() -> tuple[list[TimedEntry], FactPlace]:
    """Return the journal of a trial whose first unit was given to worker w, and the place of that unit."""
    engine = Engine(STUDY)
    writer = FactWriter(engine.state)
    events = (ASKED, WorkerJoined("w", (0, 1)))
    steps = [engine.state.note(event, 0.0, False, engine.step(event, 0.0)) for event in events]
    journal = [(step.now, writer.entry(step)) for step in steps]
    (given,) = journal[-1][1].decided
    assert isinstance(given, UnitGiven)
    return journal, given.at


def refused(*entries: Entry, match: str) -> None:
    journal, _ = begun()
    state = folded(STUDY, journal)
    *before, last = entries
    fold(state, [(1.0, entry) for entry in before])
    with pytest.raises(ProtocolError, match=match):
        fold(state, [(1.0, last)])


JOURNAL, AT = begun()
PARTITION = JOURNAL[-1][1].decided[0].partition  # type: ignore[union-attr]
FINISHED = UnitFinishedFact(0, "w", AT, PARTITION)
NEXT = msgspec.structs.replace(AT, unit=AT.unit + 1)


@pytest.mark.parametrize(
    "event",
    [
        UnitFinishedFact(7, "w", AT, PARTITION),
        UnitFinishedFact(0, "v", AT, PARTITION),
        RunFailedFact(7, "w", AT, "it broke", "user", PARTITION),
        RunCancelledFact(7, "w", AT, PARTITION),
        StateEvaluatedFact(7, "w", AT, {"loss": 1.0}),
    ],
)
def test_a_finished_run_was_assigned_before(event: Any) -> None:
    refused(Entry(event), match=f"run {event.run} of {event.worker}: it ended, but no entry before assigns it")


def test_a_unit_does_not_end_twice() -> None:
    refused(Entry(FINISHED), Entry(FINISHED), match="run 0 of w: it ended, but no entry before assigns it")


@pytest.mark.parametrize(
    "event",
    [
        UnitFinishedFact(0, "w", NEXT, PARTITION),
        UnitFinishedFact(0, "w", msgspec.structs.replace(AT, lineage="0" * 32), PARTITION),
        UnitFinishedFact(0, "w", msgspec.structs.replace(AT, tree="study/0"), PARTITION),
        RunFailedFact(0, "w", NEXT, "it broke", "user", PARTITION),
        RunCancelledFact(0, "w", NEXT, PARTITION),
    ],
)
def test_a_finished_run_is_the_assigned_one(event: Any) -> None:
    refused(Entry(event), match=f"run 0 of w: it was assigned unit 0 of {AT.lineage}, and ended")


@pytest.mark.parametrize("kind", [UnitFinishedFact, RunCancelledFact])
def test_a_finished_run_names_the_assigned_partition(kind: Any) -> None:
    other = 1 - PARTITION
    refused(Entry(kind(0, "w", AT, other)), match=f"it was assigned partition {PARTITION}, and ended {other}")


def test_a_unit_is_trained_before_it_is_evaluated() -> None:
    refused(Entry(StateEvaluatedFact(0, "w", NEXT, {"loss": 1.0})), match="run 0 of w: it was training")


def test_an_evaluation_trains_nothing() -> None:
    given = Entry(FINISHED, (EvaluationGiven(1, "w", NEXT),))
    refused(given, Entry(UnitFinishedFact(1, "w", NEXT, -1)), match="run 1 of w: it was evaluating")


@pytest.mark.parametrize("given", [UnitGiven(0, "v", NEXT, 0), EvaluationGiven(0, "v", NEXT)])
def test_a_running_unit_is_not_assigned_again(given: Any) -> None:
    refused(Entry(WorkerJoined("v", (0,)), (given,)), match="run 0 of v: it was assigned to w before")


NOWHERE = FactPlace("f" * 32, 2)


@pytest.mark.parametrize(
    "entry",
    [
        Entry(StateSavedFact(NOWHERE)),
        Entry(FINISHED, (UnitGiven(1, "w", NOWHERE, 0),)),
        Entry(FINISHED, (EvaluationGiven(1, "w", NOWHERE),)),
        Entry(StateSavedFact(msgspec.structs.replace(AT, tree="study/0"))),
    ],
)
def test_an_unknown_lineage_is_refused(entry: Entry) -> None:
    refused(entry, match="lineage [0-9a-f]{32} at unit .: no trial before this entry passes it")


def test_a_unit_branches_from_where_its_lineage_does() -> None:
    given = UnitGiven(1, "w", NEXT, 0, source="e" * 32)
    refused(Entry(FINISHED, (given,)), match=f"lineage {AT.lineage}: it branches from [0-9a-f]+, not from eeee")


def test_a_report_without_an_evaluation_is_refused() -> None:
    refused(
        Entry(FINISHED, (TrialReported(0, 1),)),
        match="trial 0: the journal reports epoch 1, but no entry before evaluates it",
    )


def test_a_trial_that_was_not_requested_is_refused() -> None:
    refused(Entry(FINISHED, (TrialReported(5, 1),)), match="trial 5: the journal reports metrics to it")
    refused(Entry(FINISHED, (TrialEnded(5, "stopped"),)), match="trial 5 was never requested")
