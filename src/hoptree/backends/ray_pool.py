"""The Ray pool: actors on the nodes of a cluster, each near the partitions that its node holds.

Nodes may come and go. Each gets as many workers as it has room for, and its share of the partitions. Placement is
computed again whenever the nodes change: what nobody holds any more is brought from the dataset's files, and what
another node has taken over is given up.
"""

from __future__ import annotations

import logging
import secrets
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hoptree.backends.heartbeats import LIMIT, beat_interval
from hoptree.backends.placement import pack, place, share
from hoptree.backends.ray_actor import GROUPS, ActorSetup, RayWorker
from hoptree.backends.ray_cluster import RayCluster, RayNode, amount_of
from hoptree.backends.ray_handle import RayWorkerHandle, is_lost
from hoptree.backends.ray_startup import StartupMonitor
from hoptree.backends.state_tracker import StateLocation
from hoptree.backends.trainer_pickle import send_off
from hoptree.backends.worker_handle import WorkerHandle, WorkerMessages
from hoptree.core.errors import RefusedError
from hoptree.core.keys import identity
from hoptree.report.tables import size
from hoptree.store.errors import StoreError
from hoptree.worker.messages import (
    HoldPartitions,
    PartitionsHeld,
    Quit,
    SetupRefused,
    WorkerLeaving,
    WorkerMessage,
    WorkerReady,
)
from hoptree.worker.model_cache import LostStateError

if TYPE_CHECKING:
    from hoptree.backends.ray_settings import Ray
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

