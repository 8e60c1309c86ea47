"""Creates the tables of a store, upgrades older ones when it is opened, and rejects unknown revisions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

import msgspec

from hoptree.store.errors import MigrationError, StoreMissingError, StoreVersionError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoptree.store.database import Database
    from hoptree.store.holder import Holder

log = logging.getLogger("hoptree")

FOLDER = Path(__file__).parent / "migrations"


class Revisions(NamedTuple):
    """The revisions of the tables, oldest first, and the folders of their migration scripts."""

    names: tuple[str, ...] = ("0001", "0002", "0003")
    folders: tuple[Path, ...] = (FOLDER / "versions",)

    @property
    def head(self) -> str:
        """The revision that this version of Hoptree uses."""
        return self.names[-1]


REVISIONS = Revisions()


@final
class Migrated(msgspec.Struct, frozen=True):
    """The result of a migration: old and new revision, and where the backup of the old tables is ("": none)."""

    before: str
    after: str
    backup: str


@final
class Schema:
    """The tables of one database. ``command`` is the command that upgrades them, for messages."""

    def __init__(self, database: Database, command: str, revisions: Revisions = REVISIONS) -> None:
        self._database = database
        self._command = command
        self._revisions = revisions

    def open(self, create: bool, states: str, holders: Callable[[Connection], list[Holder]]) -> str:
        """Create or upgrade the tables if needed, and return where the states are; "" for the store's own folder.

        ``states`` is written to new tables. ``holders`` returns the drivers that use the store.
        """
        with self._database.reading() as connection:
            found = self.revision(connection)
        if found is None:
            if not create:
                raise missing(self._database.where)
            self._create(states)
        elif found != self._revisions.head:
            done = self.migrate(holders)
            log.warning(
                "%s: upgraded the tables from revision %s to %s; backup of the old tables: %s",
                self._database.where,
                done.before,
                done.after,
                done.backup,
            )
        with self._database.reading() as connection:
            return str(connection.exec_driver_sql("SELECT states FROM hoptree_store").scalar_one())

    def revision(self, connection: Connection) -> str | None:
        """Return the revision of the tables, None if there are none; raise an error if it is unknown."""
        there = self._database.tables(connection)
        if "hoptree_revision" in there:
            found = str(connection.exec_driver_sql("SELECT version_num FROM hoptree_revision").scalar())
            if found not in self._revisions.names:
                raise StoreVersionError(
                    f"{self._database.where}: its tables have the unknown revision {found}; this Hoptree supports "
                    f"revisions up to {self._revisions.head}; upgrade Hoptree, or use another store"
                )
            return found
        if "hoptree_store" in there:
            number = connection.exec_driver_sql("SELECT max(format) FROM hoptree_store").scalar()
            raise StoreVersionError(
                f"{self._database.where}: stored in format {number} from before the first release, which is not "
                "supported; use another store, or move this one away and run the study again"
            )
        return None

    def check(self, connection: Connection) -> None:
        """Raise an error if another version has migrated the tables since they were opened."""
        found = connection.exec_driver_sql("SELECT version_num FROM hoptree_revision").scalar()
        if found != self._revisions.head:
            raise StoreVersionError(
                f"{self._database.where}: its tables were migrated to revision {found} since this process opened "
                f"it with revision {self._revisions.head}; restart with the version of Hoptree that migrated it"
            )

    def _create(self, states: str) -> None:
        from sqlalchemy import insert

        from hoptree.store.tables import METADATA, REVISION, STORE

        with self._database.writing() as connection:
            self._database.lock(connection, STORE.name)
            if "hoptree_revision" in self._database.tables(connection):  # another process was faster
                return
            METADATA.create_all(connection)
            connection.execute(insert(REVISION).values(version_num=REVISIONS.head))
            connection.execute(insert(STORE).values(states=states))

    def migrate(self, holders: Callable[[Connection], list[Holder]], *, backup: bool = True) -> Migrated:
        """Upgrade older tables in one transaction, after a backup; do nothing if they are up to date."""
        from hoptree.store.backup import back_up
        from hoptree.store.migrations import upgrade
        from hoptree.store.tables import STORE

        where = self._database.where
        if self._database.readonly:
            raise MigrationError(
                f"{where}: its tables are older than this Hoptree ({self._revisions.head}), and you have no write "
                f"permission; ask the owner to run {self._command}"
            )
        copy = ""
        with self._database.writing() as connection:
            self._database.lock(connection, STORE.name)
            before = self.revision(connection)
            if before is None:
                raise missing(where)
            if before == self._revisions.head:  # another process was faster
                return Migrated(before, before, "")
            self._database.lock_table(connection, "hoptree_leases")
            self._check_unused(connection, before, holders)
            if backup:
                copy = back_up(self._database, connection, before, time.time())
            try:
                upgrade(connection, self._revisions)
            except Exception as error:
                left = f", and its backup is {copy}" if copy and self._database.sqlite else ""
                raise MigrationError(
                    f"{where}: cannot upgrade the tables from revision {before} to {self._revisions.head}: "
                    f"{_first_line(error)}; the store is unchanged{left}; open it with the Hoptree version that "
                    "wrote it, or use another store"
                ) from error
        return Migrated(before, self._revisions.head, copy)

    def _check_unused(
        self, connection: Connection, found: str, holders: Callable[[Connection], list[Holder]]
    ) -> None:
        if driving := holders(connection):
            who = ", ".join(sorted({f"process {holder.pid} on {holder.host}" for holder in driving}))
            raise MigrationError(
                f"{self._database.where}: its tables have revision {found}, older than {self._revisions.head}, and "
                f"it is in use by {who}; wait until that has ended, then run {self._command}"
            )


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).partition("\n")[0]


def missing(where: str) -> StoreMissingError:
    """Return the error for a store that does not exist."""
    return StoreMissingError(
        f"{where}: no Hoptree store is there; check the address, or create it with create=True"
    )
