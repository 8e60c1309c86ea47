"""The database of a store: SQLite in a file, or PostgreSQL by URL, with the same code above it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from hoptree.core.errors import MissingExtraError
from hoptree.store.errors import StoreError, StoreMissingError, StoreUnreachableError, StoreVersionError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine, Executable, Table

FORMAT = 4
_DURABLE = "hoptree_durable"  # execution option: absent in a reading transaction
_CREATION_LOCK = 0x686F7074  # "hopt": an arbitrary name for PostgreSQL's advisory lock
_WAIT_SECONDS = 30


@final
class Database:
    """An open database of this format. One per process: it must not be carried over a fork.

    SQLite runs in WAL mode, so readers and the writer do not wait for each other. A durable transaction
    (``synchronous=FULL``) is on the disk when it returns. The others (``NORMAL``) survive a killed process, and
    after a loss of power a tail of them may be missing, never one in the middle. PostgreSQL: the same, by
    ``synchronous_commit``. A new one notes where the store's ``states`` are, "" for the store's own folder.
    One that this user may only read can be read, though not written.
    """

    def __init__(self, url: str | Path, create: bool = True, states: str = "") -> None:
        address = _address(url)
        self.where = address.render_as_string(hide_password=True)
        self.sqlite = address.get_backend_name() == "sqlite"
        if self.sqlite and not create and not Path(address.database or "").is_file():
            raise _missing(self.where)
        self._readonly = self.sqlite and not create and not _is_writable(Path(address.database or ""))
        self._engine = _engine(address, self.where, self._readonly)
        self._replacing: dict[str, Executable] = {}  # by table
        try:
            self._open(create, states)
        except StoreError:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one moment of the database."""
        with self._translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, durable: bool = True) -> Iterator[Connection]:
        """Open a transaction that is committed at the end of the block, or undone if the block raises."""
        if self._readonly:
            raise StoreError(
                f"{self.where}: this user may read it, and not write it; expected a store of your own: name it, or "
                "ask who owns this one"
            )
        with self._translated(), self._engine.connect() as connection:
            connection.execution_options(**{_DURABLE: durable})
            with connection.begin():
                if not self.sqlite and not durable:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                yield connection

    def insert_missing(self, connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
        """Insert rows whose key is not there; leave those that are."""
        from sqlalchemy.dialects import postgresql, sqlite

        if rows:
            insert = sqlite.insert if self.sqlite else postgresql.insert
            connection.execute(insert(table).on_conflict_do_nothing(), rows)

    def replace(self, connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
        """Insert rows, in place of those with the same key."""
        if rows:
            if table.name not in self._replacing:  # building a statement takes longer than running it
                self._replacing[table.name] = self._replace(table)
            connection.execute(self._replacing[table.name], rows)

    def _replace(self, table: Table) -> Executable:
        from sqlalchemy.dialects import postgresql, sqlite

        statement = (sqlite.insert if self.sqlite else postgresql.insert)(table)
        values = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
        return statement.on_conflict_do_update(index_elements=table.primary_key, set_=values)

    def lock(self, connection: Connection, name: str) -> None:
        """Let no other transaction that locks the same name run until this one ends; SQLite has one writer."""
        from sqlalchemy import func, select

        if not self.sqlite:
            number = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)
            connection.execute(select(func.pg_advisory_xact_lock(number)))

    def close(self) -> None:
        """Close all connections; the object must not be used any more."""
        self._engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from sqlalchemy.exc import DBAPIError, IntegrityError

        try:
            yield
        except IntegrityError:
            raise  # somebody else was faster: our callers expect it
        except DBAPIError as error:
            raise StoreUnreachableError(
                f"{self.where}: the store's database does not work: {error.orig}; check that its server runs, "
                "that its disk has room, that you may write there, and that this is the address of a Hoptree store"
            ) from error

    @property
    def states(self) -> str:
        """Where the states are; "" for the store's own folder."""
        from sqlalchemy import select

        from hoptree.store.tables import STORE

        with self.reading() as connection:
            return str(connection.execute(select(STORE.c.states)).scalar_one())

    def _open(self, create: bool, states: str) -> None:
        if self._format() is None:
            if not create:
                raise _missing(self.where)
            self._create(states)
        found = self._format()
        if found != FORMAT:
            raise version_error(self.where, found)

    def _format(self) -> int | None:
        from sqlalchemy import inspect, select

        from hoptree.store.tables import STORE

        with self.reading() as connection:
            if not inspect(connection).has_table(STORE.name):
                return None
            found = connection.execute(select(STORE.c.format)).scalar()
        return 0 if found is None else int(found)

    def _create(self, states: str) -> None:
        from sqlalchemy import func, insert, inspect, select

        from hoptree.store.tables import METADATA, STORE

        with self.writing() as connection:
            if not self.sqlite:
                connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
            if inspect(connection).has_table(STORE.name):  # somebody else was faster
                return
            METADATA.create_all(connection)
            connection.execute(insert(STORE).values(format=FORMAT, states=states))


def version_error(where: str, found: int | None) -> StoreVersionError:
    """Return the refusal of something that is stored in another format."""
    newer = found is not None and found > FORMAT
    fix = "upgrade Hoptree" if newer else "open it with the Hoptree that wrote it"
    return StoreVersionError(
        f"{where}: stored in format {found}, which is {'newer' if newer else 'older'} than format {FORMAT}, "
        f"the one that this Hoptree reads; {fix}, or name another store"
    )


def _missing(where: str) -> StoreMissingError:
    return StoreMissingError(f"{where}: no Hoptree store is there; check the address, or open it with create=True")


def _address(url: str | Path) -> URL:
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    if isinstance(url, Path) or "://" not in url:
        return URL.create("sqlite", database=str(Path(url).absolute()))
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(f"journal: not a database URL; {_EXPECTED}") from None
    if address.drivername in ("postgres", "postgresql"):
        address = address.set(drivername="postgresql+psycopg")
    named = address.database not in (None, "", ":memory:")
    if address.drivername not in ("sqlite", "postgresql+psycopg") or not (named or address.query):
        raise StoreError(f"journal: {address.render_as_string(hide_password=True)}; {_EXPECTED}")
    return address


_EXPECTED = "expected a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"


def _is_writable(file: Path) -> bool:
    """Return whether SQLite could write it: in WAL mode that takes files beside it."""
    return os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)


def _engine(address: URL, where: str, readonly: bool) -> Engine:
    from sqlalchemy import create_engine, event

    if readonly:
        file = Path(address.database or "")
        return create_engine(address, creator=lambda: _connect_readonly(file))
    if address.get_backend_name() == "sqlite":
        engine = create_engine(address, connect_args={"timeout": _WAIT_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(address, pool_pre_ping=True)
    except ImportError:
        raise MissingExtraError(
            f"{where}: needs psycopg, which is not installed; pip install 'hoptree[postgresql]'"
        ) from None


def _connect_readonly(file: Path) -> Any:
    import sqlite3
    from urllib.parse import quote

    # Without a log beside it nobody has it open, and it need not be watched; SQLite would want to write to do that.
    unwatched = "" if file.with_name(f"{file.name}-wal").exists() else "&immutable=1"
    uri = f"file:{quote(str(file))}?mode=ro{unwatched}"
    return sqlite3.connect(uri, uri=True, timeout=_WAIT_SECONDS, check_same_thread=False)


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves: the module would say it too late
    connection.execute("PRAGMA journal_mode = WAL")


def _begin_sqlite(connection: Connection) -> None:
    durable = connection.get_execution_options().get(_DURABLE)
    if durable is None:
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # take the write lock now: no upgrade, so no deadlock
