"""The hash chain of a journal: each entry's checksum covers the entry and the previous checksum."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from xxhash import xxh3_128_digest

from hoptree.store.errors import JournalDamagedError

Row: TypeAlias = tuple[int, int, float, int, bytes, bytes]  # seq, token, now, version, record, checksum

_HEADER = struct.Struct("<qqdq")
ADVICE = "restore the database from a backup, or start the study under another name"


class Tail(NamedTuple):
    """The last entry of a journal: its number, its checksum, and the token of the driver that wrote it."""

    seq: int
    check: bytes
    token: int = 0


def beginning(study: str) -> Tail:
    """Return the tail of an empty journal of a study."""
    return Tail(0, xxh3_128_digest(study.encode()))


def checksum(before: bytes, seq: int, token: int, now: float, version: int, record: bytes) -> bytes:
    """Return the checksum of an entry, given the previous checksum."""
    return xxh3_128_digest(b"".join((before, _HEADER.pack(seq, token, now, version), record)))


def chained(tail: Tail, token: int, version: int, entries: Iterable[tuple[float, bytes]]) -> list[Row]:
    """Return entries as rows that continue the chain after a tail."""
    rows: list[Row] = []
    seq, check = tail.seq, tail.check
    for now, record in entries:
        seq += 1
        now += 0.0  # SQLite does not keep the sign of -0.0
        check = checksum(check, seq, token, now, version, record)
        rows.append((seq, token, now, version, record, check))
    return rows


def verified(study: str, tail: Tail, rows: Iterable[tuple[Any, ...]]) -> Iterator[Row]:
    """Yield the rows after a tail; raise an error that names the first row that differs from what was written."""
    last, before, highest = tail
    pack, digest, join = _HEADER.pack, xxh3_128_digest, b"".join
    for row in rows:
        seq, token, now, version, record, check = row
        if seq != last + 1:
            raise JournalDamagedError(
                f"{study}: entry {last + 1} is missing from the journal, the next one is {seq}; {ADVICE}"
            )
        try:
            found = digest(join((before, pack(seq, token, now, version), record)))
        except (struct.error, TypeError):
            found = b""  # a column has another type
        if found != check:
            raise JournalDamagedError(
                f"{study}: entry {seq} of the journal is damaged: its checksum does not match its content and "
                f"the previous entry; {ADVICE}"
            )
        if token < highest:
            raise JournalDamagedError(
                f"{study}: entry {seq} of the journal was written by the driver with token {token}, after entry "
                f"{last} by the one with token {highest}: two drivers wrote at the same time; {ADVICE}"
            )
        last, before, highest = seq, check, token
        yield row
