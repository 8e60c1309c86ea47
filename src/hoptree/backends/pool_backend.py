"""The pool backend: carries out actions on warm workers of any kind.

A *pool* starts workers, sends and receives messages, and moves states between workers: processes on this machine
with slots in shared memory (``local.py``), or actors on a Ray cluster with its object store (``ray_pool.py``).
Everything else is the same for all pools: rehearsals, saving, and workers that exit or hang
(``worker_supervisor.py``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, assert_never, final

from hoptree.backends.node_watch import NodeWatch
from hoptree.backends.platform_gate import PlatformGate
from hoptree.backends.pool_options import PoolHooks, PoolOptions
from hoptree.backends.protocol import Task
from hoptree.backends.rehearsal_progress import RehearsalProgress
from hoptree.backends.rehearsals import Rehearsals
from hoptree.backends.state_tracker import PlaceId, SaveLedger, StateLocation, StateTracker
from hoptree.backends.worker_handle import CopiesPartitions, WorkerHandle, WorkerPool
from hoptree.backends.worker_states import WorkerEvent, WorkerState
from hoptree.backends.worker_supervisor import WorkerSupervisor
from hoptree.core.actions import CancelUnit, CopyPartitions, DropState, Evaluate, RunUnit, SaveState
from hoptree.core.errors import RefusedError
from hoptree.core.events import (
    Event,
    StateEvaluated,
    StateLost,
    StateSaved,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
)
from hoptree.core.keys import shuffle_seed
from hoptree.store.errors import StoreFullError
from hoptree.worker.messages import (
    BatchesMeasured,
    CancelRun,
    EvaluateState,
    FirstUnitStarted,
    HelpEnded,
    InputsObserved,
    PartitionsHeld,
    RehearsalResult,
    RunCancelled,
    RunFailed,
    SetupRefused,
    Stack,
    StateMetrics,
    StateSource,
    StorageFull,
    TrainUnit,
    UnitTrained,
    WorkerLeaving,
    WorkerMessage,
    WorkerReady,
)

if TYPE_CHECKING:
    from hoptree.store.states import StateStore

_BACKLOG = 8  # states that may wait to be saved before states that are not durable are skipped
_TICK = 1.0  # seconds between two ticks while workers start

log = logging.getLogger("hoptree")


@final
class PoolBackend:
    """Runs units on the workers of a pool, and replaces workers that exit.

    ``rehearsals`` are tried before anything is trained; their probes are reported before any event is returned.
    ``ledger`` records which states are saved.
    """

    def __init__(
        self,
        pool: WorkerPool,
        states: StateStore,
        *,
        seed: int,
        ledger: SaveLedger,
        rehearsals: Rehearsals | None = None,
        options: PoolOptions = PoolOptions(),  # noqa: B008 frozen
        hooks: PoolHooks = PoolHooks(),  # noqa: B008 frozen
    ) -> None:
        self._pool = pool
        self._states = states
        self._seed = seed
        self._ledger = ledger
        self._hooks = hooks
        self._offset = options.begun - time.monotonic()
        self._rehearsal = RehearsalProgress(rehearsals)
        self._pending: list[Event] = []
        self._woken = False
        self._tracker = StateTracker(states, ledger, pool.transport)
        self._supervisor = WorkerSupervisor(pool, self._tracker, self._rehearsal, options, hooks)
        self._workers = self._supervisor.workers
        self._nodes = NodeWatch(pool, self._offset, self._supervisor.recruit)
        one_kind = pool.one_machine or self._nodes.are_paid  # by instances of one type
        self._platforms = PlatformGate(waits=options.wait_for_platforms, one_kind=one_kind)
        self._leftovers = pool.transport.find_leftovers()
        self.bytes_hopped = 0
        self.bytes_between_nodes = 0
        self._trained_bytes = 0
        self.units = 0
        self.made: dict[int, int] = {}  # by node, a bit for each unit that was trained

    # --- the backend's four calls -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers and rehearse; each joins when it is ready. Raise an error if the rehearsal fails."""
        while self._is_starting():
            self._supervisor.recruit(1)
            self._pending += self._receive(min(_TICK, self._nodes.pause()))
            self._pending += self._supervisor.check_heartbeats()
            self._nodes.keep()
            self._hooks.tick()
            self._rehearsal.end_overdue(self._workers.values())
        self._rehearsal.finish_startup()

    def _is_starting(self) -> bool:
        workers = self._workers.values()
        rehearses = self._rehearsal.must_pass or any(map(self._rehearsal.waits_for, workers))
        return rehearses or not self._platforms.is_settled(workers)

    def submit(self, action: Task) -> None:
        """Send an action to its worker."""
        match action:
            case RunUnit():
                self._run_unit(action)
            case Evaluate():
                location = self._tracker.find((action.node, action.unit))
                slot = location.slot if location is not None else ""
                if location is not None:
                    self._count_hop(location, action.worker)
                self._supervisor.assign(action, EvaluateState(action, action.origin, StateSource(action.key, slot)))
            case CancelUnit(run, worker):
                if worker in self._workers:
                    self._workers[worker].send(CancelRun(run))
            case SaveState():
                self._save(action)
            case DropState(node, unit):
                if self._tracker.find((node, unit)) is None:  # it was found in the store and never loaded here
                    self._ledger.dropped(action.key)
                self._tracker.drop((node, unit))
            case CopyPartitions(workers, partitions):
                if isinstance(self._pool, CopiesPartitions):
                    self._pool.copy_partitions(workers, partitions)
            case _:
                assert_never(action)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Wait for messages from any worker, and for nodes that come and go."""
        if (early := self._nodes.take_early()) is not None:
            return early
        events, self._pending = self._pending, []
        until = float("inf") if seconds is None else time.monotonic() + seconds
        self._woken = False
        while not events and not self._woken:
            self._supervisor.let_workers_leave()
            left = until - time.monotonic()
            due = min(self._supervisor.seconds_until_due(), self._nodes.pause())
            events += self._receive(max(0.0, min(left, due)))
            events += self._supervisor.do_due_work()
            events += self._nodes.look()
            if left <= 0:
                break
        return time.monotonic() + self._offset, events

    def scale(self, nodes: int, release: Sequence[str] = ()) -> None:
        """Request so many nodes, and give others back, those named first; a fixed number stays as it is."""
        self._nodes.scale(nodes, release)

    def wake(self) -> None:
        """Let ``wait`` return soon."""
        self._woken = True
        self._tracker.wake()

    def stop(self, *, failed: bool) -> None:
        """End all workers and finish saving; unsaved states stay where the next driver finds them."""
        unsaved = True
        try:
            for worker in self._workers.values():
                if worker.queue or worker.state is WorkerState.REHEARSING or failed:
                    worker.kill()
            self._tracker.close()
            unsaved = failed
        finally:
            workers = list(self._workers.values())
            self._workers.clear()
            self._pool.close(workers, at_once=failed, failed=unsaved)

    # --- platforms --------------------------------------------------------------------------------------

    @property
    def platforms(self) -> list[tuple[str, dict[str, str]]]:
        """The workers' names and platforms, as far as they are known."""
        return [(each.name, each.platform) for each in self._workers.values() if each.platform is not None]

    def admit(self, kinds: Sequence[dict[str, str]]) -> None:
        """Let only workers of these platforms train from now on."""
        self._platforms.admit(kinds)
        excluded = {name for name, platform in self.platforms if platform not in kinds}
        self._pending = [e for e in self._pending if not (isinstance(e, WorkerJoined) and e.worker in excluded)]
        for name in excluded:
            if self._workers[name].joined:
                self._workers[name].apply(WorkerEvent.EXCLUDED)

    # --- states -----------------------------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        """The mean size of a state, over the units that were trained."""
        return round(self._trained_bytes / self.units) if self.units else 0

    def adopt(self, node: int, unit: int, key: str) -> bool:
        """Take over a state that an earlier run left in a slot or in the store; return whether there is one."""
        slot = self._leftovers.get(key, "")
        if not slot and key not in self._states:
            return False
        self._tracker.put((node, unit), StateLocation(key, slot, "", 0, saved=key in self._states))
        return True

    def save(self, node: int, unit: int) -> bool:
        """Save a state in the background; return whether it is being saved."""
        return self._tracker.save((node, unit))

    def _save(self, action: SaveState) -> None:
        """Save a state; one that is not durable only while the backlog is short and the store has room."""
        place = action.node, action.unit
        location = self._tracker.find(place)
        if location is None:
            return
        if not action.durable and (self._tracker.backlog >= _BACKLOG or not self._ledger.has_room(location.size)):
            return
        saving = self._tracker.save(place, action.seconds, durable=action.durable)
        if action.durable and location.saved and not saving:  # the store had it already
            self._pending.append(StateSaved(*place))

    def _saved(self) -> list[Event]:
        saved, lost = self._tracker.take_results()
        return [*(StateLost(*place) for place in lost), *(StateSaved(*place) for place in saved)]

    def _run_unit(self, action: RunUnit) -> None:
        command = self._train_command(action)
        if not action.crew:
            self._supervisor.assign(action, command)
            return
        location = self._tracker.find((action.source, action.unit))
        for name in action.crew:
            if location is not None:
                self._count_hop(location, name)
        self._supervisor.assign_gang(action, command)

    def _train_command(self, action: RunUnit) -> TrainUnit:
        source: StateSource | None = None
        if action.unit:
            location = self._tracker.find((action.source, action.unit))
            if location is None:  # the run before it, on the same worker, will train it
                source = StateSource(action.source_state or "")
            else:
                source = StateSource(location.key, location.slot)
                self._count_hop(location, action.worker)
        shuffle = shuffle_seed(self._seed, action.epoch, action.partition)
        return TrainUnit(action, action.origin, source, action.target_state, shuffle)

    def _count_hop(self, location: StateLocation, worker: str) -> None:
        """Count the bytes that move to a worker that trains on from a state, or evaluates it."""
        if location.owner != worker:
            self.bytes_hopped += location.size
        if not self._supervisor.same_node(location.owner, worker):
            self.bytes_between_nodes += location.size

    # --- messages ---------------------------------------------------------------------------------------

    def _receive(self, seconds: float) -> list[Event]:
        """Return the events that follow from messages and saved states, or nothing after some seconds."""
        ready = wait([self._tracker.source, *self._pool.sources()], timeout=seconds)
        events: list[Event] = []
        if self._tracker.source in ready:
            events += self._saved()
        for worker, message in self._pool.messages(ready):
            if worker.name in self._workers:
                if message is None:
                    events += self._supervisor.exited(worker, worker.reap())
                elif worker.state is not WorkerState.DISMISSED:  # what it sent before it was killed
                    events += self._take(worker, message)
        return events

    def _take(self, worker: WorkerHandle, message: WorkerMessage) -> list[Event]:
        name = worker.name
        match message:
            case WorkerReady(_, partitions, platform, rendezvous):
                self._supervisor.started()
                worker.partitions, worker.platform, worker.rendezvous = partitions, platform, rendezvous
                return [] if self._rehearsal.begin(worker) else self._join(worker)
            case RehearsalResult():
                return self._join(worker) if self._rehearsal.take(worker, message) else []
            case BatchesMeasured():
                return []  # only the profiler asks for it
            case FirstUnitStarted():
                worker.warm = True
                worker.run_started = time.monotonic()
                return []
            case PartitionsHeld(partitions):
                worker.partitions = partitions
                staying = worker.joined and not worker.leaving  # joining again, it would get units
                return [self._joined(worker)] if staying else []
            case WorkerLeaving():
                worker.request_leave()
                return [WorkerDrained(name)] if worker.joined else []
            case SetupRefused(reason):
                raise RefusedError(reason)
            case InputsObserved(observations):
                self._hooks.observed(observations)
                return []
            case UnitTrained(run, slot, size, seconds):
                return self._trained(worker, run, StateLocation("", slot, name, size), seconds)
            case HelpEnded(run):
                return self._supervisor.leave_gang(worker, run)
            case StateMetrics(run, metrics, seconds):
                ended = self._supervisor.end_run(worker, run)
                if ended is None:
                    return self._supervisor.leave_gang(worker, run)
                return [StateEvaluated(run, name, metrics, seconds)]
            case RunFailed():
                return self._failed(worker, message)
            case StorageFull(reason):
                raise StoreFullError(f"{reason}; free some space and run again: only the units that ran are lost")
            case RunCancelled(run):
                return self._end_without_result(worker, run, [UnitCancelled(run, name)])
            case Stack(stack):
                worker.stack = stack
                worker.kill()
                return []
            case _:
                assert_never(message)

    def _join(self, worker: WorkerHandle) -> list[Event]:
        if not self._platforms.allows(worker.platform):
            differ = self._platforms.difference(worker.platform)
            log.warning("worker %s is left out, since it would train different bits: %s", worker.name, differ)
            worker.apply(WorkerEvent.EXCLUDED)
            return []
        worker.join()
        return [self._joined(worker)]

    def _joined(self, worker: WorkerHandle) -> WorkerJoined:
        node = self._nodes.name(worker)
        return WorkerJoined(worker.name, worker.partitions, machine=worker.machine, node=node)

    def _trained(self, worker: WorkerHandle, run: int, location: StateLocation, seconds: float) -> list[Event]:
        action = self._supervisor.find_run(run)
        if not isinstance(action, RunUnit) or run not in worker.queue:  # nobody waits for it any more
            self._pool.transport.free(location)
            return self._supervisor.leave_gang(worker, run)
        location.key = action.target_state
        self._tracker.put((action.node, action.unit + 1), location)
        self.units += 1
        self.made[action.node] = self.made.get(action.node, 0) | 1 << action.unit
        self._trained_bytes += location.size
        worker.run_started = time.monotonic()
        worker.warm = True
        if not action.evaluate:
            self._supervisor.end_run(worker, run)
        return [UnitFinished(run, worker.name, seconds, location.size)]

    def _failed(self, worker: WorkerHandle, message: RunFailed) -> list[Event]:
        action = self._supervisor.find_run(message.run)
        leader = action.worker if action is not None else worker.name
        failed = UnitFailed(message.run, leader, message.reason, message.fault, message.limit, message.asked)
        if action is None and message.fault == "memory":  # the cause of what its leader has reported already
            self._supervisor.explain_failure(failed)
        if action is None or not message.lost or self._tracker.fall_back_to_store(_source(action)):
            return self._end_without_result(worker, message.run, [failed])
        self._tracker.lose(_source(action))
        return self._end_without_result(worker, message.run, [StateLost(*_source(action)), failed])

    def _end_without_result(self, worker: WorkerHandle, run: int, events: list[Event]) -> list[Event]:
        """Return the events of a run that a worker has ended without a result, once nobody is busy with it."""
        action = self._supervisor.end_run(worker, run)
        if action is None:  # it has ended for the engine when another of its workers exited
            return self._supervisor.leave_gang(worker, run)
        return self._supervisor.part_gang(action, events)


def _source(action: RunUnit | Evaluate) -> PlaceId:
    return (action.source if isinstance(action, RunUnit) else action.node), action.unit
