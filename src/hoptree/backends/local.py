"""The local backend: warm worker processes on this machine, states hopping through shared memory."""

from __future__ import annotations

import logging
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never, final

from hoptree.backends.processes import Process, make_setup
from hoptree.backends.protocol import Task
from hoptree.backends.shelf import Books, Shelf, Spot, Stored
from hoptree.core.actions import CancelUnit, DropState, Evaluate, RunUnit
from hoptree.core.errors import HoptreeError, RefusedError
from hoptree.core.events import (
    Event,
    StateEvaluated,
    StateKept,
    StateLost,
    StateReleased,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
    WorkerDrained,
    WorkerJoined,
    WorkerLost,
)
from hoptree.core.lineage import seed_of, shuffle_seed
from hoptree.core.plan import Plan, State
from hoptree.store.errors import StoreFullError
from hoptree.worker.messages import (
    Command,
    Failed,
    Forget,
    Forgotten,
    FreeSlot,
    Full,
    Hello,
    Here,
    Judge,
    Judged,
    News,
    Origin,
    Refused,
    Rehearse,
    Rehearsed,
    Source,
    Train,
    Trained,
    Where,
)
from hoptree.worker.slots import find_states

if TYPE_CHECKING:
    from hoptree.core.schedules import Scalar
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

_CRASHES = 5  # workers in a row that die before they are ready
_AT_RISK = 60.0  # seconds of training that a loss of power may cost a lineage, but for the epoch under way
_HEARTBEAT = 2.0  # seconds between signs of life
_REHEARSAL = 60.0  # seconds to start and to try a config; what takes longer is found out while training
_LAST_WORDS = 3.0  # seconds in which a hung worker may say where it is
_SHORTEST_HANG = 600.0  # seconds: no unit is taken for hung before, unless the user says so
_LONGEST_RATIO = 20.0  # … nor before it has taken this many times as long as the longest so far

log = logging.getLogger("hoptree")


class DrainedError(HoptreeError):
    """The user asked to stop, and everything that ran has ended."""


