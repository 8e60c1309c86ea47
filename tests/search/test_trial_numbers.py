"""A trial has one number: dense in its study, unique in its engine, and the same after a restart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hoptree.core.events import USER, Asker
from hoptree.core.lineage import Phase, config_items
from hoptree.core.plan import Trial
from hoptree.search.trial_numbers import TrialNumbers

STUDIES = ("a", "b", "c")
ASKERS = st.tuples(st.integers(USER, 2), st.integers(0, 5))


def trial(number: int, study: str, asked_by: Asker | None) -> Trial:
    made = Trial(number, (Phase(0, config_items({"lr": 0.1})),), "", study, 0)
    made.asked_by = asked_by
    return made


@given(st.lists(st.tuples(st.sampled_from(STUDIES), ASKERS)), st.integers(1, 3))
def test_the_nth_trial_of_a_study_is_number_n(asked: list[tuple[str, Asker]], count: int) -> None:
    studies = STUDIES[:count]
    numbers = TrialNumbers(studies)
    given_out: dict[tuple[str, Asker], int] = {}
    for study, asker in asked:
        if study in studies:
            number = numbers.number(study, asker)
            assert given_out.setdefault((study, asker), number) == number
            assert numbers.asker(number) == (study, asker)
    assert len(set(given_out.values())) == len(given_out)
    for study in studies:
        shown = [numbers.within_study(number) for (of, _), number in given_out.items() if of == study]
        assert shown == list(range(len(shown)))


@given(st.lists(ASKERS, unique=True), st.randoms(use_true_random=False))
def test_a_request_after_a_restart_gets_the_same_number(asked: list[Asker], chance: object) -> None:
    before = TrialNumbers(("a",))
    known = {asker: before.number("a", asker) for asker in asked}
    after = TrialNumbers(("a",))
    after.recall(trial(number, "a", asker) for asker, number in known.items())
    chance.shuffle(asked)  # type: ignore[attr-defined]
    assert {asker: after.number("a", asker) for asker in asked} == known
    assert after.number("a", (9, 0)) == len(known)  # new trials come after


def test_a_trial_without_a_search_keeps_its_number() -> None:
    numbers = TrialNumbers(("a",))
    numbers.recall([trial(0, "a", None), trial(3, "other", (0, 0))])
    assert numbers.asker(0) is None
    assert numbers.number("a", (0, 0)) == 1
