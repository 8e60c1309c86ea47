"""The store: states by key, the journal, the catalog of studies, and their drivers.

>>> import tempfile
>>> import numpy as np
>>> from hoptree.core.events import TrialStopped
>>> from hoptree.core.facts import Entry
>>> folder = tempfile.TemporaryDirectory()
>>> with Store(folder.name) as store, store.lease("digits") as lease:
...     size = store.states.put("0a1b", {"w": np.ones(3)}, {"epoch": 2})
...     last = store.journal.writer("digits", lease.token).append([(0.5, Entry(TrialStopped(3)))])
...     store.states.get("0a1b"), [(each.seq, each.entry.event.trial) for each in store.journal.read("digits")]
(({'w': array([1., 1., 1.])}, {'epoch': 2}), [(1, 3)])
>>> folder.cleanup()
"""

from hoptree.store.arrays import fingerprint
from hoptree.store.catalog import Catalog, Status, StudyRecord
from hoptree.store.database import Database
from hoptree.store.errors import (
    EventError,
    JournalConflictError,
    JournalDamagedError,
    LeaseLostError,
    MigrationError,
    StateDamagedError,
    StateFormatError,
    StateMissingError,
    StoreError,
    StoreFullError,
    StoreMissingError,
    StoreUnavailableError,
    StoreUnreachableError,
    StoreVersionError,
    StudyExistsError,
    StudyHeldError,
    StudyIdleError,
    StudyMissingError,
)
from hoptree.store.folder_states import FolderStates
from hoptree.store.forget_study import RemovedStudy
from hoptree.store.holder import Holder
from hoptree.store.journal import Journal, JournalWriter, Recorded
from hoptree.store.lease import Lease, Leases
from hoptree.store.records import decode, encode
from hoptree.store.revisions import Migrated
from hoptree.store.states import StateStore, open_states
from hoptree.store.store import Store, StoreTiming, migrate

__all__ = [
    "Catalog",
    "Database",
    "EventError",
    "FolderStates",
    "Holder",
    "Journal",
    "JournalConflictError",
    "JournalDamagedError",
    "JournalWriter",
    "Lease",
    "LeaseLostError",
    "Leases",
    "Migrated",
    "MigrationError",
    "Recorded",
    "RemovedStudy",
    "StateDamagedError",
    "StateFormatError",
    "StateMissingError",
    "StateStore",
    "Status",
    "Store",
    "StoreError",
    "StoreFullError",
    "StoreMissingError",
    "StoreTiming",
    "StoreUnavailableError",
    "StoreUnreachableError",
    "StoreVersionError",
    "StudyExistsError",
    "StudyHeldError",
    "StudyIdleError",
    "StudyMissingError",
    "StudyRecord",
    "decode",
    "encode",
    "fingerprint",
    "migrate",
    "open_states",
]
