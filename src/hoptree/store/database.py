"""The database of a store: SQLite in a file, or PostgreSQL at a URL, behind one interface."""

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
from hoptree.store.errors import StoreError, StoreUnavailableError, StoreUnreachableError

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine, Executable, Table

PATIENCE = 60.0  # seconds that a call waits for a database that does not answer
_DURABLE = "hoptree_durable"  # execution option: absent in a read transaction
_WAIT_SECONDS = 30
_UNCONFIRMED = 256  # writes that are kept at most until a durable one follows
# PostgreSQL's codes for temporary errors: the server is down or starting, it has no free connection, or two
# transactions are in a deadlock.
_TEMPORARY = ("08", "57P", "53300", "40001", "40P01")
_BUSY = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED

log = logging.getLogger("hoptree")
Result = TypeVar("Result")


@final
class Database:
    """An open database. One per process: it must not be used after a fork.

    SQLite runs in WAL mode, so readers and the writer do not wait for each other. A durable transaction
    (``synchronous=FULL``) is on disk when it returns. The others (``NORMAL``) survive a killed process; after a
    power failure the last of them may be missing, never one in the middle. PostgreSQL does the same by
    ``synchronous_commit``.

    Calls wait up to ``patience`` seconds for a server that does not answer or a writer that takes long, with one
    warning. A PostgreSQL server that was killed may have lost acknowledged writes that were not durable: they are
    kept until a durable one follows, and repeated on the first new connection. So the function given to ``write``
    may run more than once, and must be idempotent. A database without write permission is opened read-only.
    """

    def __init__(self, url: str | Path, *, readonly: bool = False, patience: float = PATIENCE) -> None:
        address = _address(url)
        self.where = address.render_as_string(hide_password=True)
        self.sqlite = address.get_backend_name() == "sqlite"
        self.file = Path(address.database or "") if self.sqlite else None
        self.readonly = self.sqlite and readonly and not _is_writable(Path(address.database or ""))
        self._patience = patience
        self._unconfirmed: list[Callable[[Connection], object]] = []
        self._reconnected = False  # after the unconfirmed writes
        self._engine = _engine(address, self.where, self.readonly, self._note_connection)
        self._replacing: dict[str, Executable] = {}  # statements by table

    # --- transactions -----------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction with a consistent view; do not wait for a database that does not answer."""
        with self._connected() as connection:
            yield connection

    @contextmanager
    def writing(self, durable: bool = True) -> Iterator[Connection]:
        """Open a transaction that is committed at the end of the block, or rolled back if the block raises.

        For work that must not run twice: it does not wait for a database that does not answer.
        """
        if self.readonly:
            raise StoreError(
                f"{self.where}: this user has read permission only; use a store of your own, or ask the owner of "
                "this one for write permission"
            )
        with self._connected() as connection:
            connection.execution_options(**{_DURABLE: durable})
            with connection.begin():
                if not self.sqlite and not durable:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                yield connection

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Return the result of ``work``; wait for a database that does not answer."""

        def attempt() -> Result:
            with self.reading() as connection:
                return work(connection)

        return self._retried(attempt)

    def write(self, work: Callable[[Connection], Result], *, durable: bool = True, remember: bool = True) -> Result:
        """Run ``work`` in a transaction and return its result; wait for a database that does not answer.

        ``work`` must be idempotent. With ``remember=False`` a write that is not durable may be lost when the server
        is killed.
        """

        def attempt() -> Result:
            confirmed = len(self._unconfirmed)
            flush = durable or confirmed >= _UNCONFIRMED
            with self.writing(flush) as connection:
                result = work(connection)
                if flush and confirmed:
                    # a commit without changes would not flush
                    connection.exec_driver_sql("SELECT pg_logical_emit_message(true, 'hoptree', '')")
            if flush:
                del self._unconfirmed[:confirmed]
            elif remember and not self.sqlite:
                self._unconfirmed.append(work)
            return result

        return self._retried(attempt)

    def fetch(self, connection: Connection, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return the rows of a plain SQL query with ? placeholders: SQLAlchemy's rows cost more than the query."""
        cursor = connection.connection.cursor()
        try:
            cursor.execute(self._plain(statement), values)
            return list(cursor.fetchall())
        finally:
            cursor.close()

    def change(self, connection: Connection, statement: str, values: Sequence[Sequence[object]]) -> int:
        """Run a plain SQL statement once per tuple of values, and return the total number of rows changed."""
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
        """Insert the rows whose keys do not exist; leave existing rows unchanged."""
        from sqlalchemy.dialects import postgresql, sqlite

        if rows:
            insert = sqlite.insert if self.sqlite else postgresql.insert
            connection.execute(insert(table).on_conflict_do_nothing(), rows)

    def replace(self, connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
        """Insert rows, and replace those with the same key."""
        if rows:
            if table.name not in self._replacing:  # building a statement takes longer than running it
                self._replacing[table.name] = self._replace(table)
            connection.execute(self._replacing[table.name], rows)

    def lock(self, connection: Connection, name: str) -> None:
        """Hold a lock by name until this transaction ends; SQLite needs none, it has one writer."""
        from sqlalchemy import func, select

        if not self.sqlite:
            number = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)
            connection.execute(select(func.pg_advisory_xact_lock(number)))

    def lock_table(self, connection: Connection, table: str) -> None:
        """Lock a table against other writers until this transaction ends; SQLite has one writer anyway."""
        if not self.sqlite:
            connection.exec_driver_sql(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")

    def tables(self, connection: Connection) -> list[str]:
        """Return the names of the existing tables of a Hoptree store."""
        if self.sqlite:
            query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'hoptree\\_%' ESCAPE '\\'"
        else:
            query = (
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() "
                "AND starts_with(tablename, 'hoptree_')"
            )
        return sorted(name for (name,) in connection.exec_driver_sql(query))

    def close(self) -> None:
        """Close all connections; the object must not be used afterwards."""
        self._engine.dispose()

    # --- a database that does not answer ----------------------------------------------------------------

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
                except StoreUnavailableError:
                    self._reconnected = True
                    raise
                except StoreError:  # another driver has taken over: the writes of this one are void
                    self._unconfirmed.clear()
                    raise
                except BaseException:
                    self._reconnected = True
                    raise
            yield connection

    def _retried(self, attempt: Callable[[], Result]) -> Result:
        until, pause = 0.0, 0.05
        while True:
            try:
                return attempt()
            except StoreUnavailableError:
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
            raise  # another process was faster: callers expect it
        except DBAPIError as error:
            raise self._unreachable(error.orig or error, error.connection_invalidated) from error
        except sqlite3.Error as error:
            raise self._unreachable(error, False) from error
        except Exception as error:
            if self.sqlite or not type(error).__module__.startswith("psycopg"):
                raise
            raise self._unreachable(error, False) from error

    def _unreachable(self, error: BaseException, disconnected: bool) -> StoreUnreachableError:
        state = getattr(error, "sqlstate", None)  # None: the error did not come from the server
        operational = type(error).__name__ == "OperationalError" and state is None
        if self.sqlite:  # the low byte is the kind: another process has been writing for longer than SQLite waits
            temporary = getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY
        else:
            temporary = disconnected or operational or (state or "").startswith(_TEMPORARY)
        return (StoreUnavailableError if temporary else StoreUnreachableError)(
            f"{self.where}: the store's database does not work: {error}; check that its server runs, that its disk "
            "is not full, that you have write permission, and that this is the address of a Hoptree store"
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
    """Return whether SQLite could write a file: in WAL mode it needs to create files beside it."""
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

    # Without a WAL file no process has it open, so it cannot change; SQLite needs write permission to watch it.
    unwatched = "" if file.with_name(f"{file.name}-wal").exists() else "&immutable=1"
    uri = f"file:{quote(str(file))}?mode=ro{unwatched}"
    return sqlite3.connect(uri, uri=True, timeout=_WAIT_SECONDS, check_same_thread=False)


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # we send BEGIN ourselves: the module would send it too late
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