_ROLL_CALL = 30.0  # seconds in which the first workers are to say that they can work, before anything is trained
_SAVING = 600.0  # seconds in which a worker is to have written a state, before another one does
_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # resources that Ray has an option for
_FAREWELL = 5.0  # seconds in which workers may put things in order

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
        heartbeat: float = beat_interval(LIMIT),
    ) -> None:
        self._settings = settings
        self._heartbeat = heartbeat
        self._trainer = trainer
        self._dataset = dataset
        self._states = states
        pickled = send_off(trainer)
        self._cluster = RayCluster(settings, trainer.threads)
        self._signs = f"driver-{identity('driver', study)}-"  # only who has the study's lease leaves such signs
        self._sign = f"{self._signs}{secrets.token_hex(8)}"
        self._session = self._sign[-4:]
        self._spawned = 0
        self._members: dict[str, RayWorkerHandle] = {}
        self._unfit: set[str] = set()  # nodes that cannot work with what they were given
        self._held: dict[str, tuple[int, ...]] = {}  # by node: what its workers have, or were told to have
        self._giving_up: set[str] = set()  # nodes whose workers know that they hold less, but have not let go yet
        self._references: dict[str, Any] = {}
        self._second: dict[str, Any] | None = {} if settings.replicas > 1 else None  # copies of states, on our node
        self._early: list[
            tuple[WorkerHandle, WorkerMessage | None]
        ] = []  # news from before everybody has said hello
        self._silent: set[str] = set()
        self._deadline = 0.0
        self._requested = 0
        self._attendance = StartupMonitor()
        self._rung: deque[str] = deque()
        self._doorbell, self._button = socket.socketpair()
        self._doorbell.setblocking(False)
        self._button.setblocking(False)
        try:
            self._worker = settings.resources_per_worker or self._usual_worker()
            self._check(self._nodes())
            for left in self._states.markers(self._signs):  # by a driver that was killed
                self._states.remove_marker(left)
            self._states.write_marker(self._sign)
            self._pickled: Any = ray.put(pickled)
            takes = {"CPU": 0.0, **self._worker}
            options = {option: takes.pop(name) for name, option in _OPTIONS.items() if name in takes}
            remote: Any = ray.remote  # its types know no concurrency groups
            self._actor = remote(
                **options,
                resources=takes or None,
                max_restarts=0,
                concurrency_groups=GROUPS,
            )(RayWorker)
        except BaseException:
            self._leave()
            raise

    # --- workers ----------------------------------------------------------------------------------------

    def recruit(self, members: Mapping[str, WorkerHandle], lineages: int) -> Sequence[WorkerHandle]:
        """Start workers where there is room, and see to it that their nodes hold the right partitions.

        With ``autoscale`` there are no more workers than lineages: Ray's autoscaler is told, and those that are too
        many leave, whole nodes first.
        """
        self._members = {name: member for name, member in self._members.items() if name in members}
        nodes = self._nodes()
        alive = {node.id for node in nodes}
        self._held = {node: held for node, held in self._held.items() if node in alive}
        room = {node.id: node.room(self._worker) for node in nodes}
        counts = self._scale(room, lineages) if self._settings.autoscale else share(self._settings.workers, room)
        wanted = {node: count for node, count in counts.items() if count}
        now, workers = time.monotonic(), list(self._members.values())
        self._attendance.complain(
            workers, {node.id: node.describe(self._worker) for node in nodes}, self._takes, now, self._hope
        )
        if not wanted:
            return []
        known = {node: frozenset(held) for node, held in self._held.items()}
        counted = self._attendance.count(wanted, workers, now)
        target = place(self._dataset.partitions, counted, self._settings.replicas, known)
        here = self._here()
        self._hold(target)
        fresh = [self._spawn(node) for node, count in wanted.items() for _ in range(count - here[node])]
        if fresh and not self._deadline:
            self._deadline = time.monotonic() + _ROLL_CALL
            self._silent = {member.name for member in fresh}
        return fresh

    def _here(self) -> Counter[str]:
        return Counter(member.node for member in self._members.values() if not member.leaving)

    def _scale(self, room: Mapping[str, int], lineages: int) -> dict[str, int]:
        """Tell Ray's autoscaler what could be used now, and let workers leave that are too many."""
        from ray.autoscaler.sdk import request_resources

        wanted = max(1, min(self._settings.workers or 1, lineages))
        if wanted != self._requested:
            self._requested = wanted
            request_resources(bundles=[dict(self._worker)] * wanted)
        here = self._here()
        found = pack(wanted, room, here)
        for node in here:
            staying = found.get(node, 0)
            extra = [m for m in self._members.values() if m.node == node and not m.leaving][staying:]
            self._early += [(member, WorkerLeaving()) for member in extra]
            for member in extra:
                self._rings(member.name)
        return found

    def sources(self) -> Sequence[Any]:
        """Return the doorbell that Ray's threads ring."""
        return [self._doorbell]

    def news(self, ready: Sequence[Any]) -> WorkerMessages:
        """Return what finished calls have brought."""
        found: list[tuple[WorkerHandle, WorkerMessage | None]] = []
        if self._doorbell in ready:
            with suppress(BlockingIOError):
                while self._doorbell.recv(4096):  # what comes after this rings again
                    pass
            while self._rung:
                member = self._members.get(self._rung.popleft())
                if member is not None:
                    found += [(member, news) for news in member.news()]
        return self._roll_call(found)

    def close(self, members: Sequence[WorkerHandle], *, at_once: bool, failed: bool) -> None:
        """End all actors, let all references go, and leave the cluster as it was."""
        actors = [member for member in members if isinstance(member, RayWorkerHandle)]
        try:
            self._part(actors, at_once)
        finally:
            self._members.clear()
            self._leave()

    # --- states -----------------------------------------------------------------------------------------

    def left(self) -> dict[str, str]:
        """Return nothing: states in the object store end with the driver that owned them."""
        return {}

    def write(self, stored: StateLocation) -> None:
        """Have a state written to the store by a worker that has it near, else by another, else by ourselves."""
        reference = self._references[stored.slot]
        members = [member for member in list(self._members.values()) if member.ready]
        members.sort(key=lambda member: member.name != stored.owner)
        for member in members[:2]:
            try:
                ray.get(member.actor.save.remote(stored.key, reference, stored.durable), timeout=_SAVING)
            except RayError as error:  # what really keeps a state from being saved, the driver meets as well
                if is_lost(error):
                    raise LostStateError(f"the state {stored.key} is gone with its node") from error
            else:
                return
        try:
            arrays, meta = ray.get(reference)
        except RayError as error:
            raise LostStateError(f"the state {stored.key} is gone with its node") from error
        self._states.put(stored.key, arrays, meta, durable=stored.durable)

    def free(self, stored: StateLocation) -> None:
        """Let a reference go; the object store frees its memory when the last one is gone."""
        self._references.pop(stored.slot, None)
        if self._second is not None:
            self._second.pop(stored.slot, None)

    # --- inside -----------------------------------------------------------------------------------------

    def _usual_worker(self) -> dict[str, float]:
        """Return what a worker takes by default: a GPU if the cluster has any, and the trainer's threads.

        Every GPU gets its worker, also where nodes have fewer CPUs than that takes.
        """
        threads = float(self._trainer.threads)
        having = [node.resources for node in self._cluster.nodes() if node.resources.get("GPU", 0.0) >= 1]
        if not having:
            return {"CPU": threads}
        cores = min(threads, *(has.get("CPU", 0.0) / int(has["GPU"]) for has in having))
        cores = int(cores * 1e4) / 1e4  # Ray counts in such steps
        return {"GPU": 1.0, "CPU": cores} if cores else {"GPU": 1.0}

    @property
    def _takes(self) -> str:
        return ", ".join(amount_of(name, amount) for name, amount in self._worker.items())

    @property
    def _hope(self) -> str:
        if not self._requested:
            return "waiting"
        return (
            f"waiting for Ray's autoscaler, which was asked for room for {self._requested}; if the cluster has "
            "none, or no type of node with that, end this and add such nodes"
        )

    def _nodes(self) -> list[RayNode]:
        return [node for node in self._cluster.nodes() if node.id not in self._unfit]

    def _check(self, nodes: Sequence[RayNode]) -> None:
        """Refuse what the cluster can never satisfy, and say what is missing."""
        room = {node.id: node.room(self._worker) for node in nodes}
        has = "; ".join(node.describe(self._worker) for node in nodes)
        total, asked = sum(room.values()), self._settings.workers
        grows = self._settings.autoscale and self._cluster.can_grow
        if not grows and (not total or (asked is not None and asked > total)):
            less = "resources_per_worker" if self._settings.resources_per_worker else "the trainer's threads"
            fewer = "ask for fewer, add nodes" if total else f"{self._missing(nodes)}; add such nodes"
            raise RefusedError(
                f"workers: {asked or 1} asked for, each with {self._takes}, but the cluster has room for {total}: "
                f"{has}; {fewer}, or let {less} be less"
            )
        holders = sum(count > 0 for count in share(asked, room).values())
        if not grows and self._settings.replicas > holders:
            raise RefusedError(
                f"replicas: {self._settings.replicas} on {holders} nodes with workers; expected at most {holders}, "
                "one on each: ask for fewer, or add nodes"
            )

    def _missing(self, nodes: Sequence[RayNode]) -> str:
        """Say what of a worker's needs no node has."""
        most = {name: max((node.resources.get(name, 0.0) for node in nodes), default=0.0) for name in self._worker}
        lacking = [amount_of(name, amount) for name, amount in self._worker.items() if most[name] < amount]
        return f"no node has {' or '.join(lacking)}" if lacking else "no node has all of it"

    def _spawn(self, node: str) -> RayWorkerHandle:
        name = f"{self._session}-{node[:6]}-{self._spawned}"
        self._spawned += 1
        actor = self._actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
        member = RayWorkerHandle(
            name,
            node,
            actor,
            self._references,
            self._rings,
            echo=self._cluster.quiet,
            copies=self._second,
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
            partitions=self._held[node],
            states=self._states.location,
            sign=self._sign,
        )
        member.begin(msgspec.msgpack.encode(setup), self._pickled)
        self._members[name] = member
        return member

    def _copies(self, node: str) -> bool:
        if self._settings.copy is not None:
            return self._settings.copy
        here = ray.get_runtime_context().get_node_id()
        addresses = {known.id: known.address for known in self._cluster.nodes()}
        return addresses.get(node) != addresses.get(here)

    def _hold(self, target: Mapping[str, tuple[int, ...]]) -> None:
        """Tell nodes to hold what they lack at once, and to give up the rest when others have it for certain."""
        settled = set(target) <= {member.node for member in self._members.values()} and all(
            member.ready and set(target[member.node]) <= set(member.partitions)
            for member in self._members.values()
            if member.node in target
        )
        for node in self._giving_up:  # by now nothing is on its way there that needs what it gives up
            self._tell(node, HoldPartitions(self._held[node]))
        self._giving_up.clear()
        for node, partitions in target.items():
            before = set(self._held.get(node, ()))
            after = set(partitions) if settled else before | set(partitions)
            if after == before:
                continue
            self._held[node] = tuple(sorted(after))
            log.info("node %s holds partitions %s, %s", node[:6], self._held[node], size(self._bytes(node)))
            if after - before:
                self._tell(node, HoldPartitions(self._held[node]))
            else:
                self._giving_up.add(node)
                mine = [member for member in self._members.values() if member.node == node]
                self._early += [(member, PartitionsHeld(self._held[node])) for member in mine]
                self._rings("")

    def _tell(self, node: str, command: HoldPartitions) -> None:
        for member in self._members.values():
            if member.node == node:
                member.send(command)

    def _bytes(self, node: str) -> int:
        return sum(self._dataset.manifest.train[partition].bytes for partition in self._held[node])

    def _rings(self, name: str) -> None:
        self._rung.append(name)
        with suppress(BlockingIOError, OSError):  # full of rings that nobody has heard yet, or closed
            self._button.send(b"!")

    def _roll_call(self, found: list[tuple[WorkerHandle, WorkerMessage | None]]) -> WorkerMessages:
        """Hold the first news back until everybody has said hello: who cannot work is refused before training."""
        passed = self._passed
        for member, news in found:
            assert isinstance(member, RayWorkerHandle)
            if news is None and member.creation_error:
                reason = (
                    f"node {member.node[:6]}: a worker cannot start there; Hoptree and what the trainer needs must "
                    f"be installed on every node, or named in ht.Ray(runtime_env=…):\n{member.creation_error}"
                )
                if not passed:
                    raise RefusedError(reason)
                self._give_up(member, reason)
            if isinstance(news, WorkerReady | SetupRefused) or news is None:
                self._silent.discard(member.name)
            if isinstance(news, SetupRefused) and passed:
                self._give_up(member, news.reason)
            else:
                self._early.append((member, news))
        if not self._passed:
            return []
        early, self._early = self._early, []
        return early

    def _give_up(self, member: RayWorkerHandle, reason: str) -> None:
        """Do without a node that came later and cannot work; without any node, there is no point in waiting."""
        member.dismiss()
        if member.node in self._unfit:
            return
        self._unfit.add(member.node)
        if not any(node.room(self._worker) for node in self._nodes()):
            raise RefusedError(reason)
        log.warning("not used: %s", reason)

    @property
    def _passed(self) -> bool:
        now = time.monotonic()
        silent = [member for member in self._members.values() if member.name in self._silent]
        return now > self._deadline or len(self._attendance.late(silent, now)) == len(silent)

    def _part(self, actors: Sequence[RayWorkerHandle], at_once: bool) -> None:
        if not at_once:
            for member in actors:
                member.send(Quit())
            deadline = time.monotonic() + _FAREWELL
            for member in actors:
                member.hear_out(deadline)
        for member in actors:
            member.kill()

    def _leave(self) -> None:
        """Leave everything as it was; what fails on the way keeps nothing else from being put in order."""
        self._references.clear()
        self._second = None
        self._pickled = None
        with ExitStack() as stack:
            stack.callback(self._cluster.close)
            stack.callback(self._button.close)
            stack.callback(self._doorbell.close)
            with suppress(OSError, StoreError):  # whoever drives the study next takes it away
                self._states.remove_marker(self._sign)
            if self._requested:
                from ray.autoscaler.sdk import request_resources

                self._requested = 0
                request_resources(bundles=[])
