"""The journal: all or nothing, numbered without gaps, by one writer; the same on both databases."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import delete, update

from hoptree.core.events import TrialAsked, TrialExtended, TrialStopped
from hoptree.core.schedules import multistep
from hoptree.store import EventError, Holder, JournalConflictError, JournalDamagedError, LeaseLostError
from hoptree.store.tables import EVENTS

ASKED = TrialAsked(0, (("lr", multistep(64, at=[2, 4.0], gamma=0.5)), ("name", "ü\0")), until=3, barrier=True)
ENTRIES = [(0.0, True, ASKED), (0.1 + 0.2, False, TrialExtended(0, 9)), (1e-300, False, TrialStopped(0))]


def test_entries_come_back_in_order_and_numbered(store):
    token = store.lease("digits").token
    assert store.journal.append("digits", ENTRIES[:2], token=token, after=0) == 2
    assert store.journal.append("digits", ENTRIES[2:], token=token, after=2, durable=False) == 3
    assert store.journal.append("digits", [], token=token) == 3
    expected = [(number, *entry) for number, entry in enumerate(ENTRIES, start=1)]
    assert list(store.journal.read("digits")) == expected
    assert repr(next(store.journal.read("digits")).event) == repr(ASKED)
    assert list(store.journal.read("digits", after=2)) == expected[2:]
    assert list(store.journal.read("other")) == []
    assert (store.journal.last("digits"), store.journal.last("other")) == (3, 0)


def test_studies_are_numbered_apart(store):
    for study in ("one", "two"):
        assert store.journal.append(study, ENTRIES, token=store.lease(study).token) == 3


def test_a_long_journal_is_read_in_pages_while_it_grows(store):
    token = store.lease("digits").token
    many = [(float(number), False, TrialStopped(number)) for number in range(2500)]
    store.journal.append("digits", many, token=token)
    reader = store.journal.read("digits")
    assert next(reader).seq == 1
    store.journal.append("digits", [(0.0, False, TrialStopped(2500))], token=token)
    assert [recorded.event.trial for recorded in reader] == list(range(1, 2501))


@pytest.mark.parametrize("after", [0, 2, 4, 99])
def test_an_append_after_anything_but_the_last_entry_is_refused(store, after):
    token = store.lease("digits").token
    store.journal.append("digits", ENTRIES, token=token)
    with pytest.raises(JournalConflictError, match=f"append after entry {after}, .* last entry is 3; read"):
        store.journal.append("digits", ENTRIES, token=token, after=after)
    assert store.journal.last("digits") == 3


def test_an_append_is_all_or_nothing(store):
    token = store.lease("digits").token
    with pytest.raises(EventError, match="now: nan"):
        store.journal.append("digits", [*ENTRIES, (math.nan, False, ASKED)], token=token)
    assert store.journal.last("digits") == 0


def test_concurrent_appends_leave_no_gap(open_store):
    token = open_store().lease("digits").token

    def append(writer: int) -> list[int]:
        journal = open_store().journal
        pair = [(float(writer), True, TrialStopped(writer)), (float(writer), False, TrialStopped(writer))]
        return [journal.append("digits", pair, token=token, durable=False) for _ in range(20)]

    with ThreadPoolExecutor(3) as pool:
        lasts = [last for some in pool.map(append, range(3)) for last in some]
    assert sorted(lasts) == list(range(2, 122, 2))
    recorded = list(open_store().journal.read("digits"))
    assert [entry.seq for entry in recorded] == list(range(1, 121))
    assert all(one.event == two.event for one, two in zip(recorded[::2], recorded[1::2], strict=True))


def test_only_the_current_token_may_append(store, clock):
    for token in (0, 1):
        with pytest.raises(LeaseLostError, match="nobody ever held this study; nothing was written"):
            store.journal.append("digits", ENTRIES, token=token)
    first = store.lease("digits", Holder("far", 1, "then"))
    store.journal.append("digits", ENTRIES, token=first.token)
    clock.now += 1000
    second = store.lease("digits")
    with pytest.raises(LeaseLostError, match=r"token 1 is not current: process \d+ on .* took over with token 2"):
        store.journal.append("digits", ENTRIES, token=first.token)
    with pytest.raises(LeaseLostError):
        store.journal.append("digits", ENTRIES, token=second.token + 1)
    assert store.journal.append("digits", ENTRIES, token=second.token, after=3) == 6
    second.release()
    with pytest.raises(LeaseLostError, match="token 2 is not current: it was released"):
        store.journal.append("digits", ENTRIES, token=second.token)
    assert store.journal.last("digits") == 6


def test_a_journal_that_somebody_tampered_with_is_noticed(store):
    store.journal.append("digits", ENTRIES, token=store.lease("digits").token)
    with store.journal._database.writing() as connection:
        connection.execute(delete(EVENTS).where(EVENTS.c.seq == 2))
    with pytest.raises(JournalDamagedError, match="entry 2 is missing from the journal, 3 comes next; restore"):
        list(store.journal.read("digits"))
    with store.journal._database.writing() as connection:
        connection.execute(update(EVENTS).values(event=b"{}"))
    with pytest.raises(JournalDamagedError, match="entry 1 of the journal cannot be read"):
        list(store.journal.read("digits"))
