"""PostgreSQL is killed with signal 9 and started again: nothing that was acknowledged is missing afterwards."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from hoptree.core.events import TrialStopped
from hoptree.core.facts import Entry
from hoptree.store import Holder, JournalConflictError, LeaseLostError, Store, StoreTiming, StoreUnavailableError
from hoptree.store.requests import StopTrial
from tests.store.postgres import Server
from tests.store.programs import line, running, tell
from tests.system.plain import study

# Appends one entry for every line that it is told, durable if the line says so, and says its number.
APPEND = """
import sys
from hoptree.core.events import TrialStopped
from hoptree.core.facts import Entry
from hoptree.store import Store
with Store(sys.argv[1], journal_url=sys.argv[2]) as store, store.lease("digits") as lease:
    writer = store.journal.writer("digits", lease.token)
    print("ready", flush=True)
    for told in sys.stdin:
        number = writer.tail.seq + 1
        writer.append([(float(number), Entry(TrialStopped(number)))], durable=told.strip() == "durable")
        print(number, flush=True)
"""


@pytest.fixture
def url(killed_server: Server) -> str:
    return killed_server.empty()


@pytest.fixture
def opened(url: str, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    stores = []

    def opener(**options: object) -> Store:
        stores.append(Store(tmp_path / "store", journal_url=url, **options))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


class StartWhenWaitedFor(logging.Handler):
    """Starts a server when somebody says that he waits for it, and counts how often that was."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.times = 0

    def emit(self, record: logging.LogRecord) -> None:
        assert "the database does not answer; waiting up to" in record.getMessage()
        self.times += 1
        self.server.start()


@pytest.fixture
def starter(killed_server: Server) -> Iterator[StartWhenWaitedFor]:
    handler = StartWhenWaitedFor(killed_server)
    logging.getLogger("hoptree").addHandler(handler)
    yield handler
    logging.getLogger("hoptree").removeHandler(handler)


def entries(count: int, first: int = 1) -> list[tuple[float, Entry]]:
    return [(float(number), Entry(TrialStopped(number))) for number in range(first, first + count)]


def test_lost_entries_are_written_again(killed_server, opened):
    store = opened()
    writer = store.journal.writer("digits", store.lease("digits").token)
    writer.append(entries(1))
    killed_server.suspend_wal_writer()
    for number in range(2, 40):
        writer.append(entries(1, number), durable=False)
    killed_server.kill()
    killed_server.start()
    lost = opened().journal.last("digits")
    assert lost < 39  # or this test shows nothing
    assert writer.append(entries(1, 40), durable=False) == 40
    assert [entry.entry.event.trial for entry in opened().journal.read("digits")] == list(range(1, 41))


def test_a_driver_that_only_reads_writes_lost_entries_again(killed_server, opened):
    store = opened()
    lease = store.lease("digits")
    writer = store.journal.writer("digits", lease.token)
    writer.append(entries(1))
    killed_server.suspend_wal_writer()
    for number in range(2, 40):
        writer.append(entries(1, number), durable=False, reports={f"key{number}": {"loss": 0.5}})
    store.ledger.enter("0abc", "digits", 100, 1.0)
    store.states.put("0abc", {"w": np.ones(3)}, {})
    claims = store.claims(lease)
    claims.claim("lineage", 0, 0, 4)
    killed_server.kill()
    killed_server.start()
    assert opened().reports.find(["key39"]) == {}  # or this test shows nothing
    assert store.requests.after("digits", 0) == []
    other = opened()
    assert other.journal.last("digits") == 39
    assert other.reports.find(["key2", "key39"]) == {"key2": {"loss": 0.5}, "key39": {"loss": 0.5}}
    assert [record.held_by for record in other.ledger.all()] == [("digits",)]
    assert other.claims(other.lease("letters")).claimed(["lineage"])["lineage"] == [("digits", 0, 4)]


def test_calls_of_a_driver_wait_for_the_server(killed_server, opened, starter):
    store = opened()
    store.catalog.register("digits", {})
    lease = store.lease("digits")
    writer = store.journal.writer("digits", lease.token)
    claims = store.claims(lease)
    store.states.put("0abc", {"w": np.ones(3)}, {})
    calls: list[Callable[[], object]] = [
        lambda: writer.append(entries(4)),
        lease.renew,
        lambda: claims.claim("lineage", 0, 0, 4),
        lambda: claims.want({"other": ({1: True}, True)}),
        lambda: store.ledger.hold(["0abc"], "digits"),
        lambda: store.reports.find(["0abc"]),
        lambda: store.requests.after("digits", 0),
        lambda: store.journal.write_snapshot("digits", lease.token, 4, b"four"),
        lambda: store.catalog.set_status("digits", "finished"),
        lease.release,
    ]
    for number, call in enumerate(calls, 1):
        killed_server.kill()
        call()
        assert starter.times == number
    assert [entry.seq for entry in opened().journal.read("digits")] == [1, 2, 3, 4]
    assert opened().journal.read_snapshot("digits") in ((4, b"four"), None)  # it may be lost
    assert opened().catalog.find("digits").status == "finished"


