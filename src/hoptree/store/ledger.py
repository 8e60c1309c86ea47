"""The ledger of states: what the disk holds, why, and what goes first when it is too much.

A state that a study needs is *held*. The others are kept while a budget allows, because training them again costs
time: the next study may ask for them, or somebody extends a trial. What goes first has the least benefit, that is
the time to train it again, times how often it served, over its size and the time since it served last (the rule of
Nectar, a cache of computations).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.store.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from hoptree.store.database import Database
    from hoptree.store.states import StateStore

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@final
class StateRecord(msgspec.Struct, frozen=True):
    """A state on disk: who made it at what cost, when it last served, and which studies hold it."""

    key: str
    study: str
    size: int
    seconds: float
    made: float
    used: float
    uses: int
    held_by: tuple[str, ...]

    def benefit(self, now: float) -> float:
        """Return what a byte of it is worth, in seconds of training per second of waiting."""
        return self.seconds * (1 + self.uses) / (max(self.size, 1) * max(now - self.used, 1.0))


@final
class Ledger:
    """The books of a store's states."""

    def __init__(self, database: Database, states: StateStore, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._states = states
        self._clock = clock

    def enter(self, key: str, study: str, size: int, seconds: float) -> None:
        """Note that a study has saved a state, which took so long to train since the last that was saved."""
        from hoptree.store.tables import HOLDS, STATES

        now = self._clock()
        row = {"key": key, "study": study, "size": size, "seconds": seconds, "made": now, "used": now, "uses": 0}

        def work(connection: Connection) -> None:
            self._database.insert_missing(connection, STATES, [row])
            self._database.insert_missing(connection, HOLDS, [{"key": key, "study": study}])

        self._database.write(work, durable=False)

    def hold(self, keys: Iterable[str], study: str) -> None:
        """Keep states for a study that goes on from them."""
        from sqlalchemy import update

        from hoptree.store.tables import HOLDS, STATES

        names = list(keys)
        if not names:
            return
        served = {"used": self._clock(), "uses": STATES.c.uses + 1}

        def work(connection: Connection) -> None:
            self._database.insert_missing(connection, HOLDS, [{"key": key, "study": study} for key in names])
            connection.execute(update(STATES).where(STATES.c.key.in_(names)).values(served))

        self._database.write(work, durable=False)

    def release(self, keys: Iterable[str], study: str) -> None:
        """Note that a study needs states no longer."""
        from sqlalchemy import delete

        from hoptree.store.tables import HOLDS

        names = list(keys)
        if not names:
            return
        gone = delete(HOLDS).where(HOLDS.c.study == study, HOLDS.c.key.in_(names))
        self._database.write(lambda connection: connection.execute(gone).rowcount, durable=False)

    def all(self) -> list[StateRecord]:
        """Return the books, oldest first, of the states that are there."""
        from sqlalchemy import select

        from hoptree.store.tables import HOLDS, STATES

        def work(connection: Connection) -> tuple[list[Row[Any]], list[Any]]:
            return (
                list(connection.execute(select(STATES).order_by(STATES.c.made, STATES.c.key))),
                list(connection.execute(select(HOLDS.c.key, HOLDS.c.study).order_by(HOLDS.c.study))),
            )

        rows, holds = self._database.read(work)
        studies: dict[str, list[str]] = {}
        for key, study in holds:
            studies.setdefault(key, []).append(study)
        there = set(self._states.keys())
        return [_record(row, studies.get(row.key, ())) for row in rows if row.key in there]

    def to_evict(self, budget: int, forgotten: Collection[str] = ()) -> list[StateRecord]:
        """Return what would be removed; with ``forgotten``, as if these studies were there no longer.

        Only what may go is looked at: with little room and thousands of trials, this comes with every state.
        """
        from sqlalchemy import exists, func, select

        from hoptree.store.tables import HOLDS, STATES

        held = exists().where(HOLDS.c.key == STATES.c.key, HOLDS.c.study.not_in(list(forgotten)))

        def work(connection: Connection) -> tuple[Sequence[Row[Any]], int]:
            loose = connection.execute(select(STATES).where(~held).order_by(STATES.c.made, STATES.c.key)).all()
            return loose, int(connection.execute(select(func.sum(STATES.c.size))).scalar() or 0) - budget

        loose, excess = self._database.read(work)
        going, now = [], self._clock()
        for record in sorted((_record(row, ()) for row in loose), key=lambda record: record.benefit(now)):
            if excess <= 0:
                break
            excess -= record.size  # as it was counted above; a file is somewhat larger than its arrays
            going.append(record)
        return going

    def evict(self, budget: int) -> list[StateRecord]:
        """Remove what has the least benefit until the rest fits; what is held stays in any case."""
        from sqlalchemy import delete

        from hoptree.store.tables import STATES

        going = self.to_evict(budget)
        gone = [record for record in going if self._states.delete(record.key)]
        if going:
            off = delete(STATES).where(STATES.c.key.in_([record.key for record in going]))
            # not to be done again later: somebody may have trained one of them anew
            self._database.write(lambda connection: connection.execute(off).rowcount, durable=False, remember=False)
        return gone


def parse_size(text: str | float) -> int:
    """Return a number of bytes from what a user writes.

    >>> parse_size("10 GB")
    10000000000
    """
    number = str(text).strip().rstrip("BKMGTbkmgt").strip()
    unit = str(text).strip()[len(number) :].strip().upper() or "B"
    try:
        size = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise StoreError(f"keep: {text!r}; expected a size such as '10 GB', '500 MB' or 0") from None
    if size < 0:
        raise StoreError(f"keep: {text!r}; expected 0 or more")
    return size


def _record(row: Row[Any], held_by: Iterable[str]) -> StateRecord:
    return StateRecord(row.key, row.study, row.size, row.seconds, row.made, row.used, row.uses, tuple(held_by))
