"""The version of a journal's records, and the upgrade of older ones.

When the shape of a record changes (``core/facts.py``), ``RECORD_VERSION`` grows by one, and ``UPGRADES`` gets a
function that turns a record of the version before, as decoded JSON, into one of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from hoptree.core.facts import RECORD_VERSION
from hoptree.store.errors import EventError, StoreVersionError

Upgrade: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: Mapping[int, Upgrade] = {}  # by the version that each upgrades


def upgraded(
    data: bytes, version: int, *, upgrades: Mapping[int, Upgrade] = UPGRADES, current: int = RECORD_VERSION
) -> bytes:
    """Return a record in the format of the current version.

    >>> upgraded(b'{"seconds":2}', 1, upgrades={1: lambda record: {"took": record["seconds"]}}, current=2)
    b'{"took":2}'
    """
    if version == current:
        return data
    if not 1 <= version < current:
        raise StoreVersionError(
            f"a record of version {version}; this Hoptree reads versions 1 to {current}; upgrade Hoptree"
        )
    try:
        record = msgspec.json.decode(data, type=dict[str, Any])
        for before in range(version, current):
            record = upgrades[before](record)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise EventError(f"a record of version {version} cannot be upgraded to {current}: {error!r}") from error
    return msgspec.json.encode(record)
