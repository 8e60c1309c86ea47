"""The ledger of states: what is on disk, which studies need it, and what is evicted first.

A state that a study needs is *held*. The others are kept within a budget, because training them again costs time:
the next study may need them, or a trial may be extended. The state with the least benefit is evicted first, that is
the time to train it again, times how often it was used, over its size and the time since its last use (the rule of
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
    """A state on disk: which study trained it at what cost, when it was last used, and which studies hold it."""

    key: str
    study: str
    size: int
    seconds: float
    made: float
    used: float
    uses: int
    held_by: tuple[str, ...]

    def benefit(self, now: float) -> float:
        """Return the value of a byte: seconds of training saved per byte and second since the last use."""
        return self.seconds * (1 + self.uses) / (max(self.size, 1) * max(now - self.used, 1.0))


@final
class Ledger:
    """Records, holds and evicts the states of a store."""

    def __init__(self, database: Database, states: StateStore, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._states = states
        self._clock = clock

    def enter(self, key: str, study: str, size: int, seconds: float) -> None:
        """Record a state that a study saved; ``seconds`` is its training time since the previous saved state."""
        from hoptree.store.tables import HOLDS, STATES

        now = self._clock()
        row = {"key": key, "study": study, "size": size, "seconds": seconds, "made": now, "used": now, "uses": 0}

        def work(connection: Connection) -> None:
            self._database.insert_missing(connection, STATES, [row])
            self._database.insert_missing(connection, HOLDS, [{"key": key, "study": study}])

        self._database.write(work, durable=False)

    def hold(self, keys: Iterable[str], study: str) -> None:
        """Keep states for a study that continues from them."""
        from sqlalchemy import update

        from hoptree.store.tables import HOLDS, STATES

        names = list(keys)
        if not names:
            return
        usage = {"used": self._clock(), "uses": STATES.c.uses + 1}

        def work(connection: Connection) -> None:
            self._database.insert_missing(connection, HOLDS, [{"key": key, "study": study} for key in names])
            connection.execute(update(STATES).where(STATES.c.key.in_(names)).values(usage))

        self._database.write(work, durable=False)

    def release(self, keys: Iterable[str], study: str) -> None:
        """Record that a study no longer needs some states."""
        from sqlalchemy import delete

        from hoptree.store.tables import HOLDS

        names = list(keys)
        if not names:
            return
        statement = delete(HOLDS).where(HOLDS.c.study == study, HOLDS.c.key.in_(names))
        self._database.write(lambda connection: connection.execute(statement).rowcount, durable=False)

    def all(self) -> list[StateRecord]:
        """Return the records of the existing states, oldest first."""
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
        """Return what ``evict`` would remove, as if the studies in ``forgotten`` had been removed.

        It reads only the states that may be evicted, because with a small budget it runs after every saved state.
        """
        from sqlalchemy import exists, func, select

        from hoptree.store.tables import HOLDS, STATES

        held = exists().where(HOLDS.c.key == STATES.c.key, HOLDS.c.study.not_in(list(forgotten)))

        def work(connection: Connection) -> tuple[Sequence[Row[Any]], int]:
            loose = connection.execute(select(STATES).where(~held).order_by(STATES.c.made, STATES.c.key)).all()
            return loose, int(connection.execute(select(func.sum(STATES.c.size))).scalar() or 0) - budget

        loose, excess = self._database.read(work)
        evicted, now = [], self._clock()
        for record in sorted((_record(row, ()) for row in loose), key=lambda record: record.benefit(now)):
            if excess <= 0:
                break
            excess -= record.size  # the recorded size, as in the sum above; a file is larger than its arrays
            evicted.append(record)
        return evicted

    def evict(self, budget: int) -> list[StateRecord]:
        """Remove the states with the least benefit until the rest fits; held states always stay."""
        from sqlalchemy import delete

        from hoptree.store.tables import STATES

        evicted = self.to_evict(budget)
        deleted = [record for record in evicted if self._states.delete(record.key)]
        if evicted:
            rows = delete(STATES).where(STATES.c.key.in_([record.key for record in evicted]))
            # Must not be repeated later: another process may have trained one of them again by then.
            self._database.write(
                lambda connection: connection.execute(rows).rowcount, durable=False, remember=False
            )
        return deleted


def parse_size(text: str | float, name: str = "keep") -> int:
    """Return the number of bytes that a text such as "10 GB" means; ``name`` is the argument, for errors.

    >>> parse_size("10 GB")
    10000000000
    """
    number = str(text).strip().rstrip("BKMGTbkmgt").strip()
    unit = str(text).strip()[len(number) :].strip().upper() or "B"
    try:
        size = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise StoreError(f"{name}: {text!r}; expected a size such as '10 GB', '500 MB' or 0") from None
    if size < 0:
        raise StoreError(f"{name}: {text!r}; expected 0 or more")
    return size


def _record(row: Row[Any], held_by: Iterable[str]) -> StateRecord:
    return StateRecord(row.key, row.study, row.size, row.seconds, row.made, row.used, row.uses, tuple(held_by))
