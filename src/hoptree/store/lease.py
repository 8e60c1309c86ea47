"""Leases: one driver per study. A lease carries a token that grows with every holder, and fences the journal."""

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
    from hoptree.store.schema import Schema

_RENEW = (  # a clock may be set back
    "UPDATE hoptree_leases SET heartbeat = CASE WHEN heartbeat > ? THEN heartbeat ELSE ? END "
    "WHERE study = ? AND token = ? AND held"
)
_HELD = "SELECT host, pid, started, place, heartbeat FROM hoptree_leases WHERE held"  # in every revision
TIME_TO_LIVE = 60.0  # seconds; more than clocks of hosts differ, and several heartbeats


@final
class Leases:
    """Gives a study to one driver at a time.

    A lease can be taken over when its last heartbeat is older than the time to live, by the clock of who asks,
    or at once when its holder was a process of this host that is gone. A process of this host that runs keeps its
    lease however late its heartbeat is: a busy machine lets it wait. Times are compared between hosts, so
    their clocks must agree to well within the time to live; if they do not, a lease may be lost early, but
    the token still keeps two drivers from writing.
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
        """Return the lease of a study that is free or whose holder is gone; else say who holds it."""
        holder = holder or Holder.this_process()
        while True:
            row = self._row(study)
            if row is None:
                token = self._insert(study, holder)
            elif not row.held or self._is_gone(row, holder):
                token = self._take_over(row, holder)
            else:
                raise self._held(row, holder)
            if token is not None:
                return Lease(self._database, self._clock, study, holder, token)
            # Somebody else was faster: look again who. Every round, somebody has got ahead.

    def holder(self, study: str) -> Holder | None:
        """Return who drives a study now, without taking anything."""
        row = self._row(study)
        if row is None or not row.held or self._is_gone(row, Holder.this_process()):
            return None
        return Holder(row.host, row.pid, row.started, row.place)

    def ask_to_stop(self, study: str) -> Holder:
        """Ask who drives a study to stop, as Ctrl-C would; refuse if nobody does."""
        from sqlalchemy import update

        from hoptree.store.tables import LEASES

        holder = self.holder(study)
        if holder is None:
            raise StudyIdleError(f"{study}: nobody runs it now; expected a study that is running")
        change = update(LEASES).where(LEASES.c.study == study, LEASES.c.held).values(stop_asked=True)
        self._database.write(lambda connection: connection.execute(change).rowcount)
        return holder

    def live(self, connection: Connection, asking: Holder) -> dict[str, int]:
        """Return the studies that are driven now, each with the token of its lease."""
        from hoptree.store.tables import LIVE

        rows = connection.execute(LIVE).all()
        return {row.study: row.token for row in rows if not self._is_gone(row, asking)}

    def holders(self, connection: Connection) -> list[Holder]:
        """Return who drives any study now, of a store whose tables may be older."""
        us, found = Holder.this_process(), []
        for *columns, heartbeat in self._database.fetch(connection, _HELD, ()):
            holder = Holder(*columns)
            if not self._is_over(holder, heartbeat, us):
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
                self._schema.check(connection)  # afterwards: a migration may have made us wait
        except IntegrityError:
            return None
        return 1

    def _take_over(self, row: Row[Any], holder: Holder) -> int | None:
        from sqlalchemy import update

        from hoptree.store.tables import LEASES

        # Only if the row is still as we saw it: neither another taker nor a late heartbeat came in between.
        unchanged = (LEASES.c.study == row.study, LEASES.c.token == row.token, LEASES.c.heartbeat == row.heartbeat)
        token: int = row.token + 1
        with self._database.writing() as connection:
            change = update(LEASES).where(*unchanged).values(token=token, **self._columns(holder))
            changed = connection.execute(change).rowcount
            self._schema.check(connection)  # afterwards: a migration may have made us wait
            return token if changed else None

    def _columns(self, holder: Holder) -> dict[str, Any]:
        now = self._clock()
        person = {"host": holder.host, "pid": holder.pid, "started": holder.started, "place": holder.place}
        return {**person, "held": True, "since": now, "heartbeat": now, "stop_asked": False}

    def _is_gone(self, row: Row[Any], asking: Holder) -> bool:
        return self._is_over(Holder(row.host, row.pid, row.started, row.place), row.heartbeat, asking)

    def _is_over(self, holder: Holder, heartbeat: float, asking: Holder) -> bool:
        """Return whether a holder is gone, or silent for too long and not seen to run."""
        if holder.is_dead(asking.host, asking.place):
            return True
        silent = self._clock() - heartbeat > self._time_to_live
        return silent and not holder.is_running(asking.host, asking.place)

    def _held(self, row: Row[Any], asking: Holder) -> StudyHeldError:
        same = Holder(row.host, row.pid, row.started, row.place) == asking
        who = f"process {row.pid} on {row.host}" + (" (this process)" if same else "")
        return StudyHeldError(
            f"{row.study}: held by {who} since {_date(row.since)}, last heartbeat {_date(row.heartbeat)}; "
            f"wait until it ends or stop it: a holder that is gone is replaced at once on its own host, "
            f"elsewhere {self._time_to_live:g} s after its last heartbeat"
        )


@final
class Lease:
    """The right to drive a study, until it is released or taken over. As a context it is released at its end."""

    def __init__(
        self, database: Database, clock: Callable[[], float], study: str, holder: Holder, token: int
    ) -> None:
        self._database = database
        self._clock = clock
        self.study = study
        self.holder = holder
        self.token = token
        self._along: tuple[Lease, ...] = ()

    def take_along(self, others: Iterable[Lease]) -> None:
        """Give the heartbeats of others with ours: who drives a group drives its members too."""
        self._along = tuple(others)

    def renew(self) -> None:
        """Give a heartbeat; every append to the journal is one too, but for those that are taken along."""

        def work(connection: Connection) -> None:
            for lease in (self, *self._along):
                fence(self._database, connection, lease.study, lease.token, self._clock())

        self._database.write(work, durable=False, remember=False)

    def is_asked_to_stop(self) -> bool:
        """Return whether somebody has asked this driver to stop."""
        from sqlalchemy import select

        from hoptree.store.tables import LEASES

        studies = [lease.study for lease in (self, *self._along)]
        chosen = select(LEASES.c.study).where(LEASES.c.study.in_(studies), LEASES.c.stop_asked)
        return self._database.read(lambda connection: connection.execute(chosen).first()) is not None

    def release(self) -> None:
        """Give the study back; a lease that was lost is not ours to give, and stays as it is."""
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
    """Refuse unless the token is current, and keep it so until the transaction ends: the row stays locked."""
    from sqlalchemy import select

    from hoptree.store.tables import LEASES

    if database.change(connection, _RENEW, [(now, now, study, token)]):
        return
    row = connection.execute(select(LEASES).where(LEASES.c.study == study)).first()
    if row is None:
        fate = "nobody ever held this study"
    elif row.token == token:
        fate = "it was released"
    else:
        fate = f"process {row.pid} on {row.host} took over with token {row.token} ({_date(row.since)})"
    raise LeaseLostError(
        f"{study}: the lease with token {token} is not current: {fate}; nothing was written; "
        "this driver must stop, and may acquire the study again"
    )


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
