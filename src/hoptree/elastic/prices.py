"""Prices from a local CSV in the columns of SkyPilot's catalogs (``vms.csv``); nothing is fetched."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hoptree.core.errors import WorkloadError
from hoptree.elastic.instance import Instance

NAME, DEVICES, PRICE, SPOT_PRICE = "InstanceType", "AcceleratorCount", "Price", "SpotPrice"
REGION, ZONE = "Region", "AvailabilityZone"


def instance_from_csv(
    path: str | Path, name: str, *, region: str | None = None, spot: bool = False, **terms: Any
) -> Instance:
    """Return an instance type with its devices and its price per hour.

    ``region`` is needed if prices differ between regions; it may name a zone too. ``terms`` are further fields of
    `Instance`, such as ``minimum``, and ``devices`` if the file counts none.
    """
    column = SPOT_PRICE if spot else PRICE
    found = _rows(Path(path), name, [NAME, column, *([REGION] if region is not None else [])])
    if region is not None:
        found = _in_region(found, name, region)
    priced = [(row, _number(row, column, name)) for row in found if (row.get(column) or "").strip()]
    if not priced:
        raise WorkloadError(
            f"{column}: empty for {name!r} in {Path(path).name}; expected dollars per hour; "
            "give another region, or write Instance(..., price=...) yourself"
        )
    prices = {price for _, price in priced}
    if len(prices) > 1:
        listed = ", ".join(sorted({f"{_place(row, region)} ({price:g})" for row, price in priced}))
        raise WorkloadError(
            f"region: {region!r}; {name!r} has several prices; expected one of these: {listed}; pass it as region="
        )
    if "devices" not in terms:
        terms["devices"] = _devices(priced[0][0], name)
    return Instance(name, price=prices.pop(), spot=spot, **terms)


def _rows(path: Path, name: str, columns: Sequence[str]) -> list[Mapping[str, str]]:
    """Return the rows of an instance type."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            header = [each.strip() for each in reader.fieldnames or ()]
            reader.fieldnames = header
            missing = [each for each in columns if each not in header]
            if missing:
                raise WorkloadError(
                    f"{path.name}: no column {missing[0]!r}; expected SkyPilot's columns {', '.join(columns)}; "
                    f"it has: {', '.join(header) or 'none'}"
                )
            rows: list[Mapping[str, str]] = list(reader)
    except OSError as error:
        raise WorkloadError(f"path: {str(path)!r}; expected a CSV file with prices: {error.strerror}") from error
    found = [row for row in rows if row[NAME] == name]
    if not found:
        names = sorted({row[NAME] for row in rows if row[NAME]})
        near = [each for each in names if each.partition(".")[0] == name.partition(".")[0]] or names
        raise WorkloadError(
            f"name: {name!r} is not in {path.name}; expected one of its instance types, such as "
            f"{', '.join(near[:8]) or '(none)'}"
        )
    return found


def _in_region(rows: Sequence[Mapping[str, str]], name: str, region: str) -> list[Mapping[str, str]]:
    found = [row for row in rows if region in (row.get(REGION), row.get(ZONE))]
    if not found:
        regions = ", ".join(sorted({row.get(REGION) or "" for row in rows}))
        raise WorkloadError(f"region: {region!r}; {name!r} is offered in: {regions}; pass one of these")
    return found


def _place(row: Mapping[str, str], region: str | None) -> str:
    """Return what tells rows apart: regions, or the zones of one region."""
    places = (row.get(REGION), row.get(ZONE)) if region is None else (row.get(ZONE), row.get(REGION))
    return next((each for each in places if each), "?")


def _number(row: Mapping[str, str], column: str, name: str) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise WorkloadError(f"{column}: {row[column]!r} for {name!r}; expected a number, 0 or more")
    return value


def _devices(row: Mapping[str, str], name: str) -> int:
    count = _number(row, DEVICES, name) if (row.get(DEVICES) or "").strip() else 0.0
    if count < 1 or count != int(count):
        raise WorkloadError(
            f"{DEVICES}: {row.get(DEVICES)!r} for {name!r}; expected a whole number of devices; "
            "pass how many trials can train on it side by side as devices="
        )
    return int(count)
