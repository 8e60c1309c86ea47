"""The database of a store: SQLite in a file, or PostgreSQL by URL, with the same code above it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

from hoptree.core.errors import MissingExtraError
from hoptree.store.errors import StoreAwayError, StoreError, StoreUnreachableError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine, Executable, Table

PATIENCE = 60.0  # seconds that a call waits for a database that has gone away
_DURABLE = "hoptree_durable"  # execution option: absent in a reading transaction
_WAIT_SECONDS = 30
_UNCONFIRMED = 256  # writes that are remembered at most until one is made durable
# PostgreSQL says that the server went away or is starting, that it has no connection left, or that two
# transactions waited for each other: each passes
_PASSING = ("08", "57P", "53300", "40001", "40P01")
_BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED

log = logging.getLogger("hoptree")
Answer = TypeVar("Answer")


@final
class Database:
    """An open database. One per process: it must not be carried over a fork.

    SQLite runs in WAL mode, so readers and the writer do not wait for each other. A durable transaction
    (``synchronous=FULL``) is on the disk when it returns. The others (``NORMAL``) survive a killed process, and
    after a loss of power a tail of them may be missing, never one in the middle. PostgreSQL: the same, by
    ``synchronous_commit``.

    A server that goes away, or a writer that takes long, is waited for (``patience`` seconds, with one warning). A
    PostgreSQL server that was killed may have lost writes that were not durable, although it had acknowledged
    them: they are remembered until a durable one follows, and are done again on the first new connection. So what
    ``write`` is given may run more than once, and must come to the same then. A database that this user may only
    read cannot be written.
    """

    def __init__(self, url: str | Path, *, readonly: bool = False, patience: float = PATIENCE) -> None:
        address = _address(url)
        self.where = address.render_as_string(hide_password=True)
        self.sqlite = address.get_backend_name() == "sqlite"
        self.file = Path(address.database or "") if self.sqlite else None
        self.readonly = self.sqlite and readonly and not _is_writable(Path(address.database or ""))
        self._patience = patience
        self._unconfirmed: list[Callable[[Connection], object]] = []
        self._reconnected = False  # since the unconfirmed writes were made
        self._engine = _engine(address, self.where, self.readonly, self._note_connection)
        self._replacing: dict[str, Executable] = {}  # by table

    # --- transactions -----------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one moment of the database; one that is away is not waited for."""
        with self._connected() as connection:
            yield connection

    @contextmanager
    def writing(self, durable: bool = True) -> Iterator[Connection]:
        """Open a transaction that is committed at the end of the block, or undone if the block raises.

        For what must not run twice: a database that is away is not waited for.
        """
        if self.readonly:
            raise StoreError(
                f"{self.where}: this user may read it, and not write it; expected a store of your own: name it, or "
                "ask who owns this one"
            )
        with self._connected() as connection:
            connection.execution_options(**{_DURABLE: durable})
            with connection.begin():
                if not self.sqlite and not durable:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                yield connection

    def read(self, work: Callable[[Connection], Answer]) -> Answer:
        """Return what ``work`` finds; wait for a database that is away."""

        def attempt() -> Answer:
            with self.reading() as connection:
                return work(connection)

        return self._patiently(attempt)

    def write(self, work: Callable[[Connection], Answer], *, durable: bool = True, remember: bool = True) -> Answer:
        """Do ``work`` in a transaction and return its answer; wait for a database that is away.

        ``work`` must come to the same if it is done again. With ``remember=False`` a write that is not durable may
        be forgotten when the server is killed.
        """

        def attempt() -> Answer:
            confirmed = len(self._unconfirmed)
            flush = durable or confirmed >= _UNCONFIRMED
            with self.writing(flush) as connection:
                answer = work(connection)
                if flush and confirmed:
                    # a commit that changed nothing would flush nothing
                    connection.exec_driver_sql("SELECT pg_logical_emit_message(true, 'hoptree', '')")
            if flush:
                del self._unconfirmed[:confirmed]
            elif remember and not self.sqlite:
                self._unconfirmed.append(work)
            return answer

        return self._patiently(attempt)

    def fetch(self, connection: Connection, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return the rows of a plain SQL query, with ? for values: SQLAlchemy's rows cost more than the query."""
        cursor = connection.connection.cursor()
        try:
            cursor.execute(self._plain(statement), values)
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def change(self, connection: Connection, statement: str, values: Sequence[Sequence[object]]) -> int:
        """Run a plain SQL statement once for each of the values, and return how many rows it changed in all."""
        cursor = connection.connection.cursor()
        try:
            if len(values) == 1:
                cursor.execute(self._plain(statement), values[0])
            else:
                cursor.executemany(self._plain(statement), values)
            return int(cursor.rowcount)
        finally:
            cursor.close()

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

    def lock(self, connection: Connection, name: str) -> None:
        """Let no other transaction that locks the same name run until this one ends; SQLite has one writer."""
        from sqlalchemy import func, select

        if not self.sqlite:
            number = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)
            connection.execute(select(func.pg_advisory_xact_lock(number)))

    def lock_table(self, connection: Connection, table: str) -> None:
        """Let nobody else write a table until this transaction ends; SQLite has one writer."""
        if not self.sqlite:
            connection.exec_driver_sql(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")

    def tables(self, connection: Connection) -> list[str]:
        """Return the names of the tables of a Hoptree store that are there."""
        if self.sqlite:
            there = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'hoptree\\_%' ESCAPE '\\'"
        else:
            there = (
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() "
                "AND starts_with(tablename, 'hoptree_')"
            )
        return sorted(name for (name,) in connection.exec_driver_sql(there))

    def close(self) -> None:
        """Close all connections; the object must not be used any more."""
        self._engine.dispose()

    # --- a database that goes away ----------------------------------------------------------------------

    def _note_connection(self) -> None:
        self._reconnected = bool(self._unconfirmed)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        with self._translated(), self._engine.connect() as connection:
            while self._reconnected:
                self._reconnected = False
                try:
                    for work in list(self._unconfirmed):
                        with connection.begin():
                            work(connection)
                except StoreAwayError:
                    self._reconnected = True
                    raise
                except StoreError:  # another driver has taken over: what this one wrote counts no more
                    self._unconfirmed.clear()
                    raise
                except BaseException:
                    self._reconnected = True
                    raise
            yield connection

    def _patiently(self, attempt: Callable[[], Answer]) -> Answer:
        until, pause = 0.0, 0.05
        while True:
            try:
                return attempt()
            except StoreAwayError:
                now = time.monotonic()
                if not until:
                    until = now + self._patience
                    log.warning(
                        "%s: the database does not answer; waiting up to %g s for it", self.where, self._patience
                    )
                if now >= until:
                    raise
                time.sleep(min(pause, until - now))
                pause = min(2 * pause, 1.0)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import sqlite3

        from sqlalchemy.exc import DBAPIError, IntegrityError

        try:
            yield
        except IntegrityError:
            raise  # somebody else was faster: our callers expect it
        except DBAPIError as error:
            raise self._unreachable(error.orig or error, error.connection_invalidated) from error
        except sqlite3.Error as error:
            raise self._unreachable(error, False) from error
        except Exception as error:
            if self.sqlite or not type(error).__module__.startswith("psycopg"):
                raise
            raise self._unreachable(error, False) from error

    def _unreachable(self, error: BaseException, cut: bool) -> StoreUnreachableError:
        state = getattr(error, "sqlstate", None)  # None: it did not come from the server
        operational = type(error).__name__ == "OperationalError" and state is None
        if self.sqlite:  # the low byte is the kind: somebody else has written for longer than SQLite waits
            away = getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY
        else:
            away = cut or operational or (state or "").startswith(_PASSING)
        return (StoreAwayError if away else StoreUnreachableError)(
            f"{self.where}: the store's database does not work: {error}; check that its server runs, "
            "that its disk has room, that you may write there, and that this is the address of a Hoptree store"
        )

    def _plain(self, statement: str) -> str:
        return statement if self.sqlite else statement.replace("?", "%s")

    def _replace(self, table: Table) -> Executable:
        from sqlalchemy.dialects import postgresql, sqlite

        statement = (sqlite.insert if self.sqlite else postgresql.insert)(table)
        values = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
        return statement.on_conflict_do_update(index_elements=table.primary_key, set_=values)


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


def _engine(address: URL, where: str, readonly: bool, connected: Callable[[], None]) -> Engine:
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
        engine = create_engine(address, pool_pre_ping=True)
    except ImportError:
        raise MissingExtraError(
            f"{where}: needs psycopg, which is not installed; pip install 'hoptree[postgresql]'"
        ) from None
    event.listen(engine, "connect", lambda *_: connected())
    return engine


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
    if connection.info.get(_DURABLE) is not durable:
        connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.info[_DURABLE] = durable
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # take the write lock now: no upgrade, so no deadlock
