"""Profiles: what units take in time and memory, by trainer and dataset, kept for later studies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.core.profile import Profile, ProfileEntry
from hoptree.store import exact_json

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from hoptree.store.database import Database


@final
class Profiles:
    """The profiles of a store; ``trainer`` and ``data`` are fingerprints."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def find(self, trainer: str, data: str) -> Profile:
        """Return what was measured with a trainer on a dataset, on any kind of device."""
        from sqlalchemy import select

        from hoptree.store.tables import PROFILES

        chosen = (
            select(PROFILES)
            .where(PROFILES.c.trainer == trainer, PROFILES.c.data == data)
            .order_by(PROFILES.c.kind, PROFILES.c.architecture, PROFILES.c.devices, PROFILES.c.layout)
        )
        rows = self._database.read(lambda connection: connection.execute(chosen).all())
        return Profile(tuple(_entry(row) for row in rows))

    def put(self, trainer: str, data: str, entries: Iterable[ProfileEntry]) -> None:
        """Add measurements, or replace earlier ones of the same combination."""
        from sqlalchemy import delete, insert

        from hoptree.store.tables import PROFILES

        now = self._clock()
        rows = [_values(entry, trainer, data, now) for entry in entries]

        def work(connection: Connection) -> None:
            self._database.lock(connection, f"profile {trainer} {data}")
            for row in rows:
                same = [column == row[column.name] for column in PROFILES.primary_key.columns]
                connection.execute(delete(PROFILES).where(*same))
                connection.execute(insert(PROFILES).values(row))

        self._database.write(work)


def _values(entry: ProfileEntry, trainer: str, data: str, now: float) -> dict[str, Any]:
    row = msgspec.structs.asdict(entry)
    architecture = exact_json.dump(dict(sorted(row.pop("values").items())), "architecture")
    return {**row, "trainer": trainer, "data": data, "architecture": architecture, "created": now}


def _entry(row: Row[Any]) -> ProfileEntry:
    values = exact_json.load(row.architecture)
    return ProfileEntry(values, row.layout, row.devices, row.kind, row.seconds, row.peak_bytes, row.version)
