"""Latencies of nodes, as earlier runs of any study in a store have measured them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from hoptree.core.errors import HoptreeError
from hoptree.core.node_ledger import NodeLedger
from hoptree.elastic.allocation import AllocationPlan
from hoptree.record.opening import open_record

if TYPE_CHECKING:
    from hoptree.store import Store

_MAX_ENTRIES = 200_000  # longer journals of studies are not read


class Latencies(NamedTuple):
    """Mean seconds until a node runs, and from then until it can train; None if that was never measured."""

    provision: float | None
    start: float | None
    nodes: int = 0

    @classmethod
    def of(cls, ledgers: Iterable[NodeLedger], instance: str) -> Latencies:
        """Return the latencies of an instance type over the nodes of some studies."""
        waited: list[float] = []
        started: list[float] = []
        for ledger in ledgers:
            rows = ledger.rows
            names = {
                each.instance.name for made in rows.plans for each in AllocationPlan.read(made.plan).allocations
            }
            if names != {instance}:
                continue  # of several types it is not known which node had which
            waited += [use.waited for use in rows.uses if use.waited > 0]
            started += [use.joined - use.started for use in rows.uses if use.joined is not None]
        return cls(_mean(waited), _mean(started), max(len(waited), len(started)))


def measured_latencies(store: Store, instance: str) -> Latencies:
    """Return the latencies of an instance type over all studies of a store."""
    ledgers: list[NodeLedger] = []
    for known in store.catalog.all():
        if 0 < store.journal.last(known.name) <= _MAX_ENTRIES:
            try:
                ledgers.append(open_record(store, known).state.nodes)
            except HoptreeError:
                continue  # written by another version
    return Latencies.of(ledgers, instance)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
