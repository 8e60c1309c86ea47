"""Reports by the name of the state they belong to: what was evaluated once is told to any study that asks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, final

import msgspec

from hoptree.core.events import Metrics

if TYPE_CHECKING:
    from hoptree.store.database import Database

Spelled: TypeAlias = dict[str, float | str]  # "nan" and "inf" as words: JSON has no such numbers

_CHUNK = 500  # names in one question: SQLite takes 999 or more


@final
class Reports:
    """Reads what journals have written beside their events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, keys: Iterable[str]) -> dict[str, Spelled]:
        """Return the metrics of those states that have been evaluated."""
        from sqlalchemy import select

        from hoptree.store.tables import REPORTS

        names, found = list(keys), {}
        with self._database.reading() as connection:
            for start in range(0, len(names), _CHUNK):
                chosen = select(REPORTS).where(REPORTS.c.key.in_(names[start : start + _CHUNK]))
                for key, metrics in connection.execute(chosen):
                    found[key] = msgspec.json.decode(metrics, type=dict[str, float | str])
        return found


def report_rows(reports: Mapping[str, Metrics]) -> list[dict[str, Any]]:
    """Return reports as rows of their table."""
    return [
        {"key": key, "metrics": msgspec.json.encode(_spelled(metrics)).decode()} for key, metrics in reports.items()
    ]


def _spelled(metrics: Metrics) -> Spelled:
    return {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()}
