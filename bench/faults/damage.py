"""Damaged or missing files: states, the journal, and slots in shared memory."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.faults.kinds import Kind
from bench.faults.run import Run

_METRIC = re.compile(rb'"loss"\s*:\s*-?\d+\.(\d+)')


def flip_state(run: Run) -> None:
    _states(run, run.flip)


def cut_state(run: Run) -> None:
    _states(run, lambda path: _cut(run, path))


def delete_state(run: Run) -> None:
    _states(run, Path.unlink)


def remove_states(run: Run) -> None:
    """Remove all of them, and their folder."""
    _rest(run)
    run.note("states removed")
    shutil.rmtree(run.store / "states", ignore_errors=True)


def remove_states_meanwhile(run: Run) -> None:
    """Remove the folder while a driver writes to it; it may say so, or make it again."""
    run.may_differ = True
    run.begin()
    if run.moment():
        run.note("states removed")
        shutil.rmtree(run.store / "states", ignore_errors=True)


def change_metric(run: Run) -> None:
    """Change a digit of a metric that the journal holds: refused by name, or without any effect."""
    run.may_refuse = True
    _rest(run)
    with _database(run) as database:
        cells = [cell for cell in _cells(database) if _METRIC.search(cell.value)]
        if cells:
            cell = run.random.choice(cells)
            digits = _METRIC.search(cell.value)
            assert digits is not None
            at = run.random.randrange(digits.start(1), min(digits.end(1), digits.start(1) + 8))
            digit = run.random.choice([digit for digit in b"0123456789" if digit != cell.value[at]])
            _write(run, database, cell, at, digit)
    run.begin()


def flip_row(run: Run) -> None:
    """Flip a bit in a text or a blob of any table: refused, or without any effect."""
    run.may_refuse = True
    _rest(run)
    with _database(run) as database:
        cells = _cells(database)
        table = run.random.choice(sorted({cell.table for cell in cells}))
        cell = run.random.choice([cell for cell in cells if cell.table == table])
        at = run.random.randrange(len(cell.value))
        _write(run, database, cell, at, cell.value[at] ^ 1 << run.random.randrange(7))
    run.begin()


def flip_journal(run: Run) -> None:
    """Flip one to three bits of the database's file: refused, or without any effect."""
    run.may_refuse = True
    _rest(run)
    for _ in range(run.random.randint(1, 3)):
        run.flip(run.store / "journal.sqlite")
    run.begin()


def cut_journal(run: Run) -> None:
    run.may_refuse = True
    _rest(run)
    _cut(run, run.store / "journal.sqlite")
    run.begin()


def delete_entry(run: Run) -> None:
    """Delete an entry of the journal: refused by name, or trained again if it was the last."""
    run.may_refuse = True
    _rest(run)
    with _database(run) as database:
        table = run.random.choice([name for name in _tables(database) if "seq" in _columns(database, name)])
        (last,) = database.execute(f"SELECT MAX(seq) FROM {table}").fetchone()
        number = run.random.randint(1, last)
        run.note(f"{table}: entry {number} of {last} deleted")
        database.execute(f"DELETE FROM {table} WHERE seq = ?", [number])
    run.begin()


def flip_slot_header(run: Run) -> None:
    _slots(run, lambda path: run.flip(path, 0.0, 100 / path.stat().st_size))


def flip_slots(run: Run) -> None:
    """Flip a bit in the arrays of all of them: some hold nothing that is needed."""
    _kill(run)
    for path in run.slots():
        _flip_array(run, path)


def cut_slot(run: Run) -> None:
    _slots(run, lambda path: _cut(run, path))


def delete_slot(run: Run) -> None:
    _slots(run, Path.unlink)


def remove_slots(run: Run) -> None:
    _kill(run)
    for path in run.slots():
        shutil.rmtree(path.parent, ignore_errors=True)


def flip_slots_meanwhile(run: Run) -> None:
    """Flip bits in memory while all processes are stopped, and continue them."""
    _meanwhile(run, lambda path: _flip_array(run, path))


def delete_slots_meanwhile(run: Run) -> None:
    _meanwhile(run, Path.unlink)


def _flip_array(run: Run, path: Path) -> None:
    run.flip(path, 0.2, 0.4)  # behind the header, and before what is left free at the end


def _meanwhile(run: Run, harm: Callable[[Path], None]) -> None:
    driver = run.begin()
    if run.moment(0.1, 0.9):
        driver.send(signal.SIGSTOP, group=True)
        for path in run.slots():
            run.note(f"harm to slot {path.name}")
            harm(path)
        driver.send(signal.SIGCONT, group=True)


