"""A store: a folder with states and a journal; either may be elsewhere, by its URL."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import final

from hoptree.store.catalog import Catalog, check_name
from hoptree.store.claims import Claims
from hoptree.store.database import Database
from hoptree.store.errors import StoreError, StoreMissingError
from hoptree.store.holder import Holder
from hoptree.store.journal import Journal
from hoptree.store.lease import TIME_TO_LIVE, Lease, Leases
from hoptree.store.ledger import Ledger
from hoptree.store.reports import Reports
from hoptree.store.states import open_states
from hoptree.store.wishes import Wishes


@final
class Store:
    """Everything durable about studies. Use it as a context, or close it.

    ``states`` is where states go if not into the folder: a URL that fsspec knows, such as s3://BUCKET/PATH. The
    store remembers it. Workers need ``open_states(store.states.location)`` only; a store itself must not be carried
    over a fork.
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
    ) -> None:
        if "://" in str(location):
            raise StoreError(
                f"store: {location}; expected a local folder, with journal= for a database elsewhere and states= "
                "for states elsewhere"
            )
        self.folder = Path(location).absolute()
        if create:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise StoreError(
                    f"store: {location} is a file; expected a folder, or a name that is free"
                ) from None
            except OSError as error:
                raise StoreError(
                    f"store: {self.folder} cannot be made: {error.strerror}; expected a folder that can be "
                    "written, as store="
                ) from None
        elif not self.folder.is_dir():
            raise StoreMissingError(f"store: no folder {self.folder}; check the path, or open it with create=True")
        given = _location(states)
        if given and create:
            _try(given)
        self._database = Database(journal_url or self.folder / "journal.sqlite", create, given)
        there = self._database.states
        if given not in ("", there):
            self._database.close()
            raise StoreError(
                f"states: {given}; this store keeps its states in {there or self.folder / 'states'}; leave states= "
                "out, or name another store"
            )
        self.states = open_states(there or self.folder / "states", durable)
        self.journal = Journal(self._database, clock)
        self.catalog = Catalog(self._database, clock)
        self.reports = Reports(self._database)
        self.wishes = Wishes(self._database)
        self.ledger = Ledger(self._database, self.states, clock)
        self._leases = Leases(self._database, clock, time_to_live)

    def lease(self, study: str, holder: Holder | None = None) -> Lease:
        """Become the one driver of a study, or be told who is."""
        return self._leases.acquire(check_name(study), holder)

    def claims(self, lease: Lease, studies: Iterable[str] = ()) -> Claims:
        """Return what a driver claims and what others do; ``studies`` are all that it drives."""
        return Claims(self._database, self._leases, lease, studies)

    def holder(self, study: str) -> Holder | None:
        """Return who drives a study now."""
        return self._leases.holder(study)

    def close(self) -> None:
        """Close the database; states need no closing."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