@final
class LocalBackend:
    """Runs units in processes of their own; a worker that dies is replaced.

    ``slots`` are folders for states on the way, the fastest first; what an earlier driver left there is found
    again. ``rehearsal`` are configs to try before anything is trained, with the metrics that must come out.
    ``unit_limit`` are the seconds after which a unit is taken for hung. ``alive`` is called every few seconds, for
    signs of life and for events that come from elsewhere.
    """

    def __init__(
        self,
        trainer: Trainer,
        dataset: Dataset,
        states: StateStore,
        plan: Plan,
        *,
        workers: int,
        seed: int,
        slots: Sequence[Path],
        books: Books,
        begun: float = 0.0,
        rehearsal: tuple[Sequence[dict[str, Scalar]], Sequence[str]] | None = None,
        unit_limit: float | None = None,
        alive: Callable[[], Sequence[Event]] = lambda: (),
    ) -> None:
        self._trainer = trainer
        self._dataset = dataset
        self._states = states
        self._plan = plan
        self._workers = workers
        self._seed = seed
        self._slots = list(slots)
        self._books = books
        self._offset = begun - time.monotonic()
        self._rehearsal = rehearsal
        self._unit_limit = unit_limit
        self._alive = alive
        self._said = time.monotonic()
        self._processes: dict[str, Process] = {}
        self._session = secrets.token_hex(4)
        self._spawned = 0
        self._stillborn = 0
        self._longest = 0.0
        self._pickled = b""
        self._origins: dict[int, Origin] = {}
        self._runs: dict[int, RunUnit | Evaluate] = {}
        self._at_risk: dict[int, float] = {}  # by node: seconds of training since something was saved
        self._kept: dict[int, int] = {}  # by node: the unit after which its state is kept
        self._pending: list[Event] = []
        self._interrupts = 0
        self._draining = False
        self._old_handler: Any = None
        for folder in self._slots:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._left = find_states(self._slots)
        self._shelf = Shelf(states, books, self._free)
        self.bytes_hopped = 0
        self.state_bytes = 0
        self.units = 0

    # --- the backend's four calls -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; each joins when it is ready. Nothing is trained that fails in rehearsal."""
        self._pickled = send_off(self._trainer)
        if threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(signal.SIGINT, self._interrupted)
        for _ in range(self._workers):
            self._spawn()
        patience = time.monotonic() + _REHEARSAL
        while self._rehearsal is not None:
            if self._interrupts:
                raise DrainedError("stopped as asked, before anything was trained")
            self._pending += self._listen(max(0.0, patience - time.monotonic()))
            if time.monotonic() > patience:
                self._rehearsal = None
                for process in self._processes.values():
                    if process.rehearsing:
                        process.kill()

    def submit(self, action: Task) -> None:
        """Pass an action on to its worker."""
        match action:
            case RunUnit():
                self._give(action, self._train(action))
            case Evaluate():
                stored = self._shelf.find((action.node, action.unit))
                slot = stored.slot if stored is not None else ""
                self._give(action, Judge(action, self._origin(action.node), Source(action.key, slot)))
            case CancelUnit(run, worker):
                if worker in self._processes:
                    self._processes[worker].send(Forget(run))
            case DropState(node, unit):
                if self._shelf.find((node, unit)) is None:  # found in the store, and never brought here
                    self._books.dropped(self._plan.nodes[node].state_key(unit))
                self._shelf.drop((node, unit))
            case _:
                assert_never(action)

    def wait(self) -> tuple[float, list[Event]]:
        """Wait for news from any worker."""
        events, self._pending = self._pending, []
        while not events:
            if self._interrupts and not self._draining:
                self._draining = True
                events += [WorkerDrained(name) for name, process in self._processes.items() if process.ready]
            elif self._draining and not any(process.queue for process in self._processes.values()):
                raise DrainedError("stopped as asked; run again to go on")
            else:
                events += self._listen(self._pause())
                events += self._look_after()
        return time.monotonic() + self._offset, events

    def stop(self, *, failed: bool) -> None:
        """End all workers, and save what is to be saved; only a failure leaves the slots, for the next driver."""
        try:
            for process in self._processes.values():
                process.ask_to_end(at_once=bool(process.queue) or process.rehearsing or self._interrupts > 1)
            for process in self._processes.values():
                process.end()
            self._processes.clear()
            if self._interrupts == 1:
                self._shelf.save_all()
            self._shelf.close()
            remove_slots(self._slots, all_of_them=bool(self._interrupts) or not failed)
        finally:
            if self._old_handler is not None:
                signal.signal(signal.SIGINT, self._old_handler)
                self._old_handler = None

    # --- states -----------------------------------------------------------------------------------------

    def adopt(self, state: State) -> bool:
        """Know a state that an earlier run left in a slot or in the store; return whether it is there."""
        key = state.key
        slot = self._left.get(key, "")
        if not slot and key not in self._states:
            return False
        self._shelf.put((state.node.id, state.unit), Stored(key, slot, "", 0, saved=key in self._states))
        if state.kept:
            self._kept[state.node.id] = max(state.unit, self._kept.get(state.node.id, 0))
        return True

    def save(self, node: int, unit: int) -> None:
        """Have a state written to the store, behind; it is there when the backend has stopped."""
        self._shelf.save((node, unit), self._at_risk.get(node, 0.0))

    def _free(self, stored: Stored) -> None:
        if stored.owner in self._processes:
            self._processes[stored.owner].send(FreeSlot(stored.slot))
        elif stored.slot:
            Path(stored.slot).unlink(missing_ok=True)

    def _keep(self, action: RunUnit, seconds: float) -> list[Event]:
        """Have a state kept if a lineage has trained for long since something of it was saved."""
        node, unit = action.node, action.unit + 1
        parent = self._plan.nodes[node].parent
        before = self._at_risk.get(parent.id, 0.0) if parent is not None else 0.0
        self._at_risk[node] = self._at_risk.get(node, before) + seconds
        if unit % self._dataset.partitions or self._at_risk[node] < _AT_RISK:
            return []
        self._shelf.save((node, unit), self._at_risk[node])
        self._at_risk[node] = 0.0
        return [StateKept(node, unit)]

    def _saved(self) -> list[Event]:
        """Release the states whose place one that has been saved takes."""
        events: list[Event] = []
        for node, unit in self._shelf.saved():
            older = self._kept.get(node, 0)
            if older < unit:
                self._kept[node] = unit
                if older:
                    events.append(StateReleased(node, older))
        return events

    def _train(self, action: RunUnit) -> Train:
        source: Source | None = None
        if action.unit:
            stored = self._shelf.find((action.source, action.unit))
            if stored is None:  # to be made by the run ahead of it, on the same worker
                source = Source(self._plan.nodes[action.source].state_key(action.unit))
            else:
                source = Source(stored.key, stored.slot)
                if stored.owner != action.worker:
                    self.bytes_hopped += stored.size
        target = self._plan.nodes[action.node].state_key(action.unit + 1)
        shuffle = shuffle_seed(self._seed, action.epoch, action.partition)
        return Train(action, self._origin(action.node), source, target, shuffle)

    def _origin(self, number: int) -> Origin:
        found = self._origins.get(number)
        if found is None:
            origin = self._plan.nodes[number].origin
            found = self._origins[number] = Origin(origin.values.at(0.0), seed_of(origin.key, "build"))
        return found

    # --- workers ----------------------------------------------------------------------------------------

    def _give(self, action: RunUnit | Evaluate, command: Command) -> None:
        self._runs[action.run] = action
        process = self._processes.get(action.worker)
        if process is not None:
            if not process.queue:
                process.since = time.monotonic()
            process.queue.append(action.run)
            process.send(command)

    def _spawn(self) -> None:
        name = f"{self._session}-{self._spawned}"
        self._spawned += 1
        setup = make_setup(
            name, self._trainer.threads, self._pickled, self._dataset.path, self._states.folder, self._slots
        )
        self._processes[name] = Process(name, setup)

    def _listen(self, seconds: float) -> list[Event]:
        """Return what has come from workers and from the shelf, or nothing after some seconds."""
        sources: dict[Any, Process | None] = {process.channel: process for process in self._processes.values()}
        sources[self._shelf.doorbell] = None
        events: list[Event] = []
        for source in wait(list(sources), timeout=seconds):
            process = sources[source]
            events += self._saved() if process is None else self._news(process)
        return events

    def _news(self, process: Process) -> list[Event]:
        news = process.receive()
        return self._died(process) if news is None else self._take(process, news)

    def _take(self, process: Process, news: News) -> list[Event]:
        name = process.name
        match news:
            case Hello():
                self._stillborn = 0
                if self._rehearsal is None:
                    return self._join(process)
                process.rehearsing = True
                process.send(Rehearse(list(self._rehearsal[0])))
                return []
            case Refused(reason):
                raise RefusedError(f"trainer: a worker cannot load it:\n{reason}")
            case Rehearsed(metrics, reasons):
                process.rehearsing = False
                if self._rehearsal is not None:
                    self._check_rehearsal(self._rehearsal[1], metrics, reasons)
                    self._rehearsal = None
                return self._join(process)
            case Trained(run, slot, size, seconds):
                return self._trained(process, run, Stored("", slot, name, size), seconds)
            case Judged(run, metrics):
                self._over(process, run)
                return [StateEvaluated(run, name, metrics)]
            case Failed(run, reason, fault, lost):
                action = self._over(process, run)
                spot = _source(action) if lost else None
                if spot is not None:
                    self._shelf.lose(spot)
                gone: list[Event] = [] if spot is None else [StateLost(*spot)]
                return [*gone, UnitFailed(run, name, reason, fault)]
            case Full(reason):
                raise StoreFullError(f"{reason}; free some space and run again: nothing is lost but what ran")
            case Forgotten(run):
                self._over(process, run)
                return [UnitCancelled(run, name)]
            case Here(stack):
                process.stack = stack
                process.kill()
                return []
            case _:
                assert_never(news)

    def _join(self, process: Process) -> list[Event]:
        process.ready = True
        if self._draining:
            return []
        return [WorkerJoined(process.name, tuple(range(self._dataset.partitions)))]

    def _check_rehearsal(self, goals: Sequence[str], metrics: Sequence[str], reasons: Sequence[str]) -> None:
        if reasons:
            others = f"\n({len(reasons) - 1} other configs failed as well)" if len(reasons) > 1 else ""
            raise RefusedError(f"nothing was trained, since no config that was tried can be:\n{reasons[0]}{others}")
        if not metrics:
            raise RefusedError(
                f"data: there is no validation data to compute {goals[0]!r} on; build the dataset with valid=0.2"
            )
        names = ", ".join(metrics)
        for goal in goals:
            if goal not in metrics:
                raise RefusedError(f"{goal!r} is to be optimized, but the trainer reports {names} only")

    def _trained(self, process: Process, run: int, stored: Stored, seconds: float) -> list[Event]:
        action = self._runs[run]
        assert isinstance(action, RunUnit)
        stored.key = self._plan.nodes[action.node].state_key(action.unit + 1)
        self._shelf.put((action.node, action.unit + 1), stored)
        self.units += 1
        self._longest = max(self._longest, seconds)
        self.state_bytes = max(self.state_bytes, stored.size)
        process.since = time.monotonic()
        if not action.evaluate:
            self._over(process, run)
        return [UnitFinished(run, process.name), *self._keep(action, seconds)]

    def _over(self, process: Process, run: int) -> RunUnit | Evaluate | None:
        process.since = time.monotonic()
        if run in process.queue:
            process.queue.remove(run)
        return self._runs.pop(run, None)

    def _died(self, process: Process) -> list[Event]:
        """Replace a worker that is gone; what it ran was its doing unless somebody killed it from outside."""
        death = process.bury()
        del self._processes[process.name]
        events: list[Event] = []
        if process.queue and process.asked_where:
            reason = f"it ran for more than {self._limit():.0f} s and was taken for hung\n{process.stack}".rstrip()
            events.append(UnitFailed(process.queue[0], process.name, reason, "user"))
        elif process.queue:
            events.append(UnitFailed(process.queue[0], process.name, f"the worker {death}", death.fault))
        for run in process.queue:
            self._runs.pop(run, None)
        if process.ready:
            events.append(WorkerLost(process.name))
        elif process.rehearsing:
            self._rehearsal = None  # it took the worker down with it: that is found out trial by trial
        else:
            self._stillborn += 1
            if self._stillborn >= _CRASHES:
                raise HoptreeError(f"workers: {_CRASHES} in a row {death} before they were ready")
        if not self._draining:
            self._spawn()
        return events

    # --- time -------------------------------------------------------------------------------------------

    def _limit(self) -> float:
        """Return the seconds after which a unit is taken for hung."""
        if self._unit_limit is not None:
            return self._unit_limit
        return max(_SHORTEST_HANG, _LONGEST_RATIO * self._longest)

    def _deadline(self, process: Process) -> float:
        return process.since + self._limit() + (_LAST_WORDS if process.asked_where else 0.0)

    def _pause(self) -> float:
        """Return for how long nothing has to be looked after."""
        due = [self._deadline(process) for process in self._processes.values() if process.queue]
        return max(0.0, min([self._said + _HEARTBEAT, *due]) - time.monotonic())

    def _look_after(self) -> list[Event]:
        """Give a sign of life when it is due, and end what hangs."""
        now = time.monotonic()
        events: list[Event] = []
        if now >= self._said + _HEARTBEAT:
            self._said = now
            events += self._alive()
        for process in self._processes.values():
            if process.queue and now >= self._deadline(process):
                if process.asked_where:
                    process.kill()
                else:
                    process.asked_where = True
                    process.send(Where())
        return events

    def _interrupted(self, *_: object) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt
        self._shelf.ring()
        log.warning("stopping when the units that run are done; interrupt again to stop at once")


def remove_slots(folders: Sequence[Path], *, all_of_them: bool) -> None:
    """Remove the folders of slots, or only the empty ones."""
    for folder in folders:
        if all_of_them:
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()


def send_off(trainer: Trainer) -> bytes:
    """Return a trainer as it is sent to workers; refuse one that holds what cannot be."""
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(trainer)
    except Exception as error:
        raise RefusedError(
            f"trainer: it cannot be sent to a worker ({type(error).__name__}: {error}); its functions may use "
            "modules, constants and arrays, but no open files, locks, connections or generators: make those inside "
            "the function"
        ) from error
    return data


def _source(action: RunUnit | Evaluate | None) -> Spot | None:
    if isinstance(action, RunUnit):
        return action.source, action.unit
    return None if action is None else (action.node, action.unit)
