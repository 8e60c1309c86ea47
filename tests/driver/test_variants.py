"""Which variant fits the present environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.core.errors import StudyChangedError
from hoptree.driver.variants import (
    SessionObservations,
    Variants,
    choose,
    contradictions,
    explain_refused,
    probe_key,
)
from hoptree.identity.observation import present
from hoptree.store import Store
from hoptree.store.origins import VariantOrigin

HERE = {"architecture": "x86_64", "torch": "2.13"}
THERE = {"architecture": "x86_64", "torch": "2.14"}
SUBJECTS = st.dictionaries(st.sampled_from(["file:a", "file:b", "module:c"]), st.sampled_from(["", "1", "2"]))


@given(SUBJECTS, SUBJECTS, SUBJECTS)
def test_an_origin_fits_unless_something_that_both_have_seen_differs(
    known: dict[str, str], now: dict[str, str], seen: dict[str, str]
) -> None:
    current = {**now, **seen}
    found = contradictions(VariantOrigin("v", "r", HERE, observations=known), SessionObservations(seen, {}), now)
    assert len(found) == sum(known[each] != current[each] for each in known.keys() & current.keys())


def test_the_first_that_fits_is_used_and_the_one_of_the_study_before_it() -> None:
    origins = [
        VariantOrigin("old", "r", HERE, 0, observations={"file:w": "1"}),
        VariantOrigin("new", "r", HERE, 1, observations={"file:w": "2"}),
        VariantOrigin("newer", "r", HERE, 2),
    ]

    def chosen(digest: str, used: str = "") -> str:
        found = choose(origins, SessionObservations({}, {}), lambda _: {"file:w": digest}, used).origin
        return "" if found is None else found.variant

    assert [chosen("1"), chosen("2"), chosen("3")] == ["old", "new", "newer"]
    assert [chosen("1", "newer"), chosen("2", "old")] == ["newer", "new"]


def test_a_probe_is_compared_where_the_same_config_was_probed() -> None:
    key = probe_key({"lr": 0.1, "width": 3})
    origin = VariantOrigin("v", "r", HERE, probes={key: "aa"})
    assert key == probe_key({"width": 3, "lr": 0.1})
    assert contradictions(origin, SessionObservations({}, {key: "aa"}), {}) == []
    assert contradictions(origin, SessionObservations({}, {probe_key({"lr": 0.2}): "bb"}), {}) == []
    (line,) = contradictions(origin, SessionObservations({}, {key: "bb"}), {})
    assert '{"lr": 0.1, "width": 3}' in line
    assert "states that were trained then are not reused" in explain_refused([(origin, [line])])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def weights(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    return present([f"file:{path}"])


def session(store: Store, **options: object) -> Variants:
    return Variants(store.origins, "root", "study", **options)  # type: ignore[arg-type]


def test_going_back_to_an_old_file_finds_what_was_trained_with_it(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    found = []
    for text in ("one", "two", "one", "two"):
        variants = session(store)
        variants.observed(weights(file, text))
        found.append(variants.decide(HERE))
    assert found[0] == found[2] != found[1] == found[3]
    assert [origin.number for origin in store.origins.find("root", HERE)] == [0, 1]


def test_a_file_that_is_read_only_later_is_compared_before_anything_is_reused(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    first = session(store)
    variant = first.decide(HERE)
    first.observed(weights(file, "one"))
    assert session(store).decide(HERE) == variant
    weights(file, "two")
    later = session(store, used=variant)
    (line,) = later.changes(None)
    assert str(file) in line
    assert later.decide(HERE) != variant
    weights(file, "one")
    assert session(store, used=variant).changes(HERE) == []


def test_a_file_that_changes_while_a_study_runs_ends_it(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    variants = session(store)
    variants.observed(weights(file, "one"))
    with pytest.raises(StudyChangedError, match=r"weights\.pt"):
        variants.observed(weights(file, "two"))  # in rehearsal
    variants.decide(HERE)
    variants.observed(weights(file, "one"))
    with pytest.raises(StudyChangedError, match=r"weights\.pt"):
        variants.observed(weights(file, "two"))
    other = session(store)
    assert other.decide(HERE) != variants.decide(HERE)


def test_two_drivers_that_begin_at_once_have_one_variant(store: Store) -> None:
    one, two = session(store), session(store)
    assert one.decide(HERE) == two.decide(HERE)
    one.observed({"file:/x": "1"})
    with pytest.raises(StudyChangedError, match="/x"):
        two.observed({"file:/x": "2"})


def test_platforms_are_apart_and_the_same_in_any_store(store: Store, tmp_path: Path) -> None:
    here, there = session(store).decide(HERE), session(store).decide(THERE)
    assert here != there
    with Store(tmp_path / "another") as another:
        assert session(another).decide(THERE) == there
    assert session(store, used=here).changes(THERE) == ["torch was 2.13, is 2.14"]


def test_a_probe_of_another_platform_says_nothing(store: Store) -> None:
    first = session(store)
    first.probed({"lr": 0.1}, "here", HERE)
    first.probed({"lr": 0.1}, "there", THERE)
    variant = first.decide(HERE)
    again = session(store)
    again.probed({"lr": 0.1}, "there", THERE)
    assert again.decide(HERE) == variant
    changed = session(store)
    changed.probed({"lr": 0.1}, "other", HERE)
    assert changed.decide(HERE) != variant


def test_a_study_that_reuses_nothing_has_its_own_variant(store: Store) -> None:
    shared = session(store).decide(HERE)
    own = session(store, reuse="never").decide(HERE)
    assert session(store).decide(HERE) == shared
    assert len({shared, own, session(store, reuse="never").decide(HERE)}) == 3
    again = session(store, reuse="never", used=own)
    again.probed({"lr": 0.1}, "any", HERE)
    assert again.decide(HERE) == own
    third = session(store, reuse="never", used=own)
    third.probed({"lr": 0.1}, "other", HERE)  # code that gives other bits every time
    assert third.decide(HERE) == own


def test_a_file_missing_on_the_driver_is_ignored_when_workers_are_on_other_machines(store: Store) -> None:
    first = session(store)
    first.observed({"file:/on/another/node": "1"})
    variant = first.decide(HERE)
    assert session(store, remote=True).decide(HERE) == variant
    assert session(store).decide(HERE) != variant
    far = session(store, remote=True)
    far.observed({"file:/on/another/node": "2"})
    assert far.decide(HERE) != variant
