"""Ray's autoscaler: whether a cluster has one, asking it for whole nodes, and giving nodes back at once."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from hoptree.backends import ray_internals
from hoptree.backends.ray_cluster import RayNode, amount_of
from hoptree.core.errors import RefusedError
from hoptree.elastic.instance import Instance

_FIXED = "node_"  # begins the types of nodes where nothing starts them: each is of a type of its own
_FIRST_REPORT = 20.0  # seconds after which a new cluster has written a report, even on a busy machine
_REPORTS = 4  # reports of an autoscaler after which it has started a node, if it has such a type
_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

log = logging.getLogger("hoptree")


class _Report(NamedTuple):
    """What an autoscaler has written of itself."""

    written: float
    types: frozenset[str]
    nodes: int  # that run or start
    lacking: bool  # whether its provider had no node to give


def has_autoscaler() -> bool:
    """Return whether the connected cluster starts nodes by itself; in a new one, wait until that shows."""
    from ray.autoscaler.v2.utils import is_autoscaler_v2

    if is_autoscaler_v2():
        return True
    deadline = time.monotonic() + _FIRST_REPORT
    while (report := _read()) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return any(not name.startswith(_FIXED) for name in report.types)


@final
class Autoscaler:
    """Requests nodes of one instance type, on each of which as many workers fit as it has devices.

    ``label`` is the label of nodes that names their instance type. The first version of Ray's autoscaler ignores
    it: there a node comes of any type that has the resources. That version also takes a node that has ended for
    one that runs, until it misses its heartbeats (30 s) or has been idle for too long, and replaces it only then.
    """

    def __init__(self, instance: Instance, worker: Mapping[str, float], label: str) -> None:
        from ray.autoscaler.v2.utils import is_autoscaler_v2

        self._instance = instance
        self._worker = worker
        self._label = label
        self._selects = bool(is_autoscaler_v2()) and _LABEL.fullmatch(instance.name) is not None
        self._requested = -1
        self._reports: set[float] = set()  # when it wrote that it starts nothing
        self._starts = False  # whether it has started a node

    @property
    def bundle(self) -> dict[str, float]:
        """The resources of a node."""
        return {name: amount * self._instance.devices for name, amount in self._worker.items()}

    def request(self, nodes: int, others: Sequence[RayNode]) -> None:
        """Request so many nodes in all; ``others`` are nodes that were there before, and that do not count.

        Without labels, Ray takes other nodes with enough room for the requested ones: it is asked for more. Nodes
        that come later must not be among them: Ray may have started those for this very request.
        """
        bundle = self.bundle
        count = nodes if self._selects or not nodes else nodes + sum(node.room(bundle) for node in others)
        if count == self._requested:
            return
        from ray.autoscaler.sdk import request_resources

        self._requested = count
        selectors = [{self._label: self._instance.name}] * count if self._selects else None
        request_resources(bundles=[dict(bundle)] * count, bundle_label_selectors=selectors)

    def check(self, alive: int, *, waiting: bool) -> None:
        """Raise an error if the autoscaler starts no node for the first request, since it has no such type.

        ``alive`` is how many nodes the cluster has; ``waiting`` says that none of those that were requested is
        among them. An autoscaler that counts others starts a node, or has not noticed yet that one has ended.
        """
        self._starts = self._starts or not waiting
        if self._starts or (report := _read()) is None:
            return
        if report.nodes != alive or report.lacking:
            self._reports.clear()
        else:
            self._reports.add(report.written)
        if len(self._reports) > _REPORTS:  # the first may be older than the request
            raise RefusedError(
                f"instance: {self._instance.name!r}, but Ray's autoscaler starts no node with {self._needs}; "
                "expected a node type with these resources, and room for it below the largest number of nodes: add "
                "it to the cluster's configuration"
            )

    @property
    def _needs(self) -> str:
        return ", ".join(amount_of(name, amount) for name, amount in self.bundle.items())

    def drain(self, node: str, *, only_idle: bool) -> bool:
        """Give a node back as soon as nothing runs on it; ``only_idle``: return False if anything does."""
        return ray_internals.drain_node(node, only_idle=only_idle)

    def release(self) -> None:
        """Request nothing any more."""
        if self._requested > 0:
            from ray.autoscaler.sdk import request_resources

            self._requested = 0
            request_resources(bundles=[])


def _read() -> _Report | None:
    status = ray_internals.autoscaler_report()
    found: Any = (status or {}).get("autoscaler_report")
    if status is None or not found:
        return None
    active, starting = found["active_nodes"], found["pending_launches"]
    pending = [node[1] for node in found["pending_nodes"]]
    availability = found["node_availability_summary"]["node_availabilities"]
    return _Report(
        float(status["time"]),
        frozenset({*active, *starting, *pending}),
        sum(active.values()) + sum(starting.values()) + len(pending),
        any(not each["is_available"] for each in availability.values()),
    )
