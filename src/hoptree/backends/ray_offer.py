"""What a Ray cluster offers of an instance type, before anything is requested."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hoptree.backends.protocol import NodeOffer
from hoptree.backends.ray_autoscaler import Autoscaler, has_autoscaler
from hoptree.backends.ray_cluster import RayCluster
from hoptree.backends.ray_nodes import PaidNodes
from hoptree.backends.ray_resources import WorkerResources
from hoptree.core.errors import RefusedError

if TYPE_CHECKING:
    from hoptree.backends.ray_settings import Ray
    from hoptree.elastic.instance import Instance
    from hoptree.trainers.base import Trainer


def cluster_offer(settings: Ray, instance: Instance, trainer: Trainer, memory: int = 0) -> NodeOffer:
    """Return what the cluster of these settings offers; a cluster that a run starts here is one node."""
    import ray

    if not ray.is_initialized() and (settings.address or os.environ.get("RAY_ADDRESS") or "local") == "local":
        return NodeOffer(scales=False, nodes=1, offered=True)
    cluster = RayCluster(settings, trainer.threads)
    try:
        resources = WorkerResources(settings, trainer, cluster.nodes(), memory)
        nodes = _nodes(instance, resources, settings, cluster)
        found = sum(nodes.slots(node) > 0 for node in cluster.nodes())
        return NodeOffer(nodes.scales, found, True if found else None if nodes.scales else False)
    finally:
        cluster.close()


def paid_nodes(instance: Instance, resources: WorkerResources, settings: Ray, cluster: RayCluster) -> PaidNodes:
    """Return the nodes of a run; raise an error if the cluster has none of this type and cannot start any."""
    nodes = _nodes(instance, resources, settings, cluster)
    if not nodes.scales and not any(map(nodes.slots, cluster.nodes())):
        described = "; ".join(node.describe(resources.amounts) for node in cluster.nodes())
        raise RefusedError(
            f"instance: {instance.name!r}, but the cluster has no such node and no autoscaler that starts one: "
            f"{described}; expected nodes with room for a worker ({resources}), and this value of the label "
            f"{settings.instance_label}, or none: add such nodes, or omit instance"
        )
    return nodes


def _nodes(instance: Instance, resources: WorkerResources, settings: Ray, cluster: RayCluster) -> PaidNodes:
    label, worker = settings.instance_label, resources.amounts
    grows = cluster.can_grow and has_autoscaler()
    return PaidNodes(instance, worker, label, Autoscaler(instance, worker, label) if grows else None)
