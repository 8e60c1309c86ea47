"""A store: a folder with states and a journal; either may instead be at a URL."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, final

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
from hoptree.store.profiles import Profiles
from hoptree.store.reports import Reports
from hoptree.store.requests import RequestTable
from hoptree.store.revisions import REVISIONS, Migrated, Revisions, Schema, missing
from hoptree.store.states import LocationMarkers, open_states


class StoreTiming(NamedTuple):
    """The clock of a store and its time limits in seconds.

    A lease without a heartbeat expires after ``time_to_live``. A call waits up to ``patience`` for a database that
    does not answer.
    """

    clock: Callable[[], float] = time.time
    time_to_live: float = TIME_TO_LIVE
    patience: float = PATIENCE


_TIMING = StoreTiming()


@final
class Store:
    """All persistent data of studies. Use it as a context manager, or close it.

    ``states`` is a URL that fsspec supports, such as s3://BUCKET/PATH, for states outside of the folder. The store
    records it. Workers need ``open_states(store.states.location)`` only; a store must not be used after a fork.
    Tables of an older revision are upgraded.
    """

    def __init__(
        self,
        location: str | Path,
        create: bool = True,
        *,
        journal_url: str | None = None,
        states: str | None = None,
        durable: bool = True,
        timing: StoreTiming = _TIMING,
        revisions: Revisions = REVISIONS,
    ) -> None:
        clock = timing.clock
        self.folder = _folder(location, create)
        given = _location(states)
        if given and create:
            _check_writable(open_states(given))
        self._database, schema = _database(self.folder, journal_url, create, timing.patience, revisions)
        self._leases = Leases(self._database, schema, clock, timing.time_to_live)
        try:
            there = schema.open(create, given, self._leases.holders)
            if given not in ("", there):
                raise StoreError(
                    f"states: {given}; this store keeps its states in {there or self.folder / 'states'}; leave "
                    "states= out, or use another store"
                )
        except BaseException:
            self._database.close()
            raise
        self.states = open_states(there or self.folder / "states", durable)
        self.journal = Journal(self._database, clock)
        self.catalog = Catalog(self._database, clock)
        self.reports = Reports(self._database)
        self.requests = RequestTable(self._database)
        self.origins = Origins(self._database, clock)
        self.profiles = Profiles(self._database, clock)
        self.ledger = Ledger(self._database, self.states, clock)

    def lease(self, study: str, holder: Holder | None = None) -> Lease:
        """Become the only driver of a study; raise an error that names the driver if there is one."""
        return self._leases.acquire(check_name(study), holder)

    def claims(self, lease: Lease, studies: Iterable[str] = ()) -> Claims:
        """Return the claims of a driver and of other drivers; ``studies`` are all that it drives."""
        return Claims(self._database, self._leases, lease, studies)

    def holder(self, study: str) -> Holder | None:
        """Return the process that drives a study now, None if there is none."""
        return self._leases.holder(study)

    def ask_to_stop(self, study: str) -> Holder:
        """Ask the driver of a study to stop, as Ctrl-C would, and return it."""
        return self._leases.ask_to_stop(study)

    def forget(self, study: str) -> RemovedStudy:
        """Remove a study without a driver, except what other studies need, and return what was removed."""
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
    """Upgrade the tables of a store and return what was done; opening a store does the same."""
    database, schema = _database(_folder(location, False), journal_url, False, PATIENCE, revisions)
    try:
        return schema.migrate(Leases(database, schema).holders, backup=backup)
    finally:
        database.close()


def _folder(location: str | Path, create: bool) -> Path:
    if "://" in str(location):
        raise StoreError(
            f"store: {location}; expected a local folder; give a database elsewhere as journal= and states "
            "elsewhere as states="
        )
    folder = Path(location).absolute()
    if create:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise StoreError(
                f"store: {location} is a file; expected a folder, or a path that does not exist"
            ) from None
        except OSError as error:
            raise StoreError(
                f"store: cannot create {folder}: {error.strerror}; give a folder with write permission as store="
            ) from None
    elif not folder.is_dir():
        raise StoreMissingError(f"store: no folder {folder}; check the path, or create it with create=True")
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
    """Return where states go, as an absolute path or URL; "" for the store's own folder."""
    if not states or "://" in states:
        return states or ""
    return str(Path(states).absolute())


def _check_writable(states: LocationMarkers) -> None:
    """Raise an error if a location cannot be written, before the store records it permanently."""
    name = f"driver-{secrets.token_hex(8)}"
    states.write_marker(name)
    states.remove_marker(name)
