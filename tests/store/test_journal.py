"""The journal: all or nothing, numbered without gaps, by one writer; the same on both databases."""

from __future__ import annotations

import math

import pytest
from sqlalchemy import delete, select, update

from hoptree.core.events import TrialAsked, TrialExtended, TrialStopped
from hoptree.core.facts import Entry, FactPlace, StateEvaluatedFact
from hoptree.core.schedules import multistep
from hoptree.store import (
    EventError,
    Holder,
    JournalConflictError,
    JournalDamagedError,
    LeaseLostError,
    Store,
    StoreVersionError,
    encode,
)
from hoptree.store.chain import beginning, chained
from hoptree.store.record_versions import RECORD_VERSION, upgraded
from hoptree.store.tables import ENTRIES

ASKED = TrialAsked(0, (("lr", multistep(64, at=[2, 4.0], gamma=0.5)), ("name", "ü\0")), until=3, barrier=True)
STOPPED = encode(Entry(TrialStopped(0)))
ENTRIES_OF_THREE = [(0.0, Entry(ASKED)), (0.1 + 0.2, Entry(TrialExtended(0, 9))), (1e-300, Entry(TrialStopped(0)))]


def change(store: Store, statement: object) -> None:
    with store.journal._database.writing() as connection:
        connection.execute(statement)


def rewrite(store: Store, study: str, versions: list[int], tokens: list[int], records: list[bytes]) -> None:
    """Put a journal of our own making in place of another, with checksums that match."""
    tail, rows = beginning(study), []
    for version, token, record in zip(versions, tokens, records, strict=True):
        rows += chained(tail, token, version, [(0.0, record)])
        tail = tail._replace(seq=rows[-1][0], check=rows[-1][-1])
    change(store, delete(ENTRIES).where(ENTRIES.c.study == study))
    names = ("seq", "token", "now", "version", "record", "checksum")
    with store.journal._database.writing() as connection:
        connection.execute(
            ENTRIES.insert(), [{"study": study, **dict(zip(names, row, strict=True))} for row in rows]
        )


def test_entries_come_back_in_order_and_numbered(store):
    writer = store.journal.writer("digits", store.lease("digits").token)
    assert writer.append(ENTRIES_OF_THREE[:2]) == 2
    assert writer.append(ENTRIES_OF_THREE[2:], durable=False) == 3
    assert writer.append([]) == 3
    expected = [(number, *entry) for number, entry in enumerate(ENTRIES_OF_THREE, start=1)]
    assert list(store.journal.read("digits")) == expected
    assert repr(next(store.journal.read("digits")).entry) == repr(Entry(ASKED))
    assert list(store.journal.read("digits", after=2)) == expected[2:]
    assert list(store.journal.read("other")) == []
    assert (store.journal.last("digits"), store.journal.last("other")) == (3, 0)


def test_a_writer_continues_where_another_has_stopped(store):
    lease = store.lease("digits")
    store.journal.writer("digits", lease.token).append(ENTRIES_OF_THREE)
    lease.release()
    assert store.journal.writer("digits", store.lease("digits").token).append(ENTRIES_OF_THREE) == 6
    assert [entry.seq for entry in store.journal.read("digits")] == list(range(1, 7))


def test_studies_are_numbered_apart(store):
    for study in ("one", "two"):
        assert store.journal.writer(study, store.lease(study).token).append(ENTRIES_OF_THREE) == 3


def test_a_long_journal_is_read_in_pages_while_it_grows(store, monkeypatch):
    monkeypatch.setattr("hoptree.store.journal._PAGE", 1000)
    writer = store.journal.writer("digits", store.lease("digits").token)
    writer.append([(float(number), Entry(TrialStopped(number))) for number in range(2500)])
    reader = store.journal.read("digits")
    assert next(reader).seq == 1
    writer.append([(0.0, Entry(TrialStopped(2500)))])
    assert [recorded.entry.event.trial for recorded in reader] == list(range(1, 2501))


@pytest.mark.parametrize("behind", [0, 3])
def test_an_append_after_anything_but_the_last_entry_is_refused(store, behind):
    token = store.lease("digits").token
    first = store.journal.writer("digits", token)
    first.append(ENTRIES_OF_THREE[:behind])
    second = store.journal.writer("digits", token)
    first.append(ENTRIES_OF_THREE)
    with pytest.raises(JournalConflictError, match=f"append after entry {behind}, .* last entry is {behind + 3};"):
        second.append([(1.0, Entry(ASKED))])
    assert store.journal.last("digits") == behind + 3


