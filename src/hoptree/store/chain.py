"""The chain of a journal: every entry's checksum covers the entry and the checksum of the one before."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from xxhash import xxh3_128_digest

from hoptree.store.errors import JournalDamagedError

Row: TypeAlias = tuple[int, int, float, int, bytes, bytes]  # seq, token, now, version, record, checksum

_HEADER = struct.Struct("<qqdq")
ADVICE = "restore the database from a backup, or begin the study under another name"


class Tail(NamedTuple):
    """The last entry of a journal: its number, its checksum, and the token that it was written with."""

    seq: int
    check: bytes
    token: int = 0


def beginning(study: str) -> Tail:
    """Return what stands before the first entry of a study's journal."""
    return Tail(0, xxh3_128_digest(study.encode()))


def checksum(before: bytes, seq: int, token: int, now: float, version: int, record: bytes) -> bytes:
    """Return the checksum of an entry that follows another."""
    return xxh3_128_digest(b"".join((before, _HEADER.pack(seq, token, now, version), record)))


def chained(tail: Tail, token: int, version: int, entries: Iterable[tuple[float, bytes]]) -> list[Row]:
    """Return entries as rows that follow a tail."""
    rows: list[Row] = []
    seq, check = tail.seq, tail.check
    for now, record in entries:
        seq += 1
        now += 0.0  # SQLite does not keep the sign of -0.0
        check = checksum(check, seq, token, now, version, record)
        rows.append((seq, token, now, version, record, check))
    return rows


def verified(study: str, tail: Tail, rows: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
    """Yield the rows that follow a tail; raise at the first that is not what was written, and name it."""
    last, before, highest = tail
    pack, digest, join = _HEADER.pack, xxh3_128_digest, b"".join
    for row in rows:
        seq, token, now, version, record, check = row
        if seq != last + 1:
            raise JournalDamagedError(
                f"{study}: entry {last + 1} is missing from the journal, {seq} comes next; {ADVICE}"
            )
        try:
            found = digest(join((before, pack(seq, token, now, version), record)))
        except (struct.error, TypeError):
            found = b""  # a column holds something of another type
        if found != check:
            raise JournalDamagedError(
                f"{study}: entry {seq} of the journal is damaged: its checksum does not match what it holds and "
                f"the entry before; {ADVICE}"
            )
        if token < highest:
            raise JournalDamagedError(
                f"{study}: entry {seq} of the journal was written by the driver with token {token}, after entry "
                f"{last} by the one with token {highest}: two drivers have written at once; {ADVICE}"
            )
        last, before, highest = seq, check, token
        yield row
