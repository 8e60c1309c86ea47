"""A store: a folder with states and a journal; either may be elsewhere, by its URL."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import final

from hoptree.store.catalog import Catalog, check_name
from hoptree.store.claims import Claims
from hoptree.store.database import PATIENCE, Database
from hoptree.store.errors import StoreError, StoreMissingError
from hoptree.store.forget_study import RemovedStudy, forget
from hoptree.store.holder import Holder
from hoptree.store.journal import Journal
from hoptree.store.lease import TIME_TO_LIVE, Lease, Leases
from hoptree.store.ledger import Ledger
from hoptree.store.origins import Origins
from hoptree.store.reports import Reports
from hoptree.store.requests import RequestTable
from hoptree.store.schema import REVISIONS, Migrated, Revisions, Schema, missing
from hoptree.store.states import open_states


@final
class Store:
    """Everything durable about studies. Use it as a context, or close it.

    ``states`` is where states go if not into the folder: a URL that fsspec knows, such as s3://BUCKET/PATH. The
    store remembers it. Workers need ``open_states(store.states.location)`` only; a store itself must not be carried
    over a fork. Tables of an older revision are brought up to date. A database that goes away while the store is
    open is waited for, ``patience`` seconds.
    """

    def __init__(
        self,
        location: str | Path,
        create: bool = True,
        *,
        journal_url: str | None = None,
        states: str | None = None,
        durable: bool = True,
        time_to_live: float = TIME_TO_LIVE,
        clock: Callable[[], float] = time.time,
        patience: float = PATIENCE,
        revisions: Revisions = REVISIONS,
    ) -> None:
        self.folder = _folder(location, create)
        given = _location(states)
        if given and create:
            _try(given)
        self._database, schema = _database(self.folder, journal_url, create, patience, revisions)
        self._leases = Leases(self._database, schema, clock, time_to_live)
        try:
            there = schema.open(create, given, self._leases.holders)
            if given not in ("", there):
                raise StoreError(
                    f"states: {given}; this store keeps its states in {there or self.folder / 'states'}; leave "
                    "states= out, or name another store"
                )
        except BaseException:
            self._database.close()
            raise
        self.states = open_states(there or self.folder / "states", durable)
        self.journal = Journal(self._database, clock)
        self.catalog = Catalog(self._database, clock)
        self.reports = Reports(self._database)
        self.wishes = RequestTable(self._database)
        self.origins = Origins(self._database, clock)
        self.ledger = Ledger(self._database, self.states, clock)

    def lease(self, study: str, holder: Holder | None = None) -> Lease:
        """Become the one driver of a study, or be told who is."""
        return self._leases.acquire(check_name(study), holder)

    def claims(self, lease: Lease, studies: Iterable[str] = ()) -> Claims:
        """Return what a driver claims and what others do; ``studies`` are all that it drives."""
        return Claims(self._database, self._leases, lease, studies)

    def holder(self, study: str) -> Holder | None:
        """Return who drives a study now."""
        return self._leases.holder(study)

    def ask_to_stop(self, study: str) -> Holder:
        """Ask who drives a study to stop, as Ctrl-C would, and return who that is."""
        return self._leases.ask_to_stop(study)

    def forget(self, study: str) -> RemovedStudy:
        """Remove all there is of a study that nobody drives, but for what other studies need; say what went."""
        with self.lease(study):
            return forget(self._database, self.states, study)

    def close(self) -> None:
        """Close the database; states need no closing."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def migrate(
    location: str | Path,
    journal_url: str | None = None,
    *,
    backup: bool = True,
    revisions: Revisions = REVISIONS,
) -> Migrated:
    """Bring the tables of a store up to date and say what was done; opening a store does the same."""
    database, schema = _database(_folder(location, False), journal_url, False, PATIENCE, revisions)
    try:
        return schema.migrate(Leases(database, schema).holders, backup=backup)
    finally:
        database.close()


def _folder(location: str | Path, create: bool) -> Path:
    if "://" in str(location):
        raise StoreError(
            f"store: {location}; expected a local folder, with journal= for a database elsewhere and states= "
            "for states elsewhere"
        )
    folder = Path(location).absolute()
    if create:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise StoreError(f"store: {location} is a file; expected a folder, or a name that is free") from None
        except OSError as error:
            raise StoreError(
                f"store: {folder} cannot be made: {error.strerror}; expected a folder that can be "
                "written, as store="
            ) from None
    elif not folder.is_dir():
        raise StoreMissingError(f"store: no folder {folder}; check the path, or open it with create=True")
    return folder


def _database(
    folder: Path, url: str | None, create: bool, patience: float, revisions: Revisions
) -> tuple[Database, Schema]:
    database = Database(url or folder / "journal.sqlite", readonly=not create, patience=patience)
    if database.file is not None and not create and not database.file.is_file():
        raise missing(database.where)
    elsewhere = f" --journal {shlex.quote(database.where)}" if url else ""
    return database, Schema(database, f"hoptree migrate {shlex.quote(str(folder))}{elsewhere}", revisions)


def _location(states: str | None) -> str:
    """Return where states go, by a name that holds in any folder; "" for the store's own."""
    if not states or "://" in states:
        return states or ""
    return str(Path(states).absolute())


def _try(location: str) -> None:
    """See that one can write there, before a store says for ever that its states are there."""
    states, name = open_states(location), f"driver-{secrets.token_hex(8)}"
    states.sign(name)
    states.unsign(name)
