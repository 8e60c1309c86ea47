"""A gang as its members see it: workers that train one unit together."""

from __future__ import annotations

import msgspec

from hoptree.core.layouts import DATA, Layout


class GangMember(msgspec.Struct, frozen=True):
    """One of ``size`` workers that train a unit together; the one with rank 0 leads.

    They find each other at the ``rendezvous`` that the leader has opened, an address such as ``127.0.0.1:29500``.
    ``name`` is new for each group of workers, so that connections can be kept while the group stays the same.
    ``layout`` is the name of how they hold the model.
    """

    rendezvous: str
    name: str
    rank: int
    size: int
    layout: str = DATA


class ModelPlacement(msgspec.Struct, frozen=True):
    """How one worker holds a model: by which layout, and as which of how many workers."""

    layout: Layout = Layout()
    rank: int = 0
    size: int = 1