def test_an_append_to_a_journal_that_lost_its_end_or_was_replaced_is_refused(store):
    token = store.lease("digits").token
    writer = store.journal.writer("digits", token)
    writer.append(ENTRIES_OF_THREE)
    rewrite(store, "digits", [1] * 3, [token] * 3, [b"{}"] * 3)
    with pytest.raises(JournalConflictError, match="append after entry 3, .* last entry is 3, with other content;"):
        writer.append(ENTRIES_OF_THREE)
    change(store, delete(ENTRIES).where(ENTRIES.c.seq > 1))
    with pytest.raises(JournalConflictError, match="append after entry 3, .* last entry is 1;"):
        writer.append(ENTRIES_OF_THREE)


def test_an_append_is_all_or_nothing(store):
    writer = store.journal.writer("digits", store.lease("digits").token)
    with pytest.raises(EventError, match="now: nan"):
        writer.append([*ENTRIES_OF_THREE, (math.nan, Entry(ASKED))])
    assert store.journal.last("digits") == 0
    assert writer.append(ENTRIES_OF_THREE) == 3


def test_only_the_current_token_may_append(store, clock):
    for token in (0, 1):
        with pytest.raises(LeaseLostError, match="nobody ever held this study; nothing was written"):
            store.journal.writer("digits", token).append(ENTRIES_OF_THREE)
    first = store.lease("digits", Holder("far", 1, "then"))
    writer = store.journal.writer("digits", first.token)
    writer.append(ENTRIES_OF_THREE)
    clock.now += 1000
    second = store.lease("digits")
    with pytest.raises(LeaseLostError, match=r"token 1 is not current: process \d+ on .* took over with token 2"):
        writer.append(ENTRIES_OF_THREE)
    with pytest.raises(LeaseLostError):
        store.journal.writer("digits", second.token + 1).append(ENTRIES_OF_THREE)
    assert store.journal.writer("digits", second.token).append(ENTRIES_OF_THREE) == 6
    second.release()
    with pytest.raises(LeaseLostError, match="token 2 is not current: it was released"):
        store.journal.writer("digits", second.token).append(ENTRIES_OF_THREE)
    assert store.journal.last("digits") == 6


# --- damage -------------------------------------------------------------------------------------------------


def test_an_entry_that_is_missing_is_named(store):
    store.journal.writer("digits", store.lease("digits").token).append(ENTRIES_OF_THREE)
    change(store, delete(ENTRIES).where(ENTRIES.c.seq == 2))
    with pytest.raises(JournalDamagedError, match="entry 2 is missing from the journal, the next one is 3"):
        list(store.journal.read("digits"))
    with pytest.raises(JournalDamagedError, match="entry 2 is missing from the journal; restore"):
        list(store.journal.read("digits", after=2))


def test_a_flipped_digit_of_a_metric_is_found_wherever_it_is(store):
    evaluated = Entry(
        StateEvaluatedFact(7, "worker-0", FactPlace("a1", 4), {"loss": 1.2996, "accuracy": 0.5}, seconds=2.25)
    )
    store.journal.writer("digits", store.lease("digits").token).append([(0.5, evaluated)] * 5)
    chosen = select(ENTRIES.c.record).where(ENTRIES.c.seq == 3)
    with store.journal._database.reading() as connection:
        record = bytes(connection.execute(chosen).scalar_one())
    digits = [place for place, byte in enumerate(record) if chr(byte).isdigit()]
    assert len(digits) > 10
    for place in digits:
        other = bytes([record[place] ^ 1])  # another digit
        changed = record[:place] + other + record[place + 1 :]
        change(store, update(ENTRIES).where(ENTRIES.c.seq == 3).values(record=changed))
        read = store.journal.read("digits")
        assert [next(read).seq, next(read).seq] == [1, 2]
        with pytest.raises(JournalDamagedError, match="entry 3 of the journal is damaged"):
            next(read)


@pytest.mark.parametrize(
    ("column", "value"), [("now", 0.25), ("token", 2), ("version", 2), ("checksum", bytes(16)), ("record", b"{}")]
)
def test_a_change_of_any_column_is_found(store, column, value):
    store.journal.writer("digits", store.lease("digits").token).append([(0.5, Entry(ASKED))] * 3)
    change(store, update(ENTRIES).where(ENTRIES.c.seq == 2).values({column: value}))
    with pytest.raises(JournalDamagedError, match="entry 2 of the journal is damaged"):
        list(store.journal.read("digits"))


