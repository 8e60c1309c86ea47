"""Reports by the name of the state they belong to: what was evaluated once is told to any study that asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, final

import msgspec

from hoptree.core.events import Metrics
from hoptree.core.metrics import spelled

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from hoptree.store.database import Database

StoredMetrics: TypeAlias = dict[str, float | str]  # with "nan" and "inf" as words

_CHUNK = 500  # names in one question: SQLite takes 999 or more


@final
class Reports:
    """Reads what journals have written beside their events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, keys: Iterable[str]) -> dict[str, StoredMetrics]:
        """Return the metrics of those states that have been evaluated."""
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
        """Note that a study uses reports that another one has made: forgetting that one leaves them."""
        from hoptree.store.tables import REPORT_HOLDS

        rows = [{"key": key, "study": study} for key in keys]
        if rows:
            self._database.write(
                lambda connection: self._database.insert_missing(connection, REPORT_HOLDS, rows), durable=False
            )


def report_rows(reports: Mapping[str, Metrics], study: str) -> list[tuple[Table, list[dict[str, Any]]]]:
    """Return what a study reports as rows of the two tables that hold it."""
    if not reports:
        return []
    from hoptree.store.tables import REPORT_HOLDS, REPORTS

    texts = {key: msgspec.json.encode(spelled(metrics)).decode() for key, metrics in reports.items()}
    return [
        (REPORTS, [{"key": key, "metrics": metrics} for key, metrics in texts.items()]),
        (REPORT_HOLDS, [{"key": key, "study": study} for key in texts]),
    ]
