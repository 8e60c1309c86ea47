"""Forgetting a study: what it alone needs goes, what others need stays, and tokens only ever grow."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import func, select

from hoptree.core.events import TrialStopped
from hoptree.core.facts import Entry
from hoptree.store import RemovedStudy, Store, StudyHeldError, StudyMissingError
from hoptree.store.requests import StopTrial
from hoptree.store.tables import METADATA
from tests.system.plain import study


def fill(store: Store, name: str, keys: list[str]) -> None:
    """Let a study make states and reports by these keys; what another one has made it uses."""
    store.catalog.register(name, {})
    with store.lease(name) as lease:
        known = set(store.reports.find(keys))
        reports = {key: {"loss": 0.5} for key in keys if key not in known}
        writer = store.journal.writer(name, lease.token)
        writer.append([(0.0, Entry(TrialStopped(1))), (1.0, Entry(TrialStopped(2)))], reports=reports)
        store.reports.hold(known, name)
        store.journal.write_snapshot(name, lease.token, 2, b"two")
        for key in keys:
            if key not in known:
                store.states.put(key, {"w": np.ones(3)}, {})
            store.ledger.enter(key, name, 100, 1.0)
        claims = store.claims(lease)
        claims.claim(f"lineage of {name}", 0, 0, 4)
        claims.want({f"lineage of {name}": ({1: True}, False)})
        store.requests.make(name, StopTrial(1))


def counts(store: Store) -> dict[str, int]:
    with store._database.reading() as connection:
        return {
            table.name.removeprefix("hoptree_"): connection.execute(
                select(func.count()).select_from(table)
            ).scalar_one()
            for table in METADATA.sorted_tables
        }


def test_nothing_is_left_of_a_study_that_nobody_else_needs(store):
    fill(store, "digits", ["00aa", "00bb"])
    size = sum(store.states.sizes().values())
    assert store.forget("digits") == RemovedStudy("digits", entries=2, reports=2, states=2, freed=size)
    assert store.states.keys() == []
    assert {name: count for name, count in counts(store).items() if count} == {
        "store": 1,
        "revision": 1,
        "leases": 1,
    }
    assert store.lease("digits").token == 3  # an old driver must never be taken for a new one


def test_what_another_study_needs_stays(store):
    fill(store, "digits", ["00aa", "00bb"])
    fill(store, "letters", ["00bb", "00cc"])
    before = counts(store)
    done = store.forget("digits")
    assert (done.reports, done.states) == (1, 1)
    assert store.states.keys() == ["00bb", "00cc"]
    assert set(store.reports.find(["00aa", "00bb", "00cc"])) == {"00bb", "00cc"}
    assert [record.held_by for record in store.ledger.all()] == [("letters",)] * 2
    assert [record.study for record in store.ledger.all()] == ["letters"] * 2
    assert len(list(store.journal.read("letters"))) == 2
    assert store.journal.read_snapshot("letters") == (2, b"two")
    halved = {"entries", "snapshots", "studies", "wishes", "claims", "wants"}
    assert {name for name, count in counts(store).items() if 2 * count == before[name]} >= halved
    done = store.forget("letters")  # it has inherited what they shared
    assert (done.reports, done.states) == (2, 2)
    assert store.states.keys() == []


def test_unused_states_of_a_forgotten_study_are_removed(store):
    fill(store, "digits", ["00aa", "00bb"])
    fill(store, "letters", ["00cc"])
    for name, key in (("digits", "00aa"), ("letters", "00cc")):
        store.ledger.release([key], name)
    store.forget("digits")
    assert store.states.keys() == ["00cc"]


def test_a_held_state_that_is_not_in_the_ledger_is_removed(store):
    fill(store, "digits", [])
    store.states.put("00dd", {"w": np.ones(3)}, {})
    store.ledger.hold(["00dd"], "digits")
    assert store.forget("digits").states == 1
    assert store.states.keys() == []


def test_a_running_or_unknown_study_is_not_forgotten(store, open_store):
    fill(store, "digits", ["00aa"])
    before = counts(store)
    with store.lease("digits"), pytest.raises(StudyHeldError):
        open_store().forget("digits")
    assert counts(store) == before
    with pytest.raises(StudyMissingError, match="letters: no such study in .*; nothing was removed"):
        store.forget("letters")
    assert {**counts(store), "leases": 1} == before


def test_the_same_program_trains_from_scratch_afterwards(tmp_path, journal_url):
    first = study(tmp_path, "a", "b", journal=journal_url).run(workers=1)
    with Store(tmp_path / "store", journal_url=journal_url) as store:
        assert store.forget("plain").entries > 0
    again = study(tmp_path, "a", "b", journal=journal_url).run(workers=1)
    assert again.savings.epochs_trained == first.savings.epochs_trained == 4
    assert again.savings.epochs_reused == 0
    assert [t.fingerprint for t in again.trials] == [t.fingerprint for t in first.trials]


def test_reports_that_another_study_uses_outlive_the_study_that_made_them(tmp_path, journal_url):
    study(tmp_path, "a", "b", journal=journal_url).run(workers=1)
    study(tmp_path, "a", name="second", journal=journal_url).run(workers=1)
    with Store(tmp_path / "store", journal_url=journal_url) as store:
        before = counts(store)["reports"]
        store.forget("plain")
        assert 0 < counts(store)["reports"] < before
    third = study(tmp_path, "a", name="third", journal=journal_url).run(workers=1)
    assert third.savings.epochs_trained == 0
