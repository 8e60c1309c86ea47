"""Early promotion: only of trials that stay whatever the others report, and what it saves."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.core.errors import WorkloadError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job, JobStage
from hoptree.elastic.promotion import certain_to_stay, early_promotion

INSTANCE = Instance("made-up", devices=1, price=3600.0, minimum=0.0)


def job(*trials: int, spread: float) -> Job:
    return Job(tuple(JobStage(count, 100.0, spread) for count in trials), {1: 1.0}, divisible=False)


@given(order=st.permutations(range(5)), reported=st.integers(0, 5), keep=st.integers(0, 5))
def test_exactly_the_trials_that_no_report_can_displace_are_certain(
    order: list[int], reported: int, keep: int
) -> None:
    losses = {str(trial): float(loss) for trial, loss in enumerate(order[:reported])}
    always = set(losses)
    for rest in itertools.product([-1.0, 9.0], repeat=5 - reported):
        every = losses | {f"other {number}": loss for number, loss in enumerate(rest)}
        always &= set(sorted(every, key=lambda name: every[name])[:keep])
    assert set(certain_to_stay(losses, 5, keep)) == always


def test_more_reports_than_trials_are_refused() -> None:
    with pytest.raises(WorkloadError, match="2 reported"):
        certain_to_stay({"a": 1.0, "b": 2.0}, 1, 1)


def test_nothing_is_saved_where_all_trials_end_together() -> None:
    saved = early_promotion(job(8, 4, 2, 1, spread=0.0), INSTANCE, [8, 4, 2, 1])
    assert (saved.seconds, saved.cost, saved.pays) == (0.0, 0.0, False)


def test_stragglers_do_not_hold_up_what_is_certain() -> None:
    saved = early_promotion(job(8, 4, 2, 1, spread=30.0), INSTANCE, [8, 4, 2, 1])
    assert saved.seconds > 0
    assert saved.pays
    assert early_promotion(job(8, 4, 2, 1, spread=30.0), INSTANCE, [8, 4, 2, 1]) == saved


def test_trials_that_take_turns_all_train() -> None:
    # Three devices: the third round of the first stage leaves one free for what is certain.
    saved = early_promotion(job(8, 4, 1, spread=10.0), INSTANCE, [3, 2, 1])
    assert -200.0 < saved.seconds < 200.0
