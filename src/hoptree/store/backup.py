"""Backs up a store's tables before a migration: a file beside SQLite's, or a schema in PostgreSQL."""

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
    """Copy all tables and return where the copy is; the connection holds the write lock, so nothing changes."""
    at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    if database.file is not None:
        return str(_copy_file(database.file, f"revision-{revision}.{at}"))
    return _copy_tables(database, connection, f"hoptree_backup_{revision}_{at.lower()}")


def _copy_file(file: Path, label: str) -> Path:
    number, copy = 1, file.with_name(f"{file.name}.{label}.backup")
    while True:
        try:
            os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # never overwrite an earlier copy
            break
        except FileExistsError:
            number += 1
            copy = file.with_name(f"{file.name}.{label}.{number}.backup")
        except OSError as error:
            raise _not_written(copy, error) from error
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
    except (OSError, sqlite3.Error) as error:
        copy.unlink(missing_ok=True)
        raise _not_written(copy, error) from error
    return copy


def _copy_tables(database: Database, connection: Connection, schema: str) -> str:
    from sqlalchemy.exc import DBAPIError

    try:
        connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')
        for table in database.tables(connection):
            connection.exec_driver_sql(f'CREATE TABLE "{schema}"."{table}" AS TABLE "{table}"')
    except DBAPIError as error:
        raise MigrationError(
            f"{database.where}: cannot copy the tables into the schema {schema} ({error.orig}), so they were not "
            "migrated; grant CREATE on the database, or back them up with pg_dump --table='hoptree_*' and run "
            "hoptree migrate with --no-backup"
        ) from error
    return f"schema {schema}"


def _not_written(copy: Path, error: Exception) -> MigrationError:
    return MigrationError(
        f"{copy}: cannot write the backup that is made before a migration ({error}); the store is unchanged; free "
        "some space, or back the store up yourself and run hoptree migrate with --no-backup"
    )
