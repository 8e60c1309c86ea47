"""Which revision the tables of a store have: created, brought up to date when a store is opened, or refused."""

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
    """The revisions of the tables, oldest first, and the folders that their scripts are in."""

    names: tuple[str, ...] = ("0001", "0002")
    folders: tuple[Path, ...] = (FOLDER / "versions",)

    @property
    def head(self) -> str:
        """The revision that this Hoptree works with."""
        return self.names[-1]


REVISIONS = Revisions()


@final
class Migrated(msgspec.Struct, frozen=True):
    """What was done to a store: from which revision to which, and where a copy of the old tables is ("": none)."""

    before: str
    after: str
    backup: str


@final
class Schema:
    """The tables of one database. ``command`` is what a user can run to bring them up to date."""

    def __init__(self, database: Database, command: str, revisions: Revisions = REVISIONS) -> None:
        self._database = database
        self._command = command
        self._revisions = revisions

    def open(self, create: bool, states: str, holders: Callable[[Connection], list[Holder]]) -> str:
        """See that the tables are up to date, and return where the states are; "" for the store's own folder.

        Tables are created if there are none, with ``states`` in them, and older ones are migrated. ``holders``
        tells who drives studies.
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
                "%s: its tables were brought from revision %s to %s; a copy of the old ones is %s",
                self._database.where,
                done.before,
                done.after,
                done.backup,
            )
        with self._database.reading() as connection:
            return str(connection.exec_driver_sql("SELECT states FROM hoptree_store").scalar_one())

    def revision(self, connection: Connection) -> str | None:
        """Return the revision of the tables, None if there are none; refuse what this Hoptree cannot bring on."""
        there = self._database.tables(connection)
        if "hoptree_revision" in there:
            found = str(connection.exec_driver_sql("SELECT version_num FROM hoptree_revision").scalar())
            if found not in self._revisions.names:
                raise StoreVersionError(
                    f"{self._database.where}: its tables have revision {found}, which this Hoptree does not know; "
                    f"it knows up to {self._revisions.head}; upgrade Hoptree, or name another store"
                )
            return found
        if "hoptree_store" in there:
            number = connection.exec_driver_sql("SELECT max(format) FROM hoptree_store").scalar()
            raise StoreVersionError(
                f"{self._database.where}: stored in format {number}, which is from before the first release and "
                "was never released; this Hoptree does not read it; name another store, or move this one away and "
                "run the study again"
            )
        return None

    def check(self, connection: Connection) -> None:
        """Refuse to go on if another version has migrated the tables since they were opened."""
        found = connection.exec_driver_sql("SELECT version_num FROM hoptree_revision").scalar()
        if found != self._revisions.head:
            raise StoreVersionError(
                f"{self._database.where}: its tables were migrated to revision {found} since this process opened "
                f"it, which works with {self._revisions.head}; start again with the Hoptree that migrated it"
            )

    def _create(self, states: str) -> None:
        from sqlalchemy import insert

        from hoptree.store.tables import METADATA, REVISION, STORE

        with self._database.writing() as connection:
            self._database.lock(connection, STORE.name)
            if "hoptree_revision" in self._database.tables(connection):  # somebody else was faster
                return
            METADATA.create_all(connection)
            connection.execute(insert(REVISION).values(version_num=REVISIONS.head))
            connection.execute(insert(STORE).values(states=states))

    def migrate(self, holders: Callable[[Connection], list[Holder]], *, backup: bool = True) -> Migrated:
        """Bring older tables up to date in one transaction, after copying them; nothing happens to others."""
        from hoptree.store.backup import back_up
        from hoptree.store.migrations import upgrade
        from hoptree.store.tables import STORE

        where = self._database.where
        if self._database.readonly:
            raise MigrationError(
                f"{where}: its tables are older than this Hoptree ({self._revisions.head}), and this user may not "
                f"write them; let who owns it run {self._command}"
            )
        copy = ""
        with self._database.writing() as connection:
            self._database.lock(connection, STORE.name)
            before = self.revision(connection)
            if before is None:
                raise missing(where)
            if before == self._revisions.head:  # somebody else was faster
                return Migrated(before, before, "")
            self._database.lock_table(connection, "hoptree_leases")
            self._refuse_in_use(connection, before, holders)
            if backup:
                copy = back_up(self._database, connection, before, time.time())
            try:
                upgrade(connection, self._revisions)
            except Exception as error:
                left = f", and a copy of it is {copy}" if copy and self._database.sqlite else ""
                raise MigrationError(
                    f"{where}: its tables cannot be brought from revision {before} to {self._revisions.head}: "
                    f"{_first_line(error)}; it is as it was{left}; open it with the Hoptree that wrote "
                    "it, or name another store"
                ) from error
        return Migrated(before, self._revisions.head, copy)

    def _refuse_in_use(
        self, connection: Connection, found: str, holders: Callable[[Connection], list[Holder]]
    ) -> None:
        if driving := holders(connection):
            who = ", ".join(sorted({f"process {holder.pid} on {holder.host}" for holder in driving}))
            raise MigrationError(
                f"{self._database.where}: its tables have revision {found}, older than {self._revisions.head}, and "
                f"it is in use by {who}; when that has ended, run {self._command}"
            )


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).partition("\n")[0]


def missing(where: str) -> StoreMissingError:
    """Return the error that says that there is no store."""
    return StoreMissingError(f"{where}: no Hoptree store is there; check the address, or open it with create=True")
