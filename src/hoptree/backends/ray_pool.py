"""The Ray pool: actors on the nodes of a cluster, each on a node that holds the partitions it trains on.

Nodes may join and leave. Each gets as many workers as it has room for, and its share of the partitions. Placement
is computed again whenever the nodes change: partitions that no node holds any more are copied from the dataset's
files, and a node releases the partitions that another one has taken over.
"""

from __future__ import annotations

import logging
import secrets
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hoptree.backends.placement import pack, place, share
from hoptree.backends.ray_actor import GROUPS, ActorSetup, RayWorker
from hoptree.backends.ray_cluster import RayCluster, RayNode
from hoptree.backends.ray_handle import RayWorkerHandle
from hoptree.backends.ray_nodes import NodeEvent, PaidNodes
from hoptree.backends.ray_offer import paid_nodes
from hoptree.backends.ray_partitions import PartitionHolders
from hoptree.backends.ray_resources import WorkerResources
from hoptree.backends.ray_settings import RayPoolOptions
from hoptree.backends.ray_startup import StartupMonitor
from hoptree.backends.ray_states import RayStates, StateReferences
from hoptree.backends.state_tracker import StateTransport
from hoptree.backends.trainer_pickle import pickle_trainer
from hoptree.backends.wakeup import Wakeup
from hoptree.backends.worker_handle import WorkerHandle, WorkerMessages
from hoptree.backends.worker_states import WorkerState
from hoptree.core.errors import RefusedError
from hoptree.core.keys import identity
from hoptree.store.errors import StoreError
from hoptree.worker.messages import Quit, SetupRefused, WorkerLeaving, WorkerMessage, WorkerReady

if TYPE_CHECKING:
    from hoptree.backends.ray_settings import Ray
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

_FIRST_ANSWERS = 30.0  # seconds in which the first workers have to set up, before anything is trained
_SHUT_DOWN = 5.0  # seconds in which workers may release their resources

log = logging.getLogger("hoptree")


