"""The resources of a Ray worker, and whether a cluster has room for the workers that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from hoptree.backends.placement import share
from hoptree.backends.ray_cluster import RayNode, amount_of
from hoptree.core.errors import RefusedError

if TYPE_CHECKING:
    from hoptree.backends.ray_settings import Ray
    from hoptree.trainers.base import Trainer

_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # resources that Ray has an option for


@final
class WorkerResources:
    """What one worker takes: as the settings say, else the trainer's threads, and a GPU if it may use one.

    Ray shows a worker only the GPUs that it takes, by CUDA_VISIBLE_DEVICES. ``memory`` is in bytes, 0 if not given.
    """

    def __init__(self, settings: Ray, trainer: Trainer, nodes: Sequence[RayNode], memory: int = 0) -> None:
        self._settings = settings
        amounts = settings.resources_per_worker or _default_amounts(trainer, nodes)
        self.amounts = {**amounts, "memory": float(memory)} if memory else amounts

    def __str__(self) -> str:
        return ", ".join(amount_of(name, amount) for name, amount in self.amounts.items())

    def room(self, nodes: Sequence[RayNode]) -> dict[str, int]:
        """Return how many workers fit on each node."""
        return {node.id: node.room(self.amounts) for node in nodes}

    def actor_options(self) -> dict[str, Any]:
        """Return the amounts as options of an actor."""
        amounts = {"CPU": 0.0, **self.amounts}
        options: dict[str, Any] = {
            option: amounts.pop(name) for name, option in _OPTIONS.items() if name in amounts
        }
        return {**options, "resources": amounts or None}

    def check(self, nodes: Sequence[RayNode], *, can_grow: bool, elastic: bool = False) -> None:
        """Raise an error that says what is missing, if the cluster can never run what the settings ask for.

        ``elastic`` says that nodes come when they are requested.
        """
        if elastic or (self._settings.autoscale and can_grow):
            return
        room = self.room(nodes)
        total, asked = sum(room.values()), self._settings.workers
        if not total or (asked is not None and asked > total):
            less = "resources_per_worker" if self._settings.resources_per_worker else "the trainer's threads"
            fix = "ask for fewer, add nodes" if total else f"{self._missing(nodes)}; add such nodes"
            described = "; ".join(node.describe(self.amounts) for node in nodes)
            raise RefusedError(
                f"workers: {asked or 1} asked for, each with {self}, but the cluster has room for {total}: "
                f"{described}; {fix}, or reduce {less}"
            )
        holders = sum(count > 0 for count in share(asked, room).values())
        if self._settings.replicas > holders:
            raise RefusedError(
                f"replicas: {self._settings.replicas} on {holders} nodes with workers; expected at most {holders}, "
                "one on each: ask for fewer, or add nodes"
            )

    def _missing(self, nodes: Sequence[RayNode]) -> str:
        """Describe the resources of a worker that no node has."""
        amounts = self.amounts.items()
        most = {name: max((node.resources.get(name, 0.0) for node in nodes), default=0.0) for name in self.amounts}
        lacking = [amount_of(name, amount) for name, amount in amounts if most[name] < amount]
        return f"no node has {' or '.join(lacking)}" if lacking else "no node has all of it"


def _default_amounts(trainer: Trainer, nodes: Sequence[RayNode]) -> dict[str, float]:
    """Return the trainer's threads and a GPU; fewer CPUs where a node has too few for a worker on each GPU.

    A trainer for CPUs takes no GPU; "cuda" takes one even if no node has any yet; others one if there are some.
    """
    threads = float(trainer.threads)
    with_gpu = [node.resources for node in nodes if node.resources.get("GPU", 0.0) >= 1]
    if trainer.device == "cpu" or not with_gpu:
        return {"GPU": 1.0, "CPU": threads} if trainer.device == "cuda" else {"CPU": threads}
    cpus = min(threads, *(each.get("CPU", 0.0) / int(each["GPU"]) for each in with_gpu))
    cpus = int(cpus * 1e4) / 1e4  # Ray's resolution
    return {"GPU": 1.0, "CPU": cpus} if cpus else {"GPU": 1.0}
