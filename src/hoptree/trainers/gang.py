"""A gang as its members see it: workers that train one unit together."""

from __future__ import annotations

import msgspec


class GangMember(msgspec.Struct, frozen=True):
    """One of ``size`` workers that train a unit together; the one with rank 0 leads.

    They find each other at the ``rendezvous`` that the leader has opened, an address such as ``127.0.0.1:29500``.
    ``name`` is new for each group of workers, so that connections can be kept while the group stays the same.
    """

    rendezvous: str
    name: str
    rank: int
    size: int