@pytest.mark.parametrize("durable", ["durable", "not"])
@pytest.mark.slow
def test_a_server_that_is_killed_at_many_moments_loses_nothing(killed_server, url, tmp_path, durable):
    acknowledged = 0
    with running(APPEND, tmp_path / "store", url) as driver:
        assert line(driver) == "ready"
        for appends in (1, 2, 3, 5, 8, 13, 21, 34):
            for number in range(appends):
                tell(driver, durable if number else "durable")
            for _ in range(appends // 2):  # the rest is under way when the server is killed
                acknowledged = int(line(driver))
            killed_server.kill()
            killed_server.start()
            for _ in range(appends - appends // 2):
                acknowledged = int(line(driver))
        assert acknowledged == 87
        tell(driver, "durable")
        assert line(driver) == "88"
    with Store(tmp_path / "store", journal_url=url) as store:
        assert [entry.entry.event.trial for entry in store.journal.read("digits")] == list(range(1, 89))


def test_a_server_that_does_not_come_back_ends_the_call_after_its_time(killed_server, opened, caplog):
    store = opened(timing=StoreTiming(patience=0.2))
    writer = store.journal.writer("digits", store.lease("digits").token)
    killed_server.kill()
    try:
        with pytest.raises(StoreUnavailableError, match="check that its server runs"):
            writer.append(entries(1))
        assert [record.getMessage() for record in caplog.records if "waiting up to 0.2 s" in record.getMessage()]
        assert len(caplog.records) == 1
    finally:
        killed_server.start()
    assert writer.append(entries(1)) == 1


def test_entries_of_a_replaced_driver_are_not_written_again(killed_server, opened, tmp_path):
    now = [1000.0]
    store = opened(timing=StoreTiming(clock=lambda: now[0]))
    writer = store.journal.writer("digits", store.lease("digits", Holder("far", 7, "then")).token)
    writer.append(entries(1))
    killed_server.suspend_wal_writer()
    for number in range(2, 40):
        writer.append(entries(1, number), durable=False)
    killed_server.kill()
    killed_server.start()
    now[0] += 1000
    other = opened(timing=StoreTiming(clock=lambda: now[0]))
    successor = other.journal.writer("digits", other.lease("digits").token)
    last = successor.append(entries(1, successor.tail.seq + 1))
    with pytest.raises(LeaseLostError, match="took over with token 2"):
        writer.append(entries(1, 40))
    assert other.journal.last("digits") == last
    assert store.journal.last("digits") == last  # it may still look


def test_a_database_that_went_back_in_time_is_refused(killed_server, opened, url):
    store = opened()
    writer = store.journal.writer("digits", store.lease("digits").token)
    writer.append(entries(3))
    with psycopg.connect(url) as connection:
        connection.execute("DELETE FROM hoptree_entries WHERE seq > 1")
    with pytest.raises(JournalConflictError, match="append after entry 3, but the journal's last entry is 1"):
        writer.append(entries(1, 4))


def test_a_study_continues_when_its_database_was_killed(killed_server, url, tmp_path):
    reference = study(tmp_path, "a", "b").run(workers=1)
    shutil.rmtree(tmp_path / "store")

    def kill_when_it_runs() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            count = "SELECT count(*) FROM hoptree_entries"
            while not connection.execute("SELECT to_regclass('hoptree_entries') IS NOT NULL").fetchone()[0]:
                pass
            for moment in (3, 6):
                while connection.execute(count).fetchone()[0] < moment:
                    pass
        killed_server.kill()
        killed_server.start()

    killer = threading.Thread(target=kill_when_it_runs)
    killer.start()
    results = study(tmp_path, "a", "b", journal=url).run(workers=1)
    killer.join()
    assert [trial.state for trial in results.trials] == ["complete", "complete"]
    assert [trial.fingerprint for trial in results.trials] == [trial.fingerprint for trial in reference.trials]
    again = study(tmp_path, "a", "b", journal=url).run(workers=1)
    assert again.savings.epochs_trained == 0


def test_a_request_is_carried_out_once(killed_server, opened):
    """What must not be done twice is not waited for: whoever made it is told, and may look."""
    store = opened()
    store.requests.make("digits", StopTrial(1))
    killed_server.kill()
    try:
        with pytest.raises(StoreUnavailableError):
            store.requests.make("digits", StopTrial(2))
    finally:
        killed_server.start()
    assert [number for number, _ in store.requests.after("digits", 0)] == [1]
