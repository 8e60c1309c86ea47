"""What the journal costs: a checksum per entry, an append, and opening a long study with a snapshot or without.

Run with ``python -m bench.journal``. Ratios are measured in one run, by CPU time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from hoptree.core.facts import Entry, FactPlace, UnitFinishedFact
from hoptree.report.tables import text_table
from hoptree.store import Store
from hoptree.store.chain import beginning, verified
from hoptree.store.journal import _READ
from hoptree.store.records import decode

BATCH = 50_000
APPENDS = 2_000
AFTER = 10_000  # entries after the snapshot


def finished(number: int) -> Entry:
    return Entry(UnitFinishedFact(number, "worker-0", FactPlace("0" * 32, number), number % 8, seconds=0.125))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    found = work()
    return found, time.process_time() - begun


def fill(store: Store, entries: int) -> int:
    lease = store.lease("long")
    writer = store.journal.writer("long", lease.token)
    for first in range(0, entries, BATCH):
        numbers = range(first, min(first + BATCH, entries))
        writer.append([(float(number), finished(number)) for number in numbers])
    return lease.token


def bare(store: Store) -> list[tuple[Any, ...]]:
    """Read all rows, without looking at them."""
    database, rows, after = store._database, list[tuple[Any, ...]](), 0
    while page := database.read(lambda connection, at=after: database.fetch(connection, _READ, ("long", at, 5000))):  # type: ignore[misc]
        rows += page
        after = page[-1][0]
    return rows


def measure(store: Store, entries: int) -> list[list[str]]:
    token = fill(store, entries)
    few = min(entries, 200_000)
    rows, fetched = timed(lambda: bare(store)[:few])
    fetched *= few / entries
    _, checked = timed(lambda: sum(1 for _ in verified("long", beginning("long"), rows)))
    _, decoded = timed(lambda: [decode(row[4]) for row in rows])
    count, whole = timed(lambda: sum(1 for _ in store.journal.read("long")))
    store.journal.write_snapshot("long", token, entries - AFTER, b"\0" * 10_000_000)

    def reopen() -> int:
        found = store.journal.read_snapshot("long")
        assert found is not None
        return sum(1 for _ in store.journal.read("long", found[0]))

    _, opened = timed(reopen)
    writer, entry = store.journal.writer("long", token), finished(1)
    _, appended = timed(lambda: [writer.append([(0.0, entry)], durable=False) for _ in range(APPENDS)])
    each = 1e6 / few
    return [
        ["read and verified", f"{count / whole:,.0f} entries/s", f"{entries:,} entries in {whole:.1f} s"],
        ["of that: rows", f"{fetched * each:.2f} µs per entry", ""],
        ["of that: checksums", f"{checked * each:.2f} µs per entry", f"{checked / (fetched + decoded):.0%} on top"],
        ["of that: decoding", f"{decoded * each:.2f} µs per entry", ""],
        [
            "opened after a snapshot",
            f"{opened:.2f} s",
            f"{AFTER:,} entries after it: {whole / opened:.0f} times as fast",
        ],
        ["append, not durable", f"{appended / APPENDS * 1e6:.0f} µs", "one entry"],
    ]


def main() -> None:
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    url = sys.argv[2] if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as folder, Store(folder, journal_url=url) as store:
        print(text_table(["journal", "figure", ""], measure(store, entries)))


if __name__ == "__main__":
    main()
