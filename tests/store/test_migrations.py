"""Stores that move on: created or migrated they are the same, and an old one is never half migrated."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

from hoptree.core.events import TrialStopped
from hoptree.core.facts import Entry
from hoptree.store import (
    Holder,
    Migrated,
    MigrationError,
    Store,
    StoreMissingError,
    StoreVersionError,
    migrate,
)
from hoptree.store.database import Database
from hoptree.store.migrations import upgrade
from hoptree.store.revisions import FOLDER, REVISIONS, Revisions
from hoptree.store.tables import METADATA
from tests.powerless import powerless

HERE = Path(__file__).parent
NEXT = Revisions((*REVISIONS.names, "0004"), (*REVISIONS.folders, HERE / "revisions"))
BROKEN = Revisions((*REVISIONS.names, "0004"), (*REVISIONS.folders, HERE / "broken_revisions"))


def described(url: str) -> dict[str, object]:
    """Return everything that a database says about its tables."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        found = inspect(engine)
        return {
            table: (
                [{**column, "type": str(column["type"])} for column in found.get_columns(table)],
                found.get_pk_constraint(table),
                found.get_indexes(table),
            )
            for table in sorted(found.get_table_names())
        }
    finally:
        engine.dispose()


def revision(store: Store) -> str:
    with store._database.reading() as connection:
        return str(connection.exec_driver_sql("SELECT version_num FROM hoptree_revision").scalar_one())


