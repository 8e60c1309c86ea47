"""The journal: the events of every study, numbered from 1 without gaps, written only by the holder of its lease."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

from hoptree.core.events import Metrics
from hoptree.core.facts import RECORD_VERSION, Entry
from hoptree.store.chain import ADVICE, Row, Tail, beginning, chained, verified
from hoptree.store.errors import EventError, JournalConflictError, JournalDamagedError, StoreVersionError
from hoptree.store.lease import fence
from hoptree.store.record_versions import upgraded
from hoptree.store.records import decode, encode
from hoptree.store.reports import report_rows
from hoptree.store.snapshots import Snapshots

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoptree.store.database import Database

_PAGE = 5000
_COLUMNS = "seq, token, now, version, record, checksum"
_READ = f"SELECT {_COLUMNS} FROM hoptree_entries WHERE study = ? AND seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
_TAIL = "SELECT seq, checksum, token FROM hoptree_entries WHERE study = ? ORDER BY seq DESC LIMIT 1"
_AT = "SELECT seq, checksum, token FROM hoptree_entries WHERE study = ? AND seq = ?"
_APPEND = f"INSERT INTO hoptree_entries (study, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608

TimedEntry: TypeAlias = tuple[float, Entry]


class Recorded(NamedTuple):
    """An entry with its number and time in the journal."""

    seq: int
    now: float
    entry: Entry


@final
class Journal:
    """Reads and verifies what drivers wrote: a changed entry raises an error that names it."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._snapshots = Snapshots(database, clock)

    def writer(self, study: str, token: int) -> JournalWriter:
        """Return a writer for the holder of the lease with this token."""
        return JournalWriter(self._database, self._clock, study, token, self.tail(study))

    def read(self, study: str, after: int = 0) -> Iterator[Recorded]:
        """Yield the entries after a number, in order; no transaction stays open between them."""
        tail = beginning(study) if not after else self._at(study, after)
        while page := self._page(study, tail.seq):
            for seq, _, now, version, record, _ in verified(study, tail, page):
                yield Recorded(seq, now, _decoded(study, seq, version, record))
            seq, token, *_, check = page[-1]
            tail = Tail(seq, check, token)

    def last(self, study: str) -> int:
        """Return the number of the last entry: 0 if there is none."""
        return self.tail(study).seq

    def tail(self, study: str) -> Tail:
        """Return the last entry's number and checksum: those of an empty journal if there is none."""
        return self._database.read(lambda connection: _tail(self._database, connection, study))

    def write_snapshot(self, study: str, token: int, seq: int, data: bytes, *, version: int = 1) -> None:
        """Store the state that results from the entries up to ``seq``; ``version`` is the format of the data."""
        self._snapshots.write(study, token, seq, data, version)

    def read_snapshot(self, study: str, *, version: int = 1) -> tuple[int, bytes] | None:
        """Return the last snapshot that matches the journal and the number of its entry; None if there is none."""
        return self._snapshots.read(study, version)

    def _page(self, study: str, after: int) -> list[Row]:
        fetch = self._database.fetch
        return self._database.read(lambda connection: fetch(connection, _READ, (study, after, _PAGE)))

    def _at(self, study: str, seq: int) -> Tail:
        found = self._database.read(lambda connection: self._database.fetch(connection, _AT, (study, seq)))
        if not found:
            raise JournalDamagedError(f"{study}: entry {seq} is missing from the journal; {ADVICE}")
        return Tail(*found[0])


@final
class JournalWriter:
    """Appends for one driver. It knows the journal's last entry, and every append checks it.

    An append is durable by default. Use ``durable=False`` for events whose loss only costs work: after a power
    failure the last of them may be missing, and their work is repeated with the same bits. The next durable append
    makes all before it durable too. If only the database server is killed nothing is lost: missing entries are
    written again.
    """

    def __init__(self, database: Database, clock: Callable[[], float], study: str, token: int, tail: Tail) -> None:
        self._database = database
        self._clock = clock
        self._study = study
        self._token = token
        self.tail = tail

    def append(
        self, entries: Sequence[TimedEntry], *, durable: bool = True, reports: Mapping[str, Metrics] | None = None
    ) -> int:
        """Append all entries or none, and return the number of the last one in the journal.

        An append counts as a heartbeat of the lease. ``reports`` are metrics by state key, for other studies that
        need the same states.
        """
        before = self.tail
        rows = chained(
            before, self._token, RECORD_VERSION, [(_finite(now), encode(entry)) for now, entry in entries]
        )
        after = Tail(rows[-1][0], rows[-1][-1], self._token) if rows else before
        report_tables = report_rows(reports or {}, self._study)

        def work(connection: Connection) -> None:
            fence(self._database, connection, self._study, self._token, self._clock())  # locks the lease's row
            if rows and self._is_new(connection, before, after):
                self._database.change(connection, _APPEND, [(self._study, *row) for row in rows])
            for table, found in report_tables:
                self._database.insert_missing(connection, table, found)

        self._database.write(work, durable=durable)
        self.tail = after
        return after.seq

    def _is_new(self, connection: Connection, before: Tail, after: Tail) -> bool:
        """Return whether the entries are missing; raise an error if the journal continues with others."""
        last = _tail(self._database, connection, self._study)
        if last[:2] == before[:2]:
            return True
        # A write is repeated if its result was unknown: the entries may exist already.
        there = self._database.fetch(connection, _AT, (self._study, after.seq))
        if there and bytes(there[0][1]) == after.check:
            return False
        raise JournalConflictError(
            f"{self._study}: append after entry {before.seq}, but the journal's last entry is {last.seq}"
            f"{', with other content' if last.seq == before.seq else ''}; another process has written, or the "
            "database was replaced; nothing was appended; read the journal again"
        )


def _tail(database: Database, connection: Connection, study: str) -> Tail:
    found = database.fetch(connection, _TAIL, (study,))
    return Tail(*found[0]) if found else beginning(study)


def _decoded(study: str, seq: int, version: int, data: bytes) -> Entry:
    try:
        return decode(data if version == RECORD_VERSION else upgraded(data, version))
    except StoreVersionError as error:
        raise StoreVersionError(f"{study}: entry {seq} of the journal is {error}") from None
    except EventError as error:
        raise JournalDamagedError(
            f"{study}: entry {seq} of the journal cannot be read ({error}); {ADVICE}"
        ) from error


def _finite(now: float) -> float:
    if not math.isfinite(now):
        raise EventError(f"now: {now!r}; expected a finite time")
    return now
