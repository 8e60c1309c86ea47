"""A study that a driver has opened: what a session starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hoptree.record.record import Record
    from hoptree.record.spec import AgreedSpec
    from hoptree.store import Lease, Store


@dataclass(frozen=True)
class OpenedStudy:
    """A study whose lease this driver holds, with its record as of the snapshot at the journal entry ``seq``."""

    store: Store
    lease: Lease
    agreed: AgreedSpec
    record: Record
    seq: int
