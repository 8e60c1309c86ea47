"""A gang as its members see it: workers that train one unit together."""

from __future__ import annotations

import msgspec


class GangMember(msgspec.Struct, frozen=True):
    """One of ``size`` workers that train a unit together; the one with rank 0 leads.

    ``store`` is a path that all of them can write, where they find each other; its name is new for each group of
    workers, so that connections can be kept while the group stays the same.
    """

    store: str
    rank: int
    size: int