def test_entries_that_were_exchanged_or_taken_from_another_study_are_found(store):
    for study in ("digits", "letters"):
        store.journal.writer(study, store.lease(study).token).append([(0.5, Entry(ASKED)), (0.5, Entry(ASKED))])
    change(store, delete(ENTRIES).where(ENTRIES.c.study == "digits"))
    change(store, update(ENTRIES).values(study="digits"))
    with pytest.raises(JournalDamagedError, match="digits: entry 1 of the journal is damaged"):
        list(store.journal.read("digits"))
    for old, new in ((1, 3), (2, 1), (3, 2)):
        change(store, update(ENTRIES).where(ENTRIES.c.seq == old).values(seq=new, study="letters"))
    with pytest.raises(JournalDamagedError, match="letters: entry 1 of the journal is damaged"):
        list(store.journal.read("letters"))


@pytest.mark.parametrize("size", [0, 1, 20])
def test_a_record_that_was_cut_is_named_and_nothing_after_it_is_read(store, size):
    store.journal.writer("digits", store.lease("digits").token).append(ENTRIES_OF_THREE)
    with store.journal._database.reading() as connection:
        record = bytes(connection.execute(select(ENTRIES.c.record).where(ENTRIES.c.seq == 2)).scalar_one())
    change(store, update(ENTRIES).where(ENTRIES.c.seq == 2).values(record=record[:size]))
    read = store.journal.read("digits")
    assert next(read).seq == 1
    with pytest.raises(JournalDamagedError, match="entry 2 of the journal is damaged"):
        next(read)


def test_a_record_of_an_unknown_kind_is_named(store):
    token = store.lease("digits").token
    rewrite(store, "digits", [RECORD_VERSION], [token], [b'{"event":{"fact":"trial-dreamt"}}'])
    with pytest.raises(JournalDamagedError, match=r"entry 1 of the journal cannot be read .*trial-dreamt"):
        list(store.journal.read("digits"))


@pytest.mark.parametrize("version", [0, RECORD_VERSION + 1])
def test_a_record_of_an_unknown_version_is_named(store, version):
    token = store.lease("digits").token
    rewrite(store, "digits", [RECORD_VERSION, version], [token] * 2, [STOPPED] * 2)
    read = store.journal.read("digits")
    assert next(read).entry == Entry(TrialStopped(0))
    with pytest.raises(
        StoreVersionError, match=f"digits: entry 2 of the journal is a record of version {version};"
    ):
        next(read)


def test_entries_of_two_drivers_at_once_are_named(store):
    rewrite(store, "digits", [RECORD_VERSION] * 4, [1, 3, 3, 2], [STOPPED] * 4)
    with pytest.raises(JournalDamagedError, match="entry 4 .* token 2, after entry 3 by the one with token 3"):
        list(store.journal.read("digits"))
    with pytest.raises(JournalDamagedError, match="entry 4 .* token 2, after entry 3 by the one with token 3"):
        list(store.journal.read("digits", after=3))


# --- older records ------------------------------------------------------------------------------------------

OLD = b'{"type":"TrialStop","number":3}'
UPGRADES = {
    1: lambda record: {**record, "type": "TrialStopped"},
    2: lambda record: {"trial" if name == "number" else name: value for name, value in record.items()},
}


def test_older_records_are_upgraded_one_version_at_a_time():
    expected = b'{"type":"TrialStopped","trial":3}'
    assert upgraded(OLD, 1, upgrades=UPGRADES, current=3) == expected
    assert upgraded(b'{"type":"TrialStopped","number":3}', 2, upgrades=UPGRADES, current=3) == expected
    assert upgraded(expected, 3, upgrades=UPGRADES, current=3) is expected


@pytest.mark.parametrize(("data", "version"), [(OLD[:-3], 1), (b"[]", 2)])
def test_an_older_record_that_cannot_be_upgraded_is_refused(data, version):
    with pytest.raises(EventError, match=f"a record of version {version} cannot be upgraded to 3"):
        upgraded(data, version, upgrades=UPGRADES, current=3)


def test_there_is_an_upgrade_from_every_version_to_the_next():
    from hoptree.store.record_versions import UPGRADES as OURS

    assert list(OURS) == list(range(1, RECORD_VERSION))
