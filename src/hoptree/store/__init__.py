"""The store: states by key, the journal, the catalog of studies, and who drives each.

>>> import tempfile
>>> import numpy as np
>>> from hoptree.core.events import TrialExtended
>>> folder = tempfile.TemporaryDirectory()
>>> with Store(folder.name) as store, store.lease("digits") as lease:
...     size = store.states.put("0a1b", {"w": np.ones(3)}, {"epoch": 2})
...     last = store.journal.append("digits", [(0.5, False, TrialExtended(3, until=10))], token=lease.token)
...     store.states.get("0a1b"), [tuple(entry) for entry in store.journal.read("digits")]
(({'w': array([1., 1., 1.])}, {'epoch': 2}), [(1, 0.5, False, TrialExtended(trial=3, until=10, known=None))])
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
    StateDamagedError,
    StateFormatError,
    StateMissingError,
    StoreError,
    StoreFullError,
    StoreMissingError,
    StoreUnreachableError,
    StoreVersionError,
    StudyExistsError,
    StudyHeldError,
    StudyMissingError,
)
from hoptree.store.events_json import decode, encode
from hoptree.store.folder_states import FolderStates
from hoptree.store.holder import Holder
from hoptree.store.journal import Entry, Journal, Recorded
from hoptree.store.lease import Lease, Leases
from hoptree.store.states import StateStore, open_states
from hoptree.store.store import Store

__all__ = [
    "Catalog",
    "Database",
    "Entry",
    "EventError",
    "FolderStates",
    "Holder",
    "Journal",
    "JournalConflictError",
    "JournalDamagedError",
    "Lease",
    "LeaseLostError",
    "Leases",
    "Recorded",
    "StateDamagedError",
    "StateFormatError",
    "StateMissingError",
    "StateStore",
    "Status",
    "Store",
    "StoreError",
    "StoreFullError",
    "StoreMissingError",
    "StoreUnreachableError",
    "StoreVersionError",
    "StudyExistsError",
    "StudyHeldError",
    "StudyMissingError",
    "StudyRecord",
    "decode",
    "encode",
    "fingerprint",
    "open_states",
]
