"""The engine keeps its eight promises through any history."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.histories import History


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**63), st.integers(5, 120), st.booleans())
def test_invariants_hold_and_every_trial_ends(seed: int, steps: int, learns: bool) -> None:
    History(Random(seed), steps, learns=learns).run()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**63), st.booleans())
def test_a_journal_rebuilds_the_engine_at_every_prefix(seed: int, learns: bool) -> None:
    history = History(Random(seed), 50, learns=learns)
    history.run()
    folded = history.fresh_engine()
    live = history.fresh_engine()
    for index, (event, now, more) in enumerate(history.journal):
        assert folded.snapshot() == live.snapshot()
        assert folded.step(event, now, more=more) == history.actions[index]
        live.step(event, now, more=more)
    assert folded.snapshot() == history.engine.snapshot()


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(40))
def test_twenty_thousand_histories(chunk: int) -> None:
    for seed in range(chunk * 500, (chunk + 1) * 500):
        try:
            History(Random(seed), 20 + seed % 100, learns=seed % 3 == 0).run()
        except BaseException as error:
            raise AssertionError(f"history {seed}") from error


@pytest.mark.parametrize("seed", [26, 38, 5580, 7867, 10138, 10699, 12038])
def test_histories_that_once_broke_a_promise(seed: int) -> None:
    History(Random(seed), 20 + seed % 100).run()
