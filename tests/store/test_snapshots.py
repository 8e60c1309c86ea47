"""Snapshots: the last that matches its journal is used, and one that does not is never half used."""

from __future__ import annotations

import zlib

import pytest
from sqlalchemy import delete, select, update

from hoptree.core.events import TrialStopped
from hoptree.core.facts import Entry
from hoptree.store import Holder, JournalDamagedError, LeaseLostError, Store, StoreError
from hoptree.store.tables import ENTRIES, SNAPSHOTS


@pytest.fixture
def token(store: Store) -> int:
    lease = store.lease("digits", Holder("far", 7, "then"))
    writer = store.journal.writer("digits", lease.token)
    writer.append([(float(number), Entry(TrialStopped(number))) for number in range(1, 11)])
    return lease.token


def change(store: Store, statement: object) -> None:
    with store._database.writing() as connection:
        connection.execute(statement)


def kept(store: Store) -> list[int]:
    with store._database.reading() as connection:
        return list(connection.execute(select(SNAPSHOTS.c.seq).order_by(SNAPSHOTS.c.seq)).scalars())


def test_the_last_snapshot_is_read_and_two_are_kept(store, token):
    assert store.journal.read_snapshot("digits") is None
    for seq in (2, 4, 7):
        store.journal.write_snapshot("digits", token, seq, b"up to %d" % seq * 1000)
        assert store.journal.read_snapshot("digits") == (seq, b"up to %d" % seq * 1000)
    assert kept(store) == [4, 7]
    store.journal.write_snapshot("digits", token, 7, b"again")
    assert store.journal.read_snapshot("digits") == (7, b"again")
    assert kept(store) == [4, 7]
    assert [entry.seq for entry in store.journal.read("digits", after=7)] == [8, 9, 10]
    assert store.journal.read_snapshot("letters") is None


def test_a_snapshot_is_small(store, token):
    store.journal.write_snapshot("digits", token, 7, b"up to seven" * 10_000)
    with store._database.reading() as connection:
        assert len(connection.execute(select(SNAPSHOTS.c.data)).scalar_one()) < 2000


def test_only_the_holder_of_the_lease_writes_a_snapshot(store, token):
    with pytest.raises(LeaseLostError):
        store.journal.write_snapshot("digits", token + 1, 7, b"")
    with pytest.raises(StoreError, match="digits: snapshot at entry 11, which does not exist"):
        store.journal.write_snapshot("digits", token, 11, b"")
    assert kept(store) == []


def test_a_snapshot_of_another_version_is_skipped(store, token, caplog):
    store.journal.write_snapshot("digits", token, 4, b"old", version=1)
    assert store.journal.read_snapshot("digits", version=2) is None
    store.journal.write_snapshot("digits", token, 7, b"new", version=2)
    assert store.journal.read_snapshot("digits", version=2) == (7, b"new")
    assert store.journal.read_snapshot("digits", version=1) == (4, b"old")
    assert not caplog.records


@pytest.mark.parametrize("values", [{"data": zlib.compress(b"forged")}, {"checksum": bytes(16)}, {"data": b""}])
def test_a_damaged_snapshot_is_replaced_by_the_previous_one(store, token, caplog, values):
    for seq in (4, 7):
        store.journal.write_snapshot("digits", token, seq, b"up to %d" % seq)
    change(store, update(SNAPSHOTS).where(SNAPSHOTS.c.seq == 7).values(values))
    assert store.journal.read_snapshot("digits") == (4, b"up to 4")
    (told,) = (record.getMessage() for record in caplog.records)
    assert told == "digits: the snapshot at entry 7 does not match its journal; reading the previous one"


def test_without_one_that_matches_the_journal_is_read_from_its_beginning(store, token, caplog):
    for seq in (4, 7):
        store.journal.write_snapshot("digits", token, seq, b"up to %d" % seq)
    change(store, update(SNAPSHOTS).values(checksum=bytes(16)))
    assert store.journal.read_snapshot("digits") is None
    assert caplog.records[-1].getMessage() == (
        "digits: the snapshot at entry 4 does not match its journal; reading the whole journal"
    )


def test_a_snapshot_of_a_replaced_journal_is_not_used(store, token, caplog):
    store.journal.write_snapshot("digits", token, 7, b"up to 7")
    change(store, delete(ENTRIES))
    assert store.journal.read_snapshot("digits") is None  # the entry that it stands at is gone
    writer = store.journal.writer("digits", token)
    writer.append([(0.0, Entry(TrialStopped(number))) for number in range(1, 11)])
    assert store.journal.read_snapshot("digits") is None  # and another one is there now
    assert len(caplog.records) == 2


def test_entries_after_a_snapshot_are_verified(store, token):
    store.journal.write_snapshot("digits", token, 7, b"up to 7")
    change(store, update(ENTRIES).where(ENTRIES.c.seq == 3).values(record=b"{}"))
    assert [entry.seq for entry in store.journal.read("digits", after=7)] == [8, 9, 10]
    change(store, update(ENTRIES).where(ENTRIES.c.seq == 8).values(record=b"{}"))
    with pytest.raises(JournalDamagedError, match="entry 8 of the journal is damaged"):
        list(store.journal.read("digits", after=7))
    change(store, update(ENTRIES).where(ENTRIES.c.seq == 7).values(checksum=bytes(16)))
    assert store.journal.read_snapshot("digits") is None
