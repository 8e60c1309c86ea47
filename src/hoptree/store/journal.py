"""The journal: the events of every study, numbered from 1 without gaps, written only by who holds the lease."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

from hoptree.core.events import Event, Metrics
from hoptree.store.errors import EventError, JournalConflictError, JournalDamagedError
from hoptree.store.events_json import decode, encode
from hoptree.store.lease import fence
from hoptree.store.reports import report_rows

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoptree.store.database import Database

_PAGE = 1000

Entry: TypeAlias = tuple[float, bool, Event]  # its time, whether more of the same moment follow, and what happened


class Recorded(NamedTuple):
    """An entry with its place in the journal."""

    seq: int
    now: float
    more: bool
    event: Event


@final
class Journal:
    """Appends and reads. An append is durable by default.

    Say ``durable=False`` for events whose loss costs work but no promise: after a loss of power a tail of them may
    be missing, and what they told of is done again with the same bits. The next durable append makes all
    before it durable too.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def append(
        self,
        study: str,
        entries: Sequence[Entry],
        *,
        token: int,
        after: int | None = None,
        durable: bool = True,
        reports: Mapping[str, Metrics] | None = None,
    ) -> int:
        """Append all entries or none, and return the number of the last one in the journal.

        ``token`` is the lease's, and the append counts as its heartbeat. ``after`` is the last number that
        the caller knows of; if the journal has gone further, nothing is appended. ``reports`` are metrics by the
        names of the states they belong to, for whoever asks for the same states in another study.
        """
        from hoptree.store.tables import APPEND, REPORTS

        rows = [
            {"study": study, "now": _finite(now), "more": more, "event": encode(event)}
            for now, more, event in entries
        ]
        with self._database.writing(durable) as connection:
            fence(connection, study, token, self._clock())  # locks the lease's row: no other append in between
            last = _last(connection, study)
            if after is not None and after != last:
                raise JournalConflictError(
                    f"{study}: append after entry {after}, but the journal's last entry is {last}; "
                    f"read the journal from {min(after, last)} on, and try again"
                )
            for seq, row in enumerate(rows, start=last + 1):
                row["seq"] = seq
            if rows:
                connection.execute(APPEND, rows)
            if reports:
                self._database.insert_missing(connection, REPORTS, report_rows(reports))
        return last + len(rows)

    def read(self, study: str, after: int = 0) -> Iterator[Recorded]:
        """Yield the entries after a number, in order; no transaction is open between them."""
        while page := self._page(study, after):
            for recorded in page:
                if recorded.seq != after + 1:
                    raise JournalDamagedError(
                        f"{study}: entry {after + 1} is missing from the journal, {recorded.seq} comes next; "
                        "restore the database from a backup, or begin the study under another name"
                    )
                after = recorded.seq
                yield recorded

    def last(self, study: str) -> int:
        """Return the number of the last entry: 0 if there is none."""
        with self._database.reading() as connection:
            return _last(connection, study)

    def _page(self, study: str, after: int) -> list[Recorded]:
        from sqlalchemy import select

        from hoptree.store.tables import EVENTS

        columns = (EVENTS.c.seq, EVENTS.c.now, EVENTS.c.more, EVENTS.c.event)
        chosen = select(*columns).where(EVENTS.c.study == study, EVENTS.c.seq > after)
        with self._database.reading() as connection:
            rows = connection.execute(chosen.order_by(EVENTS.c.seq).limit(_PAGE)).all()
        return [Recorded(seq, now, more, _decoded(study, seq, event)) for seq, now, more, event in rows]


def _last(connection: Connection, study: str) -> int:
    from hoptree.store.tables import LAST

    return connection.execute(LAST, {"of": study}).scalar() or 0


def _decoded(study: str, seq: int, data: bytes) -> Event:
    try:
        return decode(data)
    except EventError as error:
        raise JournalDamagedError(
            f"{study}: entry {seq} of the journal cannot be read ({error}); "
            "restore the database from a backup, or begin the study under another name"
        ) from error


def _finite(now: float) -> float:
    if not math.isfinite(now):
        raise EventError(f"now: {now!r}; expected a finite time")
    return now
