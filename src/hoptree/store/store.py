"""A store: a folder with states and a journal, or a folder of states and a journal in PostgreSQL."""

from __future__ import annotations

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
from hoptree.store.states import StateStore
from hoptree.store.wishes import Wishes


@final
class Store:
    """Everything durable about studies. Use it as a context, or close it.

    Workers need ``StateStore(store.states.folder)`` only; a store itself must not be carried over a fork.
    """

    def __init__(
        self,
        location: str | Path,
        create: bool = True,
        *,
        journal_url: str | None = None,
        durable: bool = True,
        time_to_live: float = TIME_TO_LIVE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if "://" in str(location):
            raise StoreError(
                f"store: {location}; expected a local folder, with journal_url= for a database elsewhere"
            )
        self.folder = Path(location).absolute()
        if create:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise StoreError(
                    f"store: {location} is a file; expected a folder, or a name that is free"
                ) from None
        elif not self.folder.is_dir():
            raise StoreMissingError(f"store: no folder {self.folder}; check the path, or open it with create=True")
        self.states = StateStore(self.folder / "states", durable=durable)
        self._database = Database(journal_url or self.folder / "journal.sqlite", create)
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