def _states(run: Run, harm: Callable[[Path], None]) -> None:
    _rest(run)
    states = run.states()
    for path in run.random.sample(states, min(len(states), run.random.randint(1, 3))):
        run.note(f"harm to state {path.name}")
        harm(path)


def _slots(run: Run, harm: Callable[[Path], None]) -> None:
    _kill(run)
    slots = run.slots()
    for path in run.random.sample(slots, min(len(slots), run.random.randint(1, 4))):
        run.note(f"harm to slot {path.name}")
        harm(path)


def _kill(run: Run) -> None:
    driver = run.begin()
    if run.moment(0.1, 0.9):
        driver.send(signal.SIGKILL)
        run.stop(driver)


def _rest(run: Run) -> None:
    """Bring the study to rest by chance: done, interrupted, or killed."""
    run.may_differ = True
    driver = run.begin()
    how = run.random.choice(["done", "interrupted", "killed"])
    if how != "done" and run.moment(0.2, 0.9):
        driver.send(signal.SIGINT if how == "interrupted" else signal.SIGKILL, group=how == "interrupted")
    run.stop(driver)
    run.note(f"at rest: {how}")
    (run.folder / f"{run.names[0]}.outcome.json").unlink(missing_ok=True)


def _cut(run: Run, path: Path) -> None:
    size = path.stat().st_size
    left = run.random.randrange(size)
    run.note(f"{path.name} cut to {left} of {size} bytes")
    with path.open("r+b") as file:
        file.truncate(left)


class Cell(NamedTuple):
    """A text or a blob in the database, and how to find its row."""

    table: str
    column: str
    where: str
    keys: list[object]
    value: bytes
    text: bool


@contextmanager
def _database(run: Run) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(run.store / "journal.sqlite")) as database, database:
        yield database


def _tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _columns(database: sqlite3.Connection, table: str) -> dict[str, bool]:
    """Return the columns of a table, and which are its key."""
    return {column[1]: bool(column[5]) for column in database.execute(f"PRAGMA table_info({table})")}


def _cells(database: sqlite3.Connection) -> list[Cell]:
    """Return all texts and blobs that are no keys and not empty."""
    found = []
    for table in _tables(database):
        columns = _columns(database, table)
        keys = [name for name, is_key in columns.items() if is_key]
        where = " AND ".join(f"{name} = ?" for name in keys)
        for row in database.execute(f"SELECT {', '.join(columns)} FROM {table}"):
            cells = dict(zip(columns, row, strict=True))
            for name, cell in cells.items():
                value = cell.encode() if isinstance(cell, str) else cell
                if isinstance(value, bytes) and value and keys and name not in keys:
                    text = isinstance(cell, str)
                    found.append(Cell(table, name, where, [cells[key] for key in keys], value, text))
    return found


def _write(run: Run, database: sqlite3.Connection, cell: Cell, at: int, byte: int) -> None:
    """Replace one byte of a cell."""
    changed = cell.value[:at] + bytes([byte]) + cell.value[at + 1 :]
    near = slice(max(0, at - 100), at + 100)
    run.note(f"{cell.table}.{cell.column}: {cell.value[near]!r} became {changed[near]!r}")
    value = "CAST(? AS TEXT)" if cell.text else "?"
    command = f"UPDATE {cell.table} SET {cell.column} = {value} WHERE {cell.where}"
    database.execute(command, [changed, *cell.keys])


KINDS = {
    "state-flipped": Kind(flip_state),
    "state-cut": Kind(cut_state),
    "state-deleted": Kind(delete_state),
    "states-removed": Kind(remove_states),
    "states-removed-meanwhile": Kind(remove_states_meanwhile),
    "metric-changed": Kind(change_metric),
    "row-flipped": Kind(flip_row),
    "journal-flipped": Kind(flip_journal),
    "journal-cut": Kind(cut_journal),
    "entry-deleted": Kind(delete_entry),
    "slot-header-flipped": Kind(flip_slot_header),
    "slots-flipped": Kind(flip_slots),
    "slot-cut": Kind(cut_slot),
    "slot-deleted": Kind(delete_slot),
    "slots-removed": Kind(remove_slots),
    "slots-flipped-meanwhile": Kind(flip_slots_meanwhile),
    "slots-deleted-meanwhile": Kind(delete_slots_meanwhile),
}
