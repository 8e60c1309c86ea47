"""What profiling a study has found, as a table and as data."""

from __future__ import annotations

from typing import Any, final

import msgspec

from hoptree.core.layouts import DATA, SINGLE
from hoptree.core.profile import Profile, seconds_by_devices, widths_that_pay
from hoptree.report.tables import duration, size, text_table


@final
class ProfileReport(msgspec.Struct, frozen=True):
    """The profile of a study's configs on one kind of device; ``str`` returns the table.

    ``measured`` is the number of combinations that were measured now; the others were in the store. ``failed`` has
    the error of each config that could not be measured, with its values.
    """

    study: str
    kind: str
    profile: Profile
    measured: int = 0
    failed: list[tuple[dict[str, Any], str]] = []

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary for each architecture, layout and number of devices."""
        found = []
        for each in self.profile.architectures():
            times = seconds_by_devices(each.entries)
            pays = widths_that_pay(times)
            found += [
                {
                    "architecture": entry.values,
                    "layout": entry.layout,
                    "devices": entry.devices,
                    "seconds": entry.seconds if entry.fits else None,
                    "speed": times[1] / entry.seconds if 1 in times and entry.seconds and entry.fits else None,
                    "peak_bytes": entry.peak_bytes,
                    "pays": entry.devices in pays or entry.layout not in (SINGLE, DATA),
                    "fits": entry.fits,
                    "dominated": any(entry.is_dominated_by(other) for other in each.entries),
                    "version": entry.version,
                }
                for entry in each.entries
            ]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as a dictionary."""
        failed = [{"values": values, "error": error} for values, error in self.failed]
        return {
            "study": self.study,
            "kind": self.kind,
            "measured": self.measured,
            "entries": self.rows(),
            "failed": failed,
        }

    def table(self, width: int | None = None) -> str:
        """Return a table: time and memory by architecture, layout and number of devices."""
        return profile_table(self.rows(), width)

    def text(self, width: int | None = None) -> str:
        """Return the table, and what could not be measured."""
        parts = [self.table(width), f"Measured on {self.kind}."]
        parts += [f"{_values(values)} could not be measured:\n{error}" for values, error in self.failed]
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.text()


def profile_table(rows: list[dict[str, Any]], width: int | None = None) -> str:
    """Return the rows of a profile as a table."""
    head = ["architecture", "layout", "devices", "time of a unit", "speed", "peak memory", ""]
    cells = [
        [
            _values(row["architecture"]),
            row["layout"],
            row["devices"],
            duration(row["seconds"]) if row["fits"] else "does not fit",
            "" if row["speed"] is None else f"{row['speed']:.2f}",
            size(row["peak_bytes"]) if row["fits"] else _limit(row["peak_bytes"]),
            _remark(row),
        ]
        for row in rows
    ]
    return text_table(head, cells, width=width)


def _limit(limit: int) -> str:
    return f"limit {size(limit)}" if limit else ""


def _remark(row: dict[str, Any]) -> str:
    if row["dominated"]:
        return "slower, and more memory than another"
    return "" if row["pays"] or not row["fits"] else "does not pay"


def _values(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items()) or "any values"
