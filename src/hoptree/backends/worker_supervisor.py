"""Keeps the workers of a pool running: starts missing ones, and ends those that hang or send no heartbeat."""

from __future__ import annotations

import logging
import secrets
import time
from typing import final

import msgspec

from hoptree.backends.gangs import Gangs
from hoptree.backends.heartbeats import Heartbeats
from hoptree.backends.pool_options import PoolHooks, PoolOptions
from hoptree.backends.rehearsal_progress import RehearsalProgress
from hoptree.backends.state_tracker import StateTracker
from hoptree.backends.time_limits import TimeLimits
from hoptree.backends.worker_failures import WorkerFailures
from hoptree.backends.worker_handle import WorkerExit, WorkerHandle, WorkerPool
from hoptree.backends.worker_states import WorkerEvent, WorkerState
from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.events import Event, UnitFailed, WorkerLost
from hoptree.worker.messages import CancelRun, DumpStack, Quit, TrainUnit, WorkerCommand

_RECRUITING = 2.0  # seconds between two checks for missing workers

log = logging.getLogger("hoptree")


@final
class WorkerSupervisor:
    """Knows the workers of a pool (``workers``, by name) and the runs that they were assigned."""

    def __init__(
        self,
        pool: WorkerPool,
        tracker: StateTracker,
        rehearsal: RehearsalProgress,
        options: PoolOptions,
        hooks: PoolHooks,
    ) -> None:
        self._pool = pool
        self._tracker = tracker
        self._rehearsal = rehearsal
        self._hooks = hooks
        self._limits = TimeLimits(options.unit_limit, hooks.longest, lambda: rehearsal.unit_seconds)
        self._failures = WorkerFailures()
        self._recruited = time.monotonic()
        self._heartbeats = Heartbeats(options.heartbeat_limit, self._recruited)
        self._node_of: dict[str, str] = {}  # of all workers so far: a state may outlive the worker that trained it
        self._runs: dict[int, RunUnit | Evaluate] = {}
        self.workers: dict[str, WorkerHandle] = {}
        self._quitting: set[str] = set()  # workers that were told to exit
        self._gangs = Gangs(secrets.token_hex(4))

    # --- runs -------------------------------------------------------------------------------------------

    def assign(self, action: RunUnit | Evaluate, command: WorkerCommand) -> None:
        """Send a run to its worker; if that has exited, the engine learns of it by an event."""
        self._runs[action.run] = action
        worker = self.workers.get(action.worker)
        if worker is not None:
            worker.assign(action.run)
            worker.send(command)

    def assign_gang(self, action: RunUnit, command: TrainUnit) -> None:
        """Send a run to the workers that train it together."""
        leader = self.workers.get(action.worker)
        rendezvous = leader.rendezvous if leader is not None else ""
        (_, first), *others = self._gangs.form(action, rendezvous)
        self.assign(action, msgspec.structs.replace(command, gang=first))
        for name, member in others:
            worker = self.workers.get(name)
            if worker is not None:
                worker.assign(action.run)
                worker.send(msgspec.structs.replace(command, gang=member))

    def part_gang(self, action: RunUnit | Evaluate, events: list[Event]) -> list[Event]:
        """Return the events of a run that did not succeed, once all workers have left it: they are told to."""
        if not isinstance(action, RunUnit) or not action.crew:
            return events
        self._gangs.part(action)
        for name in self._gangs.busy(action.run):
            if name in self.workers:
                self.workers[name].send(CancelRun(action.run))
        return self._gangs.hold(action.run, events)

    def leave_gang(self, worker: WorkerHandle, run: int) -> list[Event]:
        """Note that a worker has left a run; return the events that waited for that."""
        worker.finish(run)
        return self._gangs.leave(run, worker.name)

    def explain_failure(self, failed: UnitFailed) -> None:
        """Let a failure say why a run failed that is not reported yet: one of its workers knows it better."""
        self._gangs.explain(failed)

    def find_run(self, run: int) -> RunUnit | Evaluate | None:
        """Return a run that has not ended."""
        return self._runs.get(run)

    def end_run(self, worker: WorkerHandle, run: int) -> RunUnit | Evaluate | None:
        """Note that a run of a worker has ended; None if it was not assigned to it, or has ended before."""
        if not worker.finish(run):
            return None
        action = self._runs.pop(run, None)
        if action is not None:  # otherwise another worker of its gang has exited, and events are held
            self._gangs.leave(run, worker.name)
        return action

    # --- workers that start, leave and exit -------------------------------------------------------------

    def recruit(self, at_least: int = 0) -> None:
        """Start the workers that are missing, if they would have work."""
        needed = max(at_least, self._hooks.workers_needed())
        for worker in self._pool.recruit(self.workers, needed) if needed else ():
            self.workers[worker.name] = worker
            self._node_of[worker.name] = worker.node

    def started(self) -> None:
        """Note that a worker has started."""
        self._failures.started()

    def same_node(self, one: str, other: str) -> bool:
        """Return whether two workers, which may have exited, are on one node."""
        return self._node_of.get(one) == self._node_of.get(other)

    def exited(
        self, worker: WorkerHandle, worker_exit: WorkerExit, event: WorkerEvent = WorkerEvent.EXITED
    ) -> list[Event]:
        """Replace a worker that has exited; its current run fails unless the machine was lost."""
        before, joined = worker.state, worker.joined
        worker.apply(event)
        del self.workers[worker.name]
        self._quitting.discard(worker.name)
        events = [event for run in worker.queue for event in self._gangs.leave(run, worker.name)]
        runs = [self._runs.pop(run) for run in worker.queue if run in self._runs]  # its own, or those that it helps
        lost: list[Event] = []
        if runs and before is WorkerState.HUNG and event is WorkerEvent.EXITED:  # a hung worker sends heartbeats
            limit = f"it ran for more than {self._limits.limit(runs[0]):.0f} s"
            reason = f"{limit} and was taken for hung\n{worker.stack}".rstrip()
            lost.append(UnitFailed(runs[0].run, runs[0].worker, reason, "user"))
        elif runs and (failed := self._failures.failure(runs[0], worker_exit)) is not None:
            lost.append(failed)
        if joined:
            lost.append(WorkerLost(worker.name))
        elif before is WorkerState.REHEARSING:
            self._rehearsal.must_pass = False  # the config ended its worker: trials find out one by one
        elif before is WorkerState.STARTING:
            self._failures.failed_to_start(worker_exit)
        self.recruit()
        return events + (self.part_gang(runs[0], lost) if runs else lost)

    def _give_up(self, worker: WorkerHandle) -> list[Event]:
        """Continue without a worker that has stopped; if it resumes, it is killed and its messages are ignored."""
        limit = self._heartbeats.limit
        log.warning(
            "worker %s has sent no heartbeat for %g s: it is given up, and its runs go to another worker",
            worker.name,
            limit,
        )
        worker.kill()
        worker_exit = WorkerExit(f"sent no heartbeat for {limit:g} s", None, known=False)
        return self.exited(worker, worker_exit, WorkerEvent.HEARTBEAT_MISSED)

    def let_workers_leave(self) -> None:
        """End workers that are to leave, once they are idle and the store has the states that they hold.

        The engine must have heard that they leave: otherwise it may give them a run at the same time.
        """
        for worker in self.workers.values():
            leaves = worker.leaving and not worker.queue and worker.name not in self._quitting
            if leaves and self._tracker.release_worker(worker.name):
                self._quitting.add(worker.name)
                worker.send(Quit())

    # --- time -------------------------------------------------------------------------------------------

    def seconds_until_due(self) -> float:
        """Return the seconds until there is something to do besides waiting for messages."""
        due = [self._deadline(worker) for worker in self.workers.values() if worker.queue]
        due += [self._recruited + _RECRUITING, self._heartbeats.next_check]
        return max(0.0, min(due) - time.monotonic())

    def check_heartbeats(self) -> list[Event]:
        """Give up the workers that have stopped, when a check is due."""
        now = time.monotonic()
        if now < self._heartbeats.next_check:
            return []
        stopped = self._heartbeats.stopped(list(self.workers.values()), now)
        return [event for worker in stopped for event in self._give_up(worker)]

    def do_due_work(self) -> list[Event]:
        """Start missing workers, check heartbeats and end hung runs, each when it is due."""
        now = time.monotonic()
        if now >= self._recruited + _RECRUITING:
            self._recruited = now
            self.recruit()
        events = self.check_heartbeats()
        for worker in self.workers.values():
            if worker.queue and now >= self._deadline(worker):
                if worker.state is WorkerState.HUNG:
                    worker.kill()
                else:
                    worker.apply(WorkerEvent.TIME_LIMIT_EXCEEDED)
                    worker.send(DumpStack())
        return events

    def _deadline(self, worker: WorkerHandle) -> float:
        return self._limits.deadline(worker, self._runs.get(worker.queue[0]))
