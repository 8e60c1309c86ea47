"""A copy of a store's tables before they are migrated: a file beside SQLite's, a schema within PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from hoptree.store.errors import MigrationError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoptree.store.database import Database


def back_up(database: Database, connection: Connection, revision: str, now: float) -> str:
    """Copy all tables, and return where the copy is; the connection has the write lock, so nothing changes."""
    at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    if database.file is not None:
        return str(_copy_file(database.file, f"revision-{revision}.{at}"))
    return _copy_tables(database, connection, f"hoptree_backup_{revision}_{at.lower()}")


def _copy_file(file: Path, label: str) -> Path:
    number, copy = 1, file.with_name(f"{file.name}.{label}.backup")
    while True:
        try:
            os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # never over an earlier copy
            break
        except FileExistsError:
            number += 1
            copy = file.with_name(f"{file.name}.{label}.{number}.backup")
        except OSError as error:
            raise _refused(copy, error) from error
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
    except (OSError, sqlite3.Error) as error:
        copy.unlink(missing_ok=True)
        raise _refused(copy, error) from error
    return copy


def _copy_tables(database: Database, connection: Connection, schema: str) -> str:
    from sqlalchemy.exc import DBAPIError

    try:
        connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')
        for table in database.tables(connection):
            connection.exec_driver_sql(f'CREATE TABLE "{schema}"."{table}" AS TABLE "{table}"')
    except DBAPIError as error:
        raise MigrationError(
            f"{database.where}: its tables cannot be copied into the schema {schema} ({error.orig}), so they are "
            "not migrated; grant CREATE on the database, or make a copy with pg_dump --table='hoptree_*' and run "
            "hoptree migrate with --no-backup"
        ) from error
    return f"schema {schema}"


def _refused(copy: Path, error: Exception) -> MigrationError:
    return MigrationError(
        f"{copy}: the copy of the store that is made before a migration cannot be written ({error}); the store is "
        "as it was; make room, or make a copy yourself and run hoptree migrate with --no-backup"
    )
