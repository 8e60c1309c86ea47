"""A store as a whole: opened, refused, found again; and its catalog."""

from __future__ import annotations

import logging
import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sqlalchemy import update

from hoptree.core.events import TrialStopped
from hoptree.core.facts import Entry
from hoptree.store import (
    StateFormatError,
    Store,
    StoreError,
    StoreMissingError,
    StoreUnreachableError,
    StoreVersionError,
    StudyExistsError,
    StudyMissingError,
    StudyRecord,
)
from hoptree.store.catalog import FORMAT
from hoptree.store.tables import STUDIES

SPEC = {"trainer": "ab12", "space": {"lr": [0.1, 1, True, None]}, "seed": 2**64, "limit": math.inf, "name": "ü\0"}


def test_everything_is_found_again(open_store):
    store = open_store()
    store.catalog.register("digits", SPEC)
    store.states.put("0abc", {"w": np.ones(3)}, {"epoch": 1})
    with store.lease("digits") as lease:
        store.journal.writer("digits", lease.token).append([(0.5, Entry(TrialStopped(3)))])
    store.close()
    again = open_store(create=False)
    assert again.catalog.find("digits") == StudyRecord("digits", 1_000_000.0, FORMAT, SPEC, "created")
    assert again.states.get("0abc")[1] == {"epoch": 1}
    assert list(again.journal.read("digits")) == [(1, 0.5, Entry(TrialStopped(3)))]
    assert again.lease("digits").token == 2


def test_the_catalog_lists_studies_in_order(store, clock):
    for name in ("b", "a"):
        store.catalog.register(name, {"seed": 0})
        clock.now += 1
    store.catalog.set_status("a", "finished")
    store.catalog.set_spec("b", {"seed": 1})
    assert [(s.name, s.status, s.spec["seed"]) for s in store.catalog.all()] == [
        ("b", "created", 1),
        ("a", "finished", 0),
    ]
    assert store.catalog.find("c") is None


def test_the_catalog_refuses_by_name(store):
    store.catalog.register("digits", SPEC)
    with pytest.raises(StudyExistsError, match=r"digits: this study exists in .* already; resume it"):
        store.catalog.register("digits", SPEC)
    with pytest.raises(StudyMissingError, match="other: no such study"):
        store.catalog.set_status("other", "running")
    with pytest.raises(StoreError, match="status: 'done'; expected one of created, running"):
        store.catalog.set_status("digits", "done")
    with pytest.raises(StateFormatError, match=r"spec\['space'\]: a set; expected"):
        store.catalog.register("sets", {"space": {1}})
    for name in ("", " a", "a\nb", "a" * 201, None):
        with pytest.raises(StoreError, match=r"study: invalid name .*; expected"):
            store.catalog.register(name, SPEC)
        with pytest.raises(StoreError, match=r"study: invalid name .*; expected"):
            store.lease(name)


def test_a_study_of_another_format_is_listed_and_refused(store):
    store.catalog.register("digits", SPEC)
    with store.journal._database.writing() as connection:
        connection.execute(update(STUDIES).values(format=FORMAT + 1))
    assert [study.format for study in store.catalog.all()] == [FORMAT + 1]
    with pytest.raises(StoreVersionError, match=rf"digits in .*: stored in format {FORMAT + 1}"):
        store.catalog.find("digits")


def test_many_may_open_a_new_store_at_once(open_store):
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: open_store(), range(4)))
    stores[0].catalog.register("digits", SPEC)
    assert all(store.catalog.find("digits") for store in stores)


def test_a_missing_store_is_not_created(tmp_path, open_store):
    with pytest.raises(StoreMissingError, match="store: no folder"):
        Store(tmp_path / "nowhere", create=False)
    (tmp_path / "store").mkdir()
    with pytest.raises(StoreMissingError, match="no Hoptree store is there"):
        open_store(create=False)
    assert not list(tmp_path.rglob("*.sqlite"))


def test_a_value_that_is_not_a_store_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file; expected a folder"):
        Store(tmp_path / "file")
    with pytest.raises(StoreError, match="expected a local folder"):
        Store("s3://bucket/store")
    (tmp_path / "journal.sqlite").write_text("not a database" * 100)
    with pytest.raises(StoreUnreachableError, match=r"journal.sqlite: .* not a database; check"):
        Store(tmp_path)


@pytest.mark.parametrize("url", ["mysql://localhost/x", "postgresql+psycopg2://localhost/x", "sqlite://", "://"])
def test_a_database_of_another_kind_is_refused(tmp_path, url):
    with pytest.raises(StoreError, match=r"journal: .*expected a path, sqlite:///PATH or postgresql://"):
        Store(tmp_path, journal_url=url)


def test_a_server_that_is_down_is_named_without_its_password(tmp_path):
    with pytest.raises(StoreUnreachableError, match=r"check that its server runs") as caught:
        Store(tmp_path, journal_url=f"postgresql://me:secret@/x?host={tmp_path}")
    assert "secret" not in str(caught.value)


def test_sqlite_is_in_wal_mode_and_durable_when_asked(tmp_path):
    with Store(tmp_path) as store:
        database = store.journal._database
        for durable, level in ((True, 2), (False, 1)):
            with database.writing(durable) as connection:
                assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == level
    with sqlite3.connect(tmp_path / "journal.sqlite") as plain:
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    plain.close()


def test_a_writer_that_takes_long_is_waited_for(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("hoptree.store.database._WAIT_SECONDS", 0.01)
    other = sqlite3.connect(tmp_path / "journal.sqlite", isolation_level=None)
    with Store(tmp_path) as store:
        writer = store.journal.writer("digits", store.lease("digits").token)
        other.execute("BEGIN IMMEDIATE")

        class EndWhenWaitedFor(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                other.execute("COMMIT")

        handler = EndWhenWaitedFor()
        logging.getLogger("hoptree").addHandler(handler)
        try:
            assert writer.append([(0.0, TrialStopped(1))]) == 1
        finally:
            logging.getLogger("hoptree").removeHandler(handler)
    other.close()
    assert ["does not answer" in record.getMessage() for record in caplog.records] == [True]


def test_postgresql_is_durable_when_asked(tmp_path, postgresql):
    with Store(tmp_path, journal_url=postgresql) as store:
        for durable, level in ((True, "on"), (False, "off"), (True, "on")):
            with store.journal._database.writing(durable) as connection:
                assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == level


def test_nothing_on_disk_is_a_pickle(tmp_path):
    with Store(tmp_path) as store:
        store.states.put("0abc", {"w": np.ones(3)}, {"epoch": 1})
        store.catalog.register("digits", SPEC)
        names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
        assert {name.partition("-")[0] for name in names} == {"0abc.safetensors", "journal.sqlite"}
        assert b"\x80\x04" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*.safetensors"))