@final
class RayPool:
    """Workers on a Ray cluster, and states in its object store, which the driver owns."""

    one_machine = False

    def __init__(
        self,
        settings: Ray,
        trainer: Trainer,
        dataset: Dataset,
        states: StateStore,
        study: str,
        options: RayPoolOptions = RayPoolOptions(),  # noqa: B008 frozen
    ) -> None:
        self._settings = settings
        self._heartbeat = options.heartbeat
        self.elastic = options.instance is not None
        self._elastic: PaidNodes | None = None
        self._next_look = 0.0
        self._trainer = trainer
        self._dataset = dataset
        self._states = states
        pickled = pickle_trainer(trainer)
        self._cluster = RayCluster(settings, trainer.threads)
        markers = f"driver-{identity('driver', study)}-"  # only the holder of the study's lease writes such markers
        self._marker = f"{markers}{secrets.token_hex(8)}"
        self._session = self._marker[-4:]
        self._started = 0
        self._workers: dict[str, RayWorkerHandle] = {}
        self._leaving: set[str] = set()  # workers that were told to leave
        self._unusable: set[str] = set()  # nodes on which workers cannot be set up
        self._partitions = PartitionHolders(dataset, options.copies)
        self._references = StateReferences(copied=settings.replicas > 1)
        self.transport: StateTransport = RayStates(states, self._references, lambda: list(self._workers.values()))
        self._held_back: list[
            tuple[WorkerHandle, WorkerMessage | None]
        ] = []  # until the first workers have answered
        self._unanswered: set[str] = set()
        self._deadline = 0.0
        self._requested = 0
        self._startup = StartupMonitor()
        self._notified: deque[str] = deque()
        self._wakeup = Wakeup()
        try:
            self._resources = WorkerResources(settings, trainer, self._cluster.nodes(), options.memory)
            if options.instance is not None:
                self._elastic = paid_nodes(options.instance, self._resources, settings, self._cluster)
            grows = self._elastic is not None and self._elastic.scales
            self._resources.check(self._nodes(), can_grow=self._cluster.can_grow, elastic=grows)
            for left in self._states.markers(markers):  # by a driver that was killed
                self._states.remove_marker(left)
            self._states.write_marker(self._marker)
            self._pickled: Any = ray.put(pickled)
            remote: Any = ray.remote  # its types do not include concurrency groups
            resources = self._resources.actor_options()
            self._actor = remote(**resources, max_restarts=0, concurrency_groups=GROUPS)(RayWorker)
        except BaseException:
            self._disconnect()
            raise

    # --- starting workers -------------------------------------------------------------------------------

    def recruit(self, workers: Mapping[str, WorkerHandle], lineages: int) -> Sequence[WorkerHandle]:
        """Start workers where there is room, and let their nodes hold the right partitions.

        With ``autoscale`` there are no more workers than lineages: Ray's autoscaler is told how many, and the
        excess workers leave, whole nodes first. Nodes that are paid for get as many as they have devices.
        """
        self._workers = {name: worker for name, worker in self._workers.items() if name in workers}
        self._release_left_out()
        nodes = self._nodes()
        self._partitions.keep_nodes({node.id for node in nodes})
        self._partitions.keep_copies({worker.node for worker in self._workers.values()})
        counts = self._counts(nodes, lineages)
        wanted = {node: count for node, count in counts.items() if count}
        now, known = time.monotonic(), list(self._workers.values())
        described = {node.id: node.describe(self._resources.amounts) for node in nodes}
        self._startup.warn(known, described, str(self._resources), now, self._waiting_for)
        if not wanted:
            return []
        expected = self._startup.count(wanted, known, now)
        target = place(self._dataset.partitions, expected, self._settings.replicas, self._partitions.held)
        current = self._count_by_node()
        if released := self._partitions.hold(target, [worker for worker in known if not _is_left_out(worker)]):
            self._held_back += released
            self._notify("")
        started = [self._start(node) for node, count in wanted.items() for _ in range(count - current[node])]
        if started and not self._deadline:
            self._deadline = time.monotonic() + _FIRST_ANSWERS
            self._unanswered = {worker.name for worker in started}
        return started

    def _counts(self, nodes: Sequence[RayNode], lineages: int) -> dict[str, int]:
        """Return how many workers each node is to have."""
        if self._elastic is not None:
            return self._update_nodes(self._elastic)
        room = self._resources.room(nodes)
        return self._scale(room, lineages) if self._settings.autoscale else share(self._settings.workers, room)

    # --- nodes that are paid for ------------------------------------------------------------------------

    def scale(self, nodes: int, release: Sequence[str]) -> None:
        """Have so many nodes, and give others back: those named first, once their workers have left."""
        if self._elastic is not None:
            self._elastic.scale(nodes, release, time.monotonic())
            self._update_nodes(self._elastic)

    def node_events(self) -> list[NodeEvent]:
        """Return what has happened to nodes, after a look at the cluster if one is due."""
        if self._elastic is None:
            return []
        if not self.node_pause():
            self._update_nodes(self._elastic)
        return self._elastic.take_events()

    def node_pause(self) -> float:
        """Return for how many seconds nobody needs to look at the nodes."""
        return max(0.0, self._next_look - time.monotonic())

    def _update_nodes(self, elastic: PaidNodes) -> dict[str, int]:
        now = time.monotonic()
        counts = elastic.update(self._cluster.nodes(), self._unusable, now)
        self._let_leave([worker for worker in self._workers.values() if worker.node in elastic.leaving])
        elastic.give_back({worker.node for worker in self._workers.values()}, now)
        self._next_look = now + elastic.pause
        return counts

    def _let_leave(self, workers: Sequence[RayWorkerHandle]) -> None:
        """Let workers finish their runs and exit."""
        for worker in workers:
            if not worker.leaving and worker.name not in self._leaving:
                self._leaving.add(worker.name)
                self._held_back.append((worker, WorkerLeaving()))
                self._notify(worker.name)

    # --- partitions and scaling by lineages -------------------------------------------------------------

    def copy_partitions(self, workers: Sequence[str], partitions: Sequence[int]) -> None:
        """Let the nodes of these workers hold copies; workers that have left are ignored."""
        found = [self._workers[name] for name in workers if name in self._workers]
        for node in dict.fromkeys(worker.node for worker in found):
            self._partitions.copy(node, partitions, list(self._workers.values()))

    def _do_without_copies(self, worker: RayWorkerHandle, reason: str) -> bool:
        """Continue without copies on a node that cannot take them; return whether it was told to."""
        if not self._partitions.give_up_copies(worker, list(self._workers.values())):
            return False
        log.warning("node %s does without copies: %s", worker.node[:6], reason)
        return True

    def _release_left_out(self) -> None:
        """Do without nodes all of whose workers are left out: no unit may run on the partitions that they hold."""
        left_out = {worker.node for worker in self._workers.values() if _is_left_out(worker)}
        left_out -= {worker.node for worker in self._workers.values() if not _is_left_out(worker)}
        for worker in self._workers.values():
            if worker.node in left_out - self._unusable:
                worker.dismiss()
        self._unusable |= left_out

    def _count_by_node(self) -> Counter[str]:
        return Counter(worker.node for worker in self._workers.values() if not worker.leaving)

    def _scale(self, room: Mapping[str, int], lineages: int) -> dict[str, int]:
        """Request the workers that have work from Ray's autoscaler, and let excess workers leave."""
        from ray.autoscaler.sdk import request_resources

        wanted = max(1, min(self._settings.workers or 1, lineages))
        if wanted != self._requested:
            self._requested = wanted
            request_resources(bundles=[dict(self._resources.amounts)] * wanted)
        current = self._count_by_node()
        counts = pack(wanted, room, current)
        for node in current:
            staying = counts.get(node, 0)
            self._let_leave([w for w in self._workers.values() if w.node == node and not w.leaving][staying:])
        return counts

    @property
    def _waiting_for(self) -> str:
        if not self._requested and (self._elastic is None or not self._elastic.scales):
            return "waiting"
        return (
            "waiting for Ray's autoscaler, which was asked for room for them; if the cluster has no autoscaler, or "
            "no node type with these resources, stop this run and add such nodes"
        )

    def _nodes(self) -> list[RayNode]:
        return [node for node in self._cluster.nodes() if node.id not in self._unusable]

    def _start(self, node: str) -> RayWorkerHandle:
        name = f"{self._session}-{node[:6]}-{self._started}"
        addresses = self._addresses()
        address = addresses.get(node, "127.0.0.1")
        network = len(set(addresses.values())) > 1  # else workers listen on loopback only
        self._started += 1
        actor = self._actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        worker = RayWorkerHandle(
            name,
            node,
            actor,
            self._references,
            self._notify,
            machine="" if network else address,
            echo=self._cluster.quiet,
            heartbeat=self._heartbeat,
        )
        setup = ActorSetup(
            node=node,
            threads=self._trainer.threads,
            paths=[path for path in sys.path if path],
            folder=str(Path.cwd()),
            dataset=str(self._dataset.path),
            fingerprint=self._dataset.fingerprint,
            copy=self._copies(node),
            partitions=self._partitions.of(node),
            states=self._states.location,
            host=address if network else "127.0.0.1",
            marker=self._marker,
        )
        worker.set_up(msgspec.msgpack.encode(setup), self._pickled)
        self._workers[name] = worker
        return worker

    def _copies(self, node: str) -> bool:
        """Return whether a node copies its partitions: by default unless it is on the driver's machine."""
        if self._settings.copy is not None:
            return self._settings.copy
        addresses = self._addresses()
        return addresses.get(node) != addresses.get(ray.get_runtime_context().get_node_id())

    def _addresses(self) -> dict[str, str]:
        return {node.id: node.address for node in self._cluster.nodes()}

    # --- messages ---------------------------------------------------------------------------------------

    def sources(self) -> Sequence[Any]:
        """Return the socket to which Ray's threads write."""
        return [self._wakeup.source]

    def messages(self, ready: Sequence[Any]) -> WorkerMessages:
        """Return the results of finished calls."""
        found: list[tuple[RayWorkerHandle, WorkerMessage | None]] = []
        if self._wakeup.source in ready:
            self._wakeup.clear()
            while self._notified:
                worker = self._workers.get(self._notified.popleft())
                if worker is not None:
                    found += [(worker, message) for message in worker.messages()]
        return self._check_setup(found)

    def _notify(self, name: str) -> None:
        self._notified.append(name)
        self._wakeup.notify()

    def _check_setup(self, found: Sequence[tuple[RayWorkerHandle, WorkerMessage | None]]) -> WorkerMessages:
        """Hold messages back until the first workers have answered: a failed setup is an error before training."""
        answered = self._have_answered
        for worker, message in found:
            if message is None and worker.creation_error:
                reason = (
                    f"node {worker.node[:6]}: a worker cannot start there; Hoptree and what the trainer needs must "
                    f"be installed on every node, or given in ht.Ray(runtime_env=…):\n{worker.creation_error}"
                )
                if not answered:
                    raise RefusedError(reason)
                self._exclude_node(worker, reason)
            if isinstance(message, WorkerReady | SetupRefused) or message is None:
                self._unanswered.discard(worker.name)
            if isinstance(message, SetupRefused) and self._do_without_copies(worker, message.reason):
                continue
            if isinstance(message, SetupRefused) and answered:
                self._exclude_node(worker, message.reason)
            else:
                self._held_back.append((worker, message))
        if not self._have_answered:
            return []
        messages, self._held_back = self._held_back, []
        return messages

    @property
    def _have_answered(self) -> bool:
        now = time.monotonic()
        waiting = [worker for worker in self._workers.values() if worker.name in self._unanswered]
        return now > self._deadline or len(self._startup.late(waiting, now)) == len(waiting)

    def _exclude_node(self, worker: RayWorkerHandle, reason: str) -> None:
        """Continue without a node that joined later and is unusable; raise an error if no node is left."""
        worker.dismiss()
        if worker.node in self._unusable:
            return
        self._unusable.add(worker.node)
        if not any(self._resources.room(self._nodes()).values()):
            raise RefusedError(reason)
        log.warning("node %s is not used: %s", worker.node[:6], reason)

    # --- the end ----------------------------------------------------------------------------------------

    def close(self, workers: Sequence[WorkerHandle], *, at_once: bool, failed: bool) -> None:
        """End all actors, release all references, and leave the cluster as it was."""
        actors = [worker for worker in workers if isinstance(worker, RayWorkerHandle)]
        try:
            if not at_once:
                for worker in actors:
                    worker.send(Quit())
                deadline = time.monotonic() + _SHUT_DOWN
                for worker in actors:
                    worker.print_rest(deadline)
            for worker in actors:
                worker.kill()
        finally:
            self._workers.clear()
            self._disconnect()

    def _disconnect(self) -> None:
        """Undo all that was done in the cluster and in the store, even if a step fails."""
        self._references.clear()
        self._pickled = None
        with ExitStack() as stack:
            stack.callback(self._cluster.close)
            stack.callback(self._wakeup.close)
            with suppress(OSError, StoreError):  # the next driver of the study removes it
                self._states.remove_marker(self._marker)
            if self._elastic is not None:
                stack.callback(self._elastic.close)
            if self._requested:
                from ray.autoscaler.sdk import request_resources

                self._requested = 0
                request_resources(bundles=[])


def _is_left_out(worker: WorkerHandle) -> bool:
    return worker.state is WorkerState.LEFT_OUT
