"""Snapshots: the state after an entry of a journal, so that opening a study reads only the later entries."""

from __future__ import annotations

import logging
import struct
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from xxhash import xxh3_128_digest

from hoptree.store.errors import StoreError
from hoptree.store.lease import fence

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoptree.store.database import Database

log = logging.getLogger("hoptree")

_KEPT = 2  # the last, and the previous one in case the last is damaged
_HEADER = struct.Struct("<qq")
_ENTRY = "SELECT checksum FROM hoptree_entries WHERE study = ? AND seq = ?"
_ALL = "SELECT seq FROM hoptree_snapshots WHERE study = ? AND version = ? ORDER BY seq DESC"
_ONE = "SELECT data, checksum FROM hoptree_snapshots WHERE study = ? AND seq = ?"
_DELETE = "DELETE FROM hoptree_snapshots WHERE study = ? AND seq = ?"
_SEQS = "SELECT seq FROM hoptree_snapshots WHERE study = ? ORDER BY seq DESC"
_INSERT = "INSERT INTO hoptree_snapshots (study, seq, version, data, checksum) VALUES (?, ?, ?, ?, ?)"


@final
class Snapshots:
    """Keeps the last two snapshots of each study. One that does not match its journal is never used."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def write(self, study: str, token: int, seq: int, data: bytes, version: int) -> None:
        """Write the snapshot after entry ``seq``, and remove all but the last two."""
        packed = zlib.compress(data, 1)

        def work(connection: Connection) -> None:
            fence(self._database, connection, study, token, self._clock())
            entry = self._database.fetch(connection, _ENTRY, (study, seq))
            if not entry:
                raise StoreError(
                    f"{study}: snapshot at entry {seq}, which does not exist; expected the number of an entry"
                )
            check = _checksum(bytes(entry[0][0]), seq, version, packed)
            self._database.change(connection, _DELETE, [(study, seq)])
            self._database.change(connection, _INSERT, [(study, seq, version, packed, check)])
            old = self._database.fetch(connection, _SEQS, (study,))[_KEPT:]
            if old:
                self._database.change(connection, _DELETE, [(study, each) for (each,) in old])

        self._database.write(work, durable=False, remember=False)

    def read(self, study: str, version: int) -> tuple[int, bytes] | None:
        """Return the last snapshot that matches the journal and the number of its entry; None if there is none.

        Snapshots of another version are skipped: they belong to another version of Hoptree. A damaged one, or one
        whose entry differs from the journal's, is skipped with a warning.
        """
        found = self._database.read(lambda connection: self._database.fetch(connection, _ALL, (study, version)))
        for number, (seq,) in enumerate(found, 1):
            data = self._database.read(lambda connection, at=seq: self._data(connection, study, at, version))  # type: ignore[misc]
            if data is not None:
                return seq, data
            instead = "the previous one" if number < len(found) else "the whole journal"
            log.warning("%s: the snapshot at entry %s does not match its journal; reading %s", study, seq, instead)
        return None

    def _data(self, connection: Connection, study: str, seq: int, version: int) -> bytes | None:
        rows = self._database.fetch(connection, _ONE, (study, seq))
        entry = self._database.fetch(connection, _ENTRY, (study, seq))
        if not rows or not entry:
            return None
        packed, check = rows[0]
        if _checksum(bytes(entry[0][0]), seq, version, packed) != check:
            return None
        return zlib.decompress(packed)


def _checksum(entry: bytes, seq: int, version: int, packed: bytes) -> bytes:
    return xxh3_128_digest(b"".join((entry, _HEADER.pack(seq, version), packed)))