def backups(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.backup"))


@pytest.fixture
def filled(open_store):
    """A store with a study, closed."""
    store = open_store()
    store.catalog.register("digits", {"seed": 1})
    with store.lease("digits") as lease:
        store.journal.writer("digits", lease.token).append([(0.5, Entry(TrialStopped(3)))])
    store.close()


# --- the first revision -------------------------------------------------------------------------------------


def test_created_tables_equal_migrated_tables(tmp_path, journal_url, request):
    with Store(tmp_path / "store", journal_url=journal_url):
        created = described(journal_url)
    if "sqlite" in journal_url:
        journal_url = journal_url.replace("journal.sqlite", "other.sqlite")
    else:
        request.getfixturevalue("postgresql")
        engine = create_engine(journal_url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            connection.execute(text("DROP SCHEMA public CASCADE"))
            connection.execute(text("CREATE SCHEMA public"))
        engine.dispose()
    database = Database(journal_url)
    with database.writing() as connection:
        upgrade(connection, REVISIONS)
        context = MigrationContext.configure(connection, opts={"version_table": "hoptree_revision"})
        assert compare_metadata(context, METADATA) == []
    database.close()
    assert described(journal_url) == created


def test_sqlite_reports_the_same_schema_for_created_and_migrated_tables(tmp_path):
    with Store(tmp_path):
        pass
    database = Database(tmp_path / "migrated.sqlite")
    with database.writing() as connection:
        upgrade(connection, REVISIONS)
    database.close()
    told = []
    for name in ("journal", "migrated"):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as plain:
            rows = plain.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        told.append([(name, " ".join(str(sql).split())) for name, sql in rows])
    assert told[0] == told[1]


def test_the_list_of_revisions_is_that_of_the_scripts():
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    scripts = ScriptDirectory.from_config(config)
    assert tuple(script.revision for script in scripts.walk_revisions())[::-1] == REVISIONS.names


def test_a_store_that_is_up_to_date_is_opened_without_alembic(tmp_path):
    program = (
        "import sys\nfrom hoptree.store import Store\n"
        "for _ in range(2):\n    Store(sys.argv[1]).close()\nassert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "store")], check=True)


# --- moving on ----------------------------------------------------------------------------------------------


def test_opening_an_older_store_migrates_it_after_a_copy_was_made(filled, open_store, tmp_path, caplog):
    store = open_store(revisions=NEXT, create=False)
    assert revision(store) == "0004"
    with store._database.reading() as connection:
        assert connection.exec_driver_sql("SELECT note FROM hoptree_studies").scalar_one() == "was created"
        schemas = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'hoptree_backup%%'"
        copies = [] if store._database.sqlite else connection.exec_driver_sql(schemas).scalars().all()
    assert list(store.journal.read("digits")) == [(1, 0.5, Entry(TrialStopped(3)))]
    assert [record.message for record in caplog.records if "from revision 0003 to 0004" in record.message]
    if store._database.sqlite:
        (copy,) = backups(tmp_path)
        assert copy.name.startswith("journal.sqlite.revision-0003.2")
        (tmp_path / "restored").mkdir()
        shutil.copy(copy, tmp_path / "restored" / "journal.sqlite")
        with Store(tmp_path / "restored", create=False) as restored:
            assert (revision(restored), restored.journal.last("digits")) == ("0003", 1)
    else:
        (copy,) = copies
        assert copy.startswith("hoptree_backup_0003_2")
        with store._database.reading() as connection:
            told = connection.exec_driver_sql(f'SELECT study, seq FROM "{copy}".hoptree_entries').all()
        assert [tuple(row) for row in told] == [("digits", 1)]
    store.close()
    open_store(revisions=NEXT).close()
    assert len(backups(tmp_path)) == (1 if store._database.sqlite else 0)


def test_a_migration_that_fails_in_the_middle_leaves_the_store_as_it_was(filled, open_store, journal_url):
    before = described(journal_url)
    for _ in range(2):
        with pytest.raises(
            MigrationError, match=r"from revision 0003 to 0004: .*no_such_column.*; the store is unchanged"
        ):
            open_store(revisions=BROKEN)
    assert described(journal_url) == before
    store = open_store(create=False)
    assert revision(store) == "0003"
    assert list(store.journal.read("digits")) == [(1, 0.5, Entry(TrialStopped(3)))]


def test_a_copy_is_never_overwritten(filled, tmp_path, journal_url, monkeypatch):
    if "sqlite" not in journal_url:
        pytest.skip("a schema that is there cannot be created: PostgreSQL refuses it itself")
    monkeypatch.setattr("hoptree.store.revisions.time.time", lambda: 1e9)
    for _ in range(3):
        with pytest.raises(MigrationError):
            migrate(tmp_path / "store", journal_url, revisions=BROKEN)
    assert len(backups(tmp_path)) == 3


def test_a_store_in_use_is_not_migrated(filled, open_store, journal_url, clock, tmp_path):
    driver = open_store()
    lease = driver.lease("digits", Holder("far", 7, "then"))
    command = rf"hoptree migrate {tmp_path}/store --journal .*(sqlite|postgres)"
    expected = rf"revision 0003, older than 0004, and it is in use by process 7 on far; .* run {command}"
    with pytest.raises(MigrationError, match=expected):
        open_store(revisions=NEXT)
    assert revision(driver) == "0003"
    lease.release()
    assert revision(open_store(revisions=NEXT)) == "0004"
    # what was opened before must not drive with tables that it does not know
    with pytest.raises(StoreVersionError, match="migrated to revision 0004 since this process opened it"):
        driver.lease("digits")


def test_a_store_whose_driver_has_ended_is_migrated(filled, open_store, clock):
    open_store().lease("digits", Holder("far", 7, "then"))
    clock.now += 1000
    assert revision(open_store(revisions=NEXT)) == "0004"


OPEN_NEXT = """
import sys
from pathlib import Path
from hoptree.store import MigrationError, Store
from hoptree.store.revisions import REVISIONS, Revisions
try:
    names, folders = (*REVISIONS.names, "0004"), (*REVISIONS.folders, Path(sys.argv[2]))
    Store(sys.argv[1], create=False, revisions=Revisions(names, folders))
except MigrationError as error:
    print(error)
"""


def test_a_store_that_may_only_be_read_is_not_migrated(tmp_path):
    with Store(tmp_path / "store"):
        pass
    (tmp_path / "store" / "journal.sqlite").chmod(0o400)
    (tmp_path / "store").chmod(0o500)
    try:
        command = [sys.executable, "-c", OPEN_NEXT, str(tmp_path / "store"), str(HERE / "revisions")]
        done = subprocess.run(command, preexec_fn=powerless, check=True, capture_output=True, text=True)
    finally:
        (tmp_path / "store").chmod(0o700)
    assert f"you have no write permission; ask the owner to run hoptree migrate {tmp_path}/store" in done.stdout
    assert backups(tmp_path / "store") == []


def test_migrate_says_what_it_did(filled, tmp_path, journal_url):
    done = migrate(tmp_path / "store", journal_url, revisions=NEXT)
    assert (done.before, done.after) == ("0003", "0004")
    assert done.backup.startswith(("schema hoptree_backup_0003_", f"{tmp_path}/journal.sqlite.revision-0003."))
    again = migrate(tmp_path / "store", journal_url, revisions=NEXT)
    assert again == Migrated("0004", "0004", "")


def test_migrate_makes_no_copy_with_no_backup(filled, tmp_path, journal_url):
    assert migrate(tmp_path / "store", journal_url, revisions=NEXT, backup=False).backup == ""
    assert backups(tmp_path) == []


def test_migrate_creates_no_store(tmp_path):
    for _ in range(2):
        with pytest.raises(StoreMissingError):
            migrate(tmp_path)
    with pytest.raises(StoreMissingError):
        migrate(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


# --- what cannot be brought up to date ----------------------------------------------------------------------


def test_a_newer_store_is_refused_and_left_alone(filled, open_store, journal_url):
    open_store(revisions=NEXT).close()
    before = described(journal_url)
    for _ in range(2):
        with pytest.raises(StoreVersionError, match="unknown revision 0004; .* upgrade"):
            open_store()
    assert described(journal_url) == before


def test_a_store_without_its_revision_is_refused(filled, open_store):
    store = open_store()
    with store._database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM hoptree_revision")
    with pytest.raises(StoreVersionError, match="unknown revision None"):
        open_store()


def test_a_store_from_before_the_first_release_is_refused(open_store, journal_url):
    engine = create_engine(journal_url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE hoptree_store (format INTEGER PRIMARY KEY, states TEXT NOT NULL)"))
        connection.execute(text("INSERT INTO hoptree_store VALUES (4, '')"))
    engine.dispose()
    before = described(journal_url)
    for _ in range(2):
        with pytest.raises(StoreVersionError, match="format 4 from before the first release"):
            open_store()
    assert described(journal_url) == before
