"""The engine keeps its nine promises through any history."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.fact_reader import fold
from hoptree.core.snapshots import Snapshot, read_snapshot, snapshot_of, take_snapshot
from hoptree.core.steps import Step
from hoptree.core.study_state import StudyState
from hoptree.store.records import decode, encode
from tests.histories import History


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**63), st.integers(5, 120), st.booleans(), st.booleans(), st.booleans())
def test_invariants_hold_and_every_trial_ends(
    seed: int, steps: int, learns: bool, retries: bool, rebases: bool
) -> None:
    History(Random(seed), steps, learns=learns, retries=retries, rebases=rebases).run()


class Watched(History):
    """A history that takes a snapshot of its engine's state after every entry of the journal."""

    def __init__(self, random: Random, steps: int, *, learns: bool, retries: bool, rebases: bool) -> None:
        super().__init__(random, steps, learns=learns, retries=retries, rebases=rebases)
        self.snapshots: list[Snapshot] = []

    def record(self, step: Step) -> None:
        super().record(step)
        self.snapshots.append(snapshot_of(self.engine.state, step.now))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**63), st.booleans(), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_a_journal_gives_the_state_of_the_engine_at_every_prefix(
    seed: int, learns: bool, retries: bool, rebases: bool, chance: Random
) -> None:
    history = Watched(Random(seed), 50, learns=learns, retries=retries, rebases=rebases)
    history.run()
    state = StudyState(history.settings)
    for (now, entry), expected in zip(history.journal, history.snapshots, strict=True):
        back = decode(encode(entry))
        assert repr(back) == repr(entry)
        fold(state, [(now, back)])
        assert snapshot_of(state, now) == expected
        if chance.random() < 0.1:
            state, time = read_snapshot(take_snapshot(state, now), history.settings)
            assert time == now
            assert snapshot_of(state, now) == expected
    assert snapshot_of(state, history.now) == snapshot_of(history.engine.state, history.now)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(40))
def test_twenty_thousand_histories(chunk: int) -> None:
    for seed in range(chunk * 500, (chunk + 1) * 500):
        try:
            History(Random(seed), 20 + seed % 100, learns=seed % 3 == 0).run()
        except BaseException as error:
            raise AssertionError(f"history {seed}") from error


@pytest.mark.parametrize("seed", [26, 38, 5580, 7867, 10138, 10699, 12038])
def test_histories_that_once_broke_an_invariant(seed: int) -> None:
    History(Random(seed), 20 + seed % 100).run()


def test_a_run_beside_the_evaluation_of_a_lost_state_may_be_cancelled() -> None:
    """Pinned: a state was lost while it was evaluated, a trial that wanted it trained again was stopped."""
    History(Random(1003423), 83, learns=True, retries=True).run()
