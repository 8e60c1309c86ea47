"""Opening a study: its last snapshot, and the journal entries since then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hoptree.core.errors import ProtocolError
from hoptree.core.settings import Settings
from hoptree.core.snapshots import SNAPSHOT_VERSION, read_snapshot
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec

if TYPE_CHECKING:
    from hoptree.store import Store, StudyRecord

log = logging.getLogger("hoptree")


def last_snapshot(store: Store, name: str, settings: Settings) -> tuple[Record, int]:
    """Return the record of a study as of its last snapshot, and the snapshot's journal entry: 0 without one."""
    found = store.journal.read_snapshot(name, version=SNAPSHOT_VERSION)
    if found is not None:
        seq, data = found
        try:
            state, now = read_snapshot(data, settings)
        except ProtocolError as error:
            log.warning("%s: %s; reading the journal from the start", name, error)
        else:
            return Record(settings, state, now), seq
    return Record(settings), 0


def open_record(store: Store, known: StudyRecord) -> Record:
    """Return the record of a study, up to the end of its journal."""
    record, seq = last_snapshot(store, known.name, StudySpec.read(known.spec).settings)
    return record.read(store.journal.read(known.name, seq))
