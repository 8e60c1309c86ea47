"""Reports by state key: the metrics of a state that was evaluated once, for every study that needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, final

import msgspec

from hoptree.core.events import Metrics
from hoptree.core.metrics import spelled

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from hoptree.store.database import Database

StoredMetrics: TypeAlias = dict[str, float | str]  # with "nan" and "inf" as strings

_CHUNK = 500  # names per query: SQLite accepts 999 or more


@final
class Reports:
    """Reads the reports that journals wrote together with their events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, keys: Iterable[str]) -> dict[str, StoredMetrics]:
        """Return the metrics of those of the states that have been evaluated."""
        from sqlalchemy import select

        from hoptree.store.tables import REPORTS

        names = list(keys)

        def work(connection: Connection) -> dict[str, StoredMetrics]:
            found = {}
            for start in range(0, len(names), _CHUNK):
                chosen = select(REPORTS).where(REPORTS.c.key.in_(names[start : start + _CHUNK]))
                for key, metrics in connection.execute(chosen):
                    found[key] = msgspec.json.decode(metrics, type=StoredMetrics)
            return found

        return self._database.read(work)

    def hold(self, keys: Iterable[str], study: str) -> None:
        """Record that a study uses reports of another study, so that removing that study keeps them."""
        from hoptree.store.tables import REPORT_HOLDS

        rows = [{"key": key, "study": study} for key in keys]
        if rows:
            self._database.write(
                lambda connection: self._database.insert_missing(connection, REPORT_HOLDS, rows), durable=False
            )


def report_rows(reports: Mapping[str, Metrics], study: str) -> list[tuple[Table, list[dict[str, Any]]]]:
    """Return a study's reports as rows of the two tables that store them."""
    if not reports:
        return []
    from hoptree.store.tables import REPORT_HOLDS, REPORTS

    texts = {key: msgspec.json.encode(spelled(metrics)).decode() for key, metrics in reports.items()}
    return [
        (REPORTS, [{"key": key, "metrics": metrics} for key, metrics in texts.items()]),
        (REPORT_HOLDS, [{"key": key, "study": study} for key in texts]),
    ]
