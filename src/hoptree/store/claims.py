"""Claims: what each driver on a store trains at the moment, and what it waits for.

A claim is a range of units of one lineage. It is valid while the lease of its driver is held and alive: the claims
of a killed driver are void. Wants say where in a lineage a driver needs a state or a report, so that the driver
that trains it can save them in the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, final

import msgspec

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row, Table

    from hoptree.store.database import Database
    from hoptree.store.lease import Lease, Leases

_CHUNK = 500  # names per query: SQLite accepts 999 or more
_UNITS = msgspec.json.Decoder(dict[int, bool])


class WantedState(NamedTuple):
    """What a driver wants of a lineage: for each unit, whether it needs the state or only the report.

    With ``waits`` it has an idle worker and waits for something that is claimed.
    """

    study: str
    units: dict[int, bool]
    waits: bool


class Claim(NamedTuple):
    """A driver has trained, or is about to train, the units ``first`` to ``until`` (exclusive) of a lineage."""

    study: str
    first: int
    until: int


class ClaimResult(NamedTuple):
    """The result of a claim: up to which unit it was granted, or which study has claimed it already."""

    until: int
    taken_by: str
    alone: bool  # no other driver uses the store
    wants: tuple[WantedState, ...] = ()


@final
class Claims:
    """The claims and wants of one driver, and its view of those of other drivers."""

    def __init__(self, database: Database, leases: Leases, lease: Lease, studies: Iterable[str] = ()) -> None:
        self._database = database
        self._leases = leases
        self._lease = lease
        self._own = {lease.study, *studies}

    def alone(self) -> bool:
        """Return whether no other driver uses the store now."""
        return not self._database.read(self._others)

    def claim(self, lineage: str, first: int, unit: int, until: int) -> ClaimResult:
        """Claim the units from ``unit`` to ``until`` of a lineage that this driver has trained since ``first``.

        If another driver's claim starts before ``until``, only the units before it are granted.
        """
        from sqlalchemy import delete

        from hoptree.store.tables import CLAIMED_BY_OTHERS, CLAIMS, WANTED_BY_OTHERS

        theirs = {"of": lineage, "by": self._lease.study}

        def work(connection: Connection) -> ClaimResult:
            granted = until
            self._database.lock(connection, lineage)
            others = self._others(connection)
            for row in connection.execute(CLAIMED_BY_OTHERS, theirs).all():
                if others.get(row.study) != row.token:  # its driver has exited
                    same = (CLAIMS.c.lineage == lineage, CLAIMS.c.study == row.study, CLAIMS.c.token == row.token)
                    connection.execute(delete(CLAIMS).where(*same))
                elif row.first <= unit < row.until:
                    return ClaimResult(unit, row.study, alone=False)
                elif unit < row.first < granted:
                    granted = row.first
            self._database.replace(connection, CLAIMS, [self._row(lineage, first=first, until=granted)])
            rows = connection.execute(WANTED_BY_OTHERS, theirs).all() if others else ()
            wants = tuple(_want(row) for row in rows if others.get(row.study) == row.token)
            return ClaimResult(granted, "", alone=not others, wants=wants)

        return self._database.write(work, durable=False)

    def shorten(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Replace the ranges of this driver's claims."""
        from hoptree.store.tables import CLAIMS

        rows = [self._row(lineage, first=first, until=until) for lineage, (first, until) in ranges.items()]
        self._database.write(lambda connection: self._database.replace(connection, CLAIMS, rows), durable=False)

    def release(self, lineages: Iterable[str]) -> None:
        """Release this driver's claims on some lineages."""
        from hoptree.store.tables import CLAIMS

        self._delete(CLAIMS, list(lineages))

    def claimed(self, lineages: Iterable[str]) -> dict[str, list[Claim]]:
        """Return the claims of other drivers on some lineages."""
        from hoptree.store.tables import CLAIMS

        names = list(lineages)

        def work(connection: Connection) -> dict[str, list[Claim]]:
            found: dict[str, list[Claim]] = {}
            for row in self._rows(connection, CLAIMS, names, self._others(connection)):
                found.setdefault(row.lineage, []).append(Claim(row.study, row.first, row.until))
            return found

        return self._database.read(work)

    def want(self, wants: Mapping[str, tuple[dict[int, bool], bool]], gone: Iterable[str] = ()) -> None:
        """Set what this driver wants of some lineages, and clear its wants of the lineages in ``gone``."""
        from hoptree.store.tables import WANTS

        rows = [
            self._row(lineage, units=msgspec.json.encode(units).decode(), waits=waits)
            for lineage, (units, waits) in wants.items()
        ]
        self._database.write(lambda connection: self._database.replace(connection, WANTS, rows), durable=False)
        self._delete(WANTS, list(gone))

    def wanted(self, lineages: Iterable[str]) -> dict[str, list[WantedState]]:
        """Return what other drivers want of some lineages."""
        names = list(lineages)
        if not names:
            return {}
        return self._database.read(lambda connection: self._wanted(connection, names, self._others(connection)))

    def clear(self) -> None:
        """Delete all claims and wants, also those of an earlier driver of the same study."""
        from sqlalchemy import delete

        from hoptree.store.tables import CLAIMS, WANTS

        def work(connection: Connection) -> None:
            for table in (CLAIMS, WANTS):
                ours = (table.c.study == self._lease.study, table.c.token <= self._lease.token)
                connection.execute(delete(table).where(*ours))

        self._database.write(work, durable=False)

    # --- rows -------------------------------------------------------------------------------------------

    def _others(self, connection: Connection) -> dict[str, int]:
        live = self._leases.live(connection, self._lease.holder)
        return {study: token for study, token in live.items() if study not in self._own}

    def _wanted(
        self, connection: Connection, lineages: list[str], others: Mapping[str, int]
    ) -> dict[str, list[WantedState]]:
        from hoptree.store.tables import WANTS

        found: dict[str, list[WantedState]] = {}
        for row in self._rows(connection, WANTS, lineages, others):
            found.setdefault(row.lineage, []).append(_want(row))
        return found

    def _rows(
        self, connection: Connection, table: Table, lineages: list[str], others: Mapping[str, int]
    ) -> Iterator[Row[Any]]:
        from sqlalchemy import select

        for start in range(0, len(lineages), _CHUNK):
            chosen = select(table).where(table.c.lineage.in_(lineages[start : start + _CHUNK]))
            for row in connection.execute(chosen.order_by(table.c.lineage, table.c.study)).all():
                if others.get(row.study) == row.token:
                    yield row

    def _row(self, lineage: str, **values: object) -> dict[str, Any]:
        return {"lineage": lineage, "study": self._lease.study, "token": self._lease.token, **values}

    def _delete(self, table: Table, lineages: list[str]) -> None:
        from sqlalchemy import delete

        if not lineages:
            return

        def work(connection: Connection) -> None:
            for start in range(0, len(lineages), _CHUNK):
                some = table.c.lineage.in_(lineages[start : start + _CHUNK])
                connection.execute(delete(table).where(table.c.study == self._lease.study, some))

        self._database.write(work, durable=False)


def _want(row: Row[Any]) -> WantedState:
    return WantedState(row.study, _UNITS.decode(row.units), row.waits)
