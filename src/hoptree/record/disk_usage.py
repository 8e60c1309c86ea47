"""Disk usage of a store: its states, the trials that they belong to, what they cost, and who needs them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, final

import msgspec

from hoptree.core.plan import Trial
from hoptree.record.opening import open_record
from hoptree.record.record import Record
from hoptree.report.tables import duration, size, text_table

if TYPE_CHECKING:
    from hoptree.store import Store


class StateOnDisk(msgspec.Struct, frozen=True):
    """A state on disk.

    ``trials`` are the trials that pass through it, by study and number; ``epoch`` is its position in them, with a
    fraction within an epoch, and None if no journal mentions the state. ``seconds`` is the time to train it again
    from the state before it; ``benefit`` decides which state is evicted first when the disk is full; ``held_by``
    are the studies that need it, so that it is never evicted. ``study`` saved it; "" if a driver was killed before
    it recorded that.
    """

    key: str
    study: str
    trials: tuple[tuple[str, int], ...]
    epoch: float | None
    size: int
    seconds: float
    used: float
    uses: int
    held_by: tuple[str, ...]
    benefit: float


@final
class DiskUsage:
    """All states of a store, or of one study: those that studies need first, then by benefit."""

    def __init__(self, rows: list[StateOnDisk], now: float) -> None:
        self._rows = sorted(rows, key=lambda row: (not row.held_by, -row.benefit, row.key))
        self._now = now

    def __iter__(self) -> Iterator[StateOnDisk]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> StateOnDisk:
        return self._rows[index]

    def of(self, study: str) -> DiskUsage:
        """Return the states that a study has saved, holds or passes through."""
        rows = [
            row
            for row in self._rows
            if study == row.study or study in row.held_by or any(name == study for name, _ in row.trials)
        ]
        return DiskUsage(rows, self._now)

    @property
    def size(self) -> int:
        """The total size in bytes."""
        return sum(row.size for row in self._rows)

    @property
    def held(self) -> int:
        """The bytes of states that some study needs."""
        return sum(row.size for row in self._rows if row.held_by)

    def table(self) -> str:
        """Return a table as text."""
        columns = ["state", "made by", "trials", "epoch", "size", "to retrain", "last used", "held by"]
        rows = [
            [
                row.key[:8],
                row.study or None,
                _shorten(row.trials),
                None if row.epoch is None else f"{row.epoch:g}",
                size(row.size),
                duration(row.seconds),
                f"{duration(max(0.0, self._now - row.used))} ago",
                ", ".join(row.held_by) or None,
            ]
            for row in self._rows
        ]
        title = f"{len(rows)} states, {size(self.size)}, of which {size(self.held)} are needed"
        return text_table(columns, rows, title=title)

    def __str__(self) -> str:
        return self.table()


def disk_usage(store: Store, *, trials: bool = True) -> DiskUsage:
    """Return the disk usage of a store.

    To find the trials of each state, the journals of all studies are read, which takes long if they are long;
    leave that out with ``trials=False``.
    """
    now = time.time()
    places = _places(store) if trials else {}
    rows = []
    sizes = store.states.sizes()
    for record in store.ledger.all():
        epoch, passing = places.get(record.key, (None, ()))
        rows.append(
            StateOnDisk(
                key=record.key,
                study=record.study,
                trials=tuple(passing),
                epoch=epoch,
                size=sizes.pop(record.key, record.size),
                seconds=record.seconds,
                used=record.used,
                uses=record.uses,
                held_by=record.held_by,
                benefit=record.benefit(now),
            )
        )
    for key, bytes_stored in sizes.items():
        epoch, passing = places.get(key, (None, ()))
        rows.append(StateOnDisk(key, "", tuple(passing), epoch, bytes_stored, 0.0, now, 0, (), 0.0))
    return DiskUsage(rows, now)


def _places(store: Store) -> dict[str, tuple[float, list[tuple[str, int]]]]:
    """Return by state key the epoch at which it lies, and its trials, according to all journals."""
    stored = set(store.states.keys())
    found: dict[str, tuple[float, list[tuple[str, int]]]] = {}
    for known in store.catalog.all():
        if not store.journal.last(known.name):
            continue
        record = open_record(store, known)
        keys: dict[tuple[int, int], str] = {}
        numbers: dict[str, int] = {}
        for trial in record.trials:
            number = numbers[trial.study] = numbers.get(trial.study, -1) + 1
            for key, epoch in _states_of(record, trial, keys):
                if key in stored:
                    passing = found.setdefault(key, (epoch, []))[1]
                    if (trial.study, number) not in passing:
                        passing.append((trial.study, number))
    return found


def _states_of(record: Record, trial: Trial, keys: dict[tuple[int, int], str]) -> Iterator[tuple[str, float]]:
    partitions = record.settings.partitions
    for node, end in record.plan.path_with_ends(trial, trial.until * partitions):
        for unit in range(node.start + 1, end + 1):
            key = keys.get((node.id, unit))
            if key is None:
                key = keys[node.id, unit] = node.state_key(unit)
            yield key, unit / partitions


def _shorten(trials: tuple[tuple[str, int], ...], most: int = 3) -> str | None:
    if not trials:
        return None
    shown = ", ".join(f"{study} {number}" for study, number in trials[:most])
    return shown if len(trials) <= most else f"{shown}, {len(trials) - most} more"
