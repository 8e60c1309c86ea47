"""Leases: one driver per study. A lease has a fencing token that grows with every holder and guards the journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, final

from hoptree.store.errors import LeaseLostError, StudyHeldError, StudyIdleError
from hoptree.store.holder import Holder

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from hoptree.store.database import Database
    from hoptree.store.revisions import Schema

_RENEW = (  # keep the later time: a clock may be set back
    "UPDATE hoptree_leases SET heartbeat = CASE WHEN heartbeat > ? THEN heartbeat ELSE ? END "
    "WHERE study = ? AND token = ? AND held"
)
_HELD = "SELECT host, pid, started, place, heartbeat FROM hoptree_leases WHERE held"  # in every revision
TIME_TO_LIVE = 60.0  # seconds; more than the clocks of hosts differ, and several heartbeats


@final
class Leases:
    """Assigns a study to one driver at a time.

    A lease can be taken over when its last heartbeat is older than the time to live, by the new driver's clock, or
    at once if its holder was a process of this host that has exited. A running process of this host keeps its lease
    however late its heartbeat is, because a busy machine may delay it. Times are compared between hosts, so their
    clocks must agree to well within the time to live; otherwise a lease may be lost early, but the token still
    prevents two drivers from writing.
    """

    def __init__(
        self,
        database: Database,
        schema: Schema,
        clock: Callable[[], float] = time.time,
        time_to_live: float = TIME_TO_LIVE,
    ) -> None:
        self._database = database
        self._schema = schema
        self._clock = clock
        self._time_to_live = time_to_live

    def acquire(self, study: str, holder: Holder | None = None) -> Lease:
        """Return the lease of a study without a live holder; raise an error that names the holder otherwise."""
        holder = holder or Holder.this_process()
        while True:
            row = self._row(study)
            if row is None:
                token = self._insert(study, holder)
            elif not row.held or self._row_expired(row, holder):
                token = self._take_over(row, holder)
            else:
                raise self._held(row, holder)
            if token is not None:
                return Lease(self._database, self._clock, study, holder, token)
            # Another process was faster: read the row again. In every round one process gets the lease.

    def holder(self, study: str) -> Holder | None:
        """Return the process that drives a study now, None if there is none; acquire nothing."""
        row = self._row(study)
        if row is None or not row.held or self._row_expired(row, Holder.this_process()):
            return None
        return Holder(row.host, row.pid, row.started, row.place)

    def ask_to_stop(self, study: str) -> Holder:
        """Ask the driver of a study to stop, as Ctrl-C would; raise an error if there is none."""
        from sqlalchemy import update

        from hoptree.store.tables import LEASES

        holder = self.holder(study)
        if holder is None:
            raise StudyIdleError(f"{study}: no process runs this study now; expected a running study")
        change = update(LEASES).where(LEASES.c.study == study, LEASES.c.held).values(stop_asked=True)
        self._database.write(lambda connection: connection.execute(change).rowcount)
        return holder

    def live(self, connection: Connection, asking: Holder) -> dict[str, int]:
        """Return the token of the lease for each study that has a live driver."""
        from hoptree.store.tables import LIVE

        rows = connection.execute(LIVE).all()
        return {row.study: row.token for row in rows if not self._row_expired(row, asking)}

    def holders(self, connection: Connection) -> list[Holder]:
        """Return the live drivers of all studies, also from older tables."""
        asking, found = Holder.this_process(), []
        for *columns, heartbeat in self._database.fetch(connection, _HELD, ()):
            holder = Holder(*columns)
            if not self._expired(holder, heartbeat, asking):
                found.append(holder)
        return found

    def _row(self, study: str) -> Row[Any] | None:
        from sqlalchemy import select

        from hoptree.store.tables import LEASES

        chosen = select(LEASES).where(LEASES.c.study == study)
        return self._database.read(lambda connection: connection.execute(chosen).first())

    def _insert(self, study: str, holder: Holder) -> int | None:
        from sqlalchemy import insert
        from sqlalchemy.exc import IntegrityError

        from hoptree.store.tables import LEASES

        try:
            with self._database.writing() as connection:
                connection.execute(insert(LEASES).values(study=study, token=1, **self._columns(holder)))
                self._schema.check(connection)  # last, because a migration may have blocked the statement above
        except IntegrityError:
            return None
        return 1

    def _take_over(self, row: Row[Any], holder: Holder) -> int | None:
        from sqlalchemy import update

        from hoptree.store.tables import LEASES

        # Only if the row has not changed since it was read, by another driver or by a late heartbeat.
        unchanged = (LEASES.c.study == row.study, LEASES.c.token == row.token, LEASES.c.heartbeat == row.heartbeat)
        token: int = row.token + 1
        with self._database.writing() as connection:
            change = update(LEASES).where(*unchanged).values(token=token, **self._columns(holder))
            changed = connection.execute(change).rowcount
            self._schema.check(connection)  # last, because a migration may have blocked the statement above
            return token if changed else None

    def _columns(self, holder: Holder) -> dict[str, Any]:
        now = self._clock()
        process = {"host": holder.host, "pid": holder.pid, "started": holder.started, "place": holder.place}
        return {**process, "held": True, "since": now, "heartbeat": now, "stop_asked": False}

    def _row_expired(self, row: Row[Any], asking: Holder) -> bool:
        return self._expired(Holder(row.host, row.pid, row.started, row.place), row.heartbeat, asking)

    def _expired(self, holder: Holder, heartbeat: float, asking: Holder) -> bool:
        """Return whether a holder has exited, or its heartbeat is too old and it is not known to run."""
        if holder.is_dead(asking.host, asking.place):
            return True
        silent = self._clock() - heartbeat > self._time_to_live
        return silent and not holder.is_running(asking.host, asking.place)

    def _held(self, row: Row[Any], asking: Holder) -> StudyHeldError:
        same = Holder(row.host, row.pid, row.started, row.place) == asking
        who = f"process {row.pid} on {row.host}" + (" (this process)" if same else "")
        return StudyHeldError(
            f"{row.study}: held by {who} since {_date(row.since)}, last heartbeat {_date(row.heartbeat)}; "
            f"wait until it ends or stop it: a process that has exited is replaced at once on its own host, "
            f"on other hosts {self._time_to_live:g} s after its last heartbeat"
        )


@final
class Lease:
    """The right to drive a study until it is released or taken over. As a context manager it releases itself."""

    def __init__(
        self, database: Database, clock: Callable[[], float], study: str, holder: Holder, token: int
    ) -> None:
        self._database = database
        self._clock = clock
        self.study = study
        self.holder = holder
        self.token = token
        self._members: tuple[Lease, ...] = ()

    def renew_together(self, others: Iterable[Lease]) -> None:
        """Renew other leases together with this one: the driver of a group drives its members too."""
        self._members = tuple(others)

    def renew(self) -> None:
        """Write a heartbeat. Every append to the journal is one too, but not for the members of a group."""

        def work(connection: Connection) -> None:
            for lease in (self, *self._members):
                fence(self._database, connection, lease.study, lease.token, self._clock())

        self._database.write(work, durable=False, remember=False)

    def is_asked_to_stop(self) -> bool:
        """Return whether this driver was asked to stop."""
        from sqlalchemy import select

        from hoptree.store.tables import LEASES

        studies = [lease.study for lease in (self, *self._members)]
        chosen = select(LEASES.c.study).where(LEASES.c.study.in_(studies), LEASES.c.stop_asked)
        return self._database.read(lambda connection: connection.execute(chosen).first()) is not None

    def release(self) -> None:
        """Release the study; a lease that was lost belongs to another driver and is not changed."""
        from sqlalchemy import update

        from hoptree.store.tables import LEASES

        ours = (LEASES.c.study == self.study, LEASES.c.token == self.token)
        change = update(LEASES).where(*ours).values(held=False)
        self._database.write(lambda connection: connection.execute(change).rowcount)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def fence(database: Database, connection: Connection, study: str, token: int, now: float) -> None:
    """Raise an error unless the token is current; the row stays locked until the transaction ends."""
    from sqlalchemy import select

    from hoptree.store.tables import LEASES

    if database.change(connection, _RENEW, [(now, now, study, token)]):
        return
    row = connection.execute(select(LEASES).where(LEASES.c.study == study)).first()
    if row is None:
        reason = "nobody ever held this study"
    elif row.token == token:
        reason = "it was released"
    else:
        reason = f"process {row.pid} on {row.host} took over with token {row.token} ({_date(row.since)})"
    raise LeaseLostError(
        f"{study}: the lease with token {token} is not current: {reason}; nothing was written; "
        "this driver must stop; it may acquire the study again"
    )


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
