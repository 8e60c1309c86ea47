"""The pool backend: carries actions out on warm workers, whatever kind they are.

A *pool* says where workers come from, how they are spoken to and how states hop between them: processes on this
machine with slots in shared memory (``local.py``), actors on a Ray cluster with its object store (``ray_pool.py``).
All else is here once: rehearsing, giving units out, noticing deaths and hung units, saving behind, interrupts.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, assert_never, final

from hoptree.backends.heartbeats import LIMIT, Heartbeats
from hoptree.backends.protocol import Task
from hoptree.backends.rehearsals import Probed, RehearsalConfig, Rehearsals
from hoptree.backends.state_tracker import PlaceId, SaveLedger, StateLocation, StateTracker
from hoptree.backends.worker_handle import WorkerExit, WorkerHandle, WorkerPool
from hoptree.core.actions import CancelUnit, DropState, Evaluate, RunUnit, SaveState
from hoptree.core.errors import HoptreeError, RefusedError
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
    WorkerLost,
)
from hoptree.core.keys import shuffle_seed
from hoptree.identity.observation import Observations
from hoptree.identity.platform import differences
from hoptree.store.errors import StoreFullError
from hoptree.worker.messages import (
    CancelRun,
    DumpStack,
    EvaluateState,
    FirstUnitStarted,
    InputsObserved,
    PartitionsHeld,
    Quit,
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
    WorkerCommand,
    WorkerLeaving,
    WorkerMessage,
    WorkerReady,
)

if TYPE_CHECKING:
    from hoptree.core.schedules import Config
    from hoptree.store.states import StateStore

_CRASHES = 5  # workers in a row that die before they are ready
_DEADLY = 3  # workers that died or stopped at one unit, nobody knows why: the unit is the reason
_START_UP = 60.0  # seconds that a worker may need before its first unit begins: what its code needs is loaded
_BACKLOG = 8  # states that may wait to be saved before spare ones are let go
_RECRUITING = 2.0  # seconds between two looks at whether workers are missing
_TICK = 1.0  # seconds after which who looks on is shown that time passes, though nothing happens
_REHEARSAL = 60.0  # seconds that a worker has to start and to try a config; what takes longer is found out later
_SECOND = 20.0  # seconds in which a second worker starts that compares its bits with those of the first
_KINDS = 5.0  # … and then to try configs of other kinds
_MEETING = 10.0  # seconds after the first worker of several machines in which others say what their platform is
_LAST_WORDS = 3.0  # seconds in which a hung worker may say where it is
_SHORTEST_HANG = 600.0  # seconds: no unit is taken for hung before, unless the user says so
_LONGEST_RATIO = 20.0  # … nor before it has taken this many times as long as it may well take

log = logging.getLogger("hoptree")


@final
class PoolBackend:
    """Runs units on the workers of a pool; one that dies is replaced.

    ``rehearsal`` are configs to try before anything is trained, with the metrics that must come out; ``changing``
    are configs with schedules, of which the changes are tried. ``probed`` is called with the values and the probe
    of each config that has passed, before any event is returned.
    ``unit_limit`` are the seconds after which a unit is taken for hung; without it ``longest`` says what a run may
    well take at most, 0 if that is not known. ``heartbeat_limit`` are the seconds without a heartbeat after which a
    worker is given up. ``wanted`` says how many workers would have something to do: with 0, one that is gone is not
    replaced. ``tick`` is called about every second while workers start. ``observed`` is told what users' code has
    read in a worker, before the outcome of the run that read it; what it raises ends everything. With ``greets``
    start waits until a worker has said what its platform is, or all of several machines have.
    """

    def __init__(
        self,
        pool: WorkerPool,
        states: StateStore,
        *,
        seed: int,
        books: SaveLedger,
        begun: float = 0.0,
        rehearsal: tuple[Sequence[RehearsalConfig], Sequence[str]] | None = None,
        probed: Probed = lambda _values, _probe: None,
        changing: Sequence[Config] = (),
        unit_limit: float | None = None,
        heartbeat_limit: float = LIMIT,
        longest: Callable[[RunUnit | Evaluate], float] = lambda _: 0.0,
        tick: Callable[[], None] = lambda: None,
        wanted: Callable[[], int] = lambda: 1,
        observed: Callable[[Observations], None] = lambda _: None,
        greets: bool = False,
    ) -> None:
        self._pool = pool
        self._states = states
        self._seed = seed
        self._books = books
        self._offset = begun - time.monotonic()
        self._rehearsal = Rehearsals(*rehearsal, probed, changing) if rehearsal is not None else None
        self._to_pass = self._rehearsal is not None  # whether some config still has to
        self._starting = True
        self._kinds_until: tuple[str, float] | None = None  # who tries other kinds of configs, and until when
        self._unit_limit = unit_limit
        self._tick = tick
        self._wanted = wanted
        self._observed = observed
        self._greets = greets
        self._met_since: float | None = None  # when the first worker has said what its platform is
        self._kinds: list[dict[str, str]] | None = None  # platforms that may train; None: all
        self._recruited = time.monotonic()
        self._heartbeats = Heartbeats(heartbeat_limit, self._recruited)
        self._members: dict[str, WorkerHandle] = {}
        self._node_of: dict[str, str] = {}  # of all workers so far: what one made may outlive it
        self._stillborn = 0
        self._longest = longest
        self._first_guess = 0.0
        self._runs: dict[int, RunUnit | Evaluate] = {}
        self._deaths: Counter[tuple[int, int]] = Counter()  # of workers at a unit, nobody knows why
        self._pending: list[Event] = []
        self._woken = False
        self._shelf = StateTracker(states, books, pool)
        self._left = pool.left()
        self.bytes_hopped = 0
        self.bytes_between_nodes = 0
        self._made_bytes = 0
        self.units = 0
        self.made: dict[int, int] = {}  # by node, a bit for each unit that was trained

    # --- the backend's four calls -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; each joins when it is ready. Nothing is trained that fails in rehearsal."""
        while self._to_pass or any(map(self._is_waited_for, self._members.values())) or not self._has_met():
            self._recruit(1)
            self._pending += self._listen(_TICK)
            self._pending += self._hear_hearts()
            self._tick()
            self._end_long_rehearsals()
        self._starting = False

    def _is_waited_for(self, member: WorkerHandle) -> bool:
        """Return whether a worker rehearses, or is to be the second of its node that does, and starts just now."""
        if member.ready or member.rehearsing or self._rehearsal is None:
            return member.rehearsing
        return self._rehearsal.wants_second(member.node) and member.seconds_had() < _SECOND

    def _end_long_rehearsals(self) -> None:
        """End what takes too long to be waited for; it is not known then whether results are reproducible."""
        waited = [member for member in self._members.values() if member.seconds_had() > _REHEARSAL]
        if waited and self._to_pass:
            self._to_pass = False
            log.warning(
                "the rehearsal has not ended within %g s: whether configs can be trained, and give the same bits "
                "everywhere, is found out later; hoptree verify NAME compares the bits of a trial",
                _REHEARSAL,
            )
        if self._kinds_until is not None:
            name, until = self._kinds_until
            others = [each for each in self._members.values() if each.name == name and each.seconds_had() > until]
            if any(member.rehearsing for member in others):
                log.warning("the rehearsal of other kinds of configs has not ended within %g s", _KINDS)
            waited += others
        for member in waited:
            if member.rehearsing:
                member.kill()

    @property
    def platforms(self) -> list[tuple[str, dict[str, str]]]:
        """What changes bits, by worker, of those that have said so."""
        return [(m.name, m.platform) for m in self._members.values() if m.platform is not None]

    def admit(self, kinds: Sequence[dict[str, str]]) -> None:
        """Let only workers of some platforms train from now on; the others stay out."""
        self._kinds = list(kinds)
        out = {name for name, platform in self.platforms if platform not in kinds}
        self._pending = [e for e in self._pending if not (isinstance(e, WorkerJoined) and e.worker in out)]
        for name in out:
            self._members[name].ready = False

    def _has_met(self) -> bool:
        """Return whether it is known on what platforms the study is trained: that of the first, or of all."""
        met = [member.platform is not None for member in self._members.values()]
        if not self._greets or (any(met) and (self._pool.one_machine or all(met))):
            return True
        if any(met):
            self._met_since = self._met_since or time.monotonic()
            return time.monotonic() > self._met_since + _MEETING
        return False

    def submit(self, action: Task) -> None:
        """Pass an action on to its worker."""
        match action:
            case RunUnit():
                self._give(action, self._train(action))
            case Evaluate():
                stored = self._shelf.find((action.node, action.unit))
                slot = stored.slot if stored is not None else ""
                if stored is not None:
                    self._hop(stored, action.worker)
                self._give(action, EvaluateState(action, action.origin, StateSource(action.key, slot)))
            case CancelUnit(run, worker):
                if worker in self._members:
                    self._members[worker].send(CancelRun(run))
            case SaveState():
                self._save(action)
            case DropState(node, unit):
                if self._shelf.find((node, unit)) is None:  # found in the store, and never brought here
                    self._books.dropped(action.key)
                self._shelf.drop((node, unit))
            case _:
                assert_never(action)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Wait for news from any worker."""
        events, self._pending = self._pending, []
        until = float("inf") if seconds is None else time.monotonic() + seconds
        self._woken = False
        while not events and not self._woken:
            left = until - time.monotonic()
            events += self._listen(max(0.0, min(left, self._pause())))
            events += self._look_after()
            if left <= 0:
                break
        return time.monotonic() + self._offset, events

    def wake(self) -> None:
        """Let ``wait`` return soon."""
        self._woken = True
        self._shelf.ring()

    def stop(self, *, failed: bool) -> None:
        """End all workers, and save what is to be saved; what is not saved stays where the next driver finds it."""
        unsaved = True
        try:
            for member in self._members.values():
                if member.queue or member.rehearsing or failed:
                    member.kill()
            self._shelf.close()
            unsaved = failed
        finally:
            members = list(self._members.values())
            self._members.clear()
            self._pool.close(members, at_once=failed, failed=unsaved)

    @property
    def state_bytes(self) -> int:
        """The bytes of a state, on average over the units that were trained."""
        return round(self._made_bytes / self.units) if self.units else 0

    # --- states -----------------------------------------------------------------------------------------

    def adopt(self, node: int, unit: int, key: str) -> bool:
        """Know a state that an earlier run left in a slot or in the store; return whether it is there."""
        slot = self._left.get(key, "")
        if not slot and key not in self._states:
            return False
        self._shelf.put((node, unit), StateLocation(key, slot, "", 0, saved=key in self._states))
        return True

    def save(self, node: int, unit: int) -> bool:
        """Have a state written to the store, behind; return whether it is on its way there."""
        return self._shelf.save((node, unit))

    def _save(self, action: SaveState) -> None:
        """Have a state saved; a spare one only while there is time and room for it."""
        spot = action.node, action.unit
        stored = self._shelf.find(spot)
        if stored is None:
            return
        if not action.durable and (self._shelf.backlog >= _BACKLOG or not self._books.has_room(stored.size)):
            return
        on_its_way = self._shelf.save(spot, action.seconds, durable=action.durable)
        if action.durable and stored.saved and not on_its_way:  # it was in the store already
            self._pending.append(StateSaved(*spot))

    def _saved(self) -> list[Event]:
        """Say which states are in the store now, and which went before they were saved."""
        saved, gone = self._shelf.saved()
        return [*(StateLost(*spot) for spot in gone), *(StateSaved(*spot) for spot in saved)]

    def _train(self, action: RunUnit) -> TrainUnit:
        source: StateSource | None = None
        if action.unit:
            stored = self._shelf.find((action.source, action.unit))
            if stored is None:  # to be made by the run ahead of it, on the same worker
                source = StateSource(action.source_state or "")
            else:
                source = StateSource(stored.key, stored.slot)
                self._hop(stored, action.worker)
        shuffle = shuffle_seed(self._seed, action.epoch, action.partition)
        return TrainUnit(action, action.origin, source, action.target_state, shuffle)

    def _hop(self, stored: StateLocation, worker: str) -> None:
        """Count what moves to a worker that goes on from a state, or evaluates it."""
        if stored.owner != worker:
            self.bytes_hopped += stored.size
        if self._node_of.get(stored.owner) != self._node_of.get(worker):
            self.bytes_between_nodes += stored.size

    # --- workers ----------------------------------------------------------------------------------------

    def _give(self, action: RunUnit | Evaluate, command: WorkerCommand) -> None:
        self._runs[action.run] = action
        member = self._members.get(action.worker)
        if member is not None:
            if not member.queue:
                member.since = time.monotonic()
            member.queue.append(action.run)
            member.send(command)

    def _recruit(self, at_least: int = 0) -> None:
        """Start the workers that are missing, if they would have something to do."""
        wanted = max(at_least, self._wanted())
        for member in self._pool.recruit(self._members, wanted) if wanted else ():
            self._members[member.name] = member
            self._node_of[member.name] = member.node

    def _part(self) -> None:
        """Let workers end that are to leave, once nothing runs there and what lies there is in the store."""
        for member in self._members.values():
            if member.leaving and not member.queue and self._shelf.leave(member.name):
                member.send(Quit())

    def _listen(self, seconds: float) -> list[Event]:
        """Return what has come from workers and from the shelf, or nothing after some seconds."""
        ready = wait([self._shelf.doorbell, *self._pool.sources()], timeout=seconds)
        events: list[Event] = []
        if self._shelf.doorbell in ready:
            events += self._saved()
        for member, news in self._pool.news(ready):
            if member.name in self._members:
                events += self._died(member, member.reap()) if news is None else self._take(member, news)
        return events

    def _take(self, member: WorkerHandle, news: WorkerMessage) -> list[Event]:
        name = member.name
        match news:
            case WorkerReady(partitions=partitions, platform=platform):
                self._stillborn = 0
                member.partitions, member.platform = partitions, platform
                if self._rehearsal is None or not (self._to_pass or self._compares(member)):
                    return self._join(member)
                member.rehearsing = True
                member.send(self._rehearsal.first())
                return []
            case FirstUnitStarted():
                member.warm = True
                member.since = time.monotonic()
                return []
            case PartitionsHeld(partitions):
                member.partitions = partitions
                return self._join(member) if member.ready else []
            case WorkerLeaving():
                member.leaving = True
                return [WorkerDrained(name)] if member.ready else []
            case SetupRefused(reason):
                raise RefusedError(reason)
            case RehearsalResult():
                return self._rehearsed(member, news)
            case InputsObserved(observations):
                self._observed(observations)
                return []
            case UnitTrained(run, slot, size, seconds):
                return self._trained(member, run, StateLocation("", slot, name, size), seconds)
            case StateMetrics(run, metrics, seconds):
                if self._over(member, run) is None:
                    return []
                return [StateEvaluated(run, name, metrics, seconds)]
            case RunFailed(run, reason, fault, lost):
                action = self._over(member, run)
                if action is None:
                    return []
                spot = _source(action) if lost else None
                if spot is not None and self._shelf.has_copy(spot):
                    spot = None  # tried again, from the store
                if spot is not None:
                    self._shelf.lose(spot)
                gone: list[Event] = [] if spot is None else [StateLost(*spot)]
                return [*gone, UnitFailed(run, name, reason, fault)]
            case StorageFull(reason):
                raise StoreFullError(f"{reason}; free some space and run again: nothing is lost but what ran")
            case RunCancelled(run):
                self._over(member, run)
                return [UnitCancelled(run, name)]
            case Stack(stack):
                member.stack = stack
                member.kill()
                return []
            case _:
                assert_never(news)

    def _compares(self, member: WorkerHandle) -> bool:
        return self._starting and self._rehearsal is not None and self._rehearsal.wants_second(member.node)

    def _rehearsed(self, member: WorkerHandle, found: RehearsalResult) -> list[Event]:
        """Take an answer in; who has passed first goes on with other kinds of configs, the others join."""
        assert self._rehearsal is not None
        member.warm = True
        if self._to_pass:
            self._rehearsal.check(found)
            self._first_guess = found.seconds
        self._rehearsal.compare(member.node, found)
        others = self._rehearsal.other_kinds(found) if self._to_pass else None
        self._to_pass = False
        if others is not None:
            self._kinds_until = member.name, member.seconds_had() + _KINDS
            member.send(others)
            return []
        member.rehearsing = False
        return self._join(member)

    def _join(self, member: WorkerHandle) -> list[Event]:
        if self._kinds is not None and member.platform not in self._kinds:
            if not member.left_out:
                differ = "; ".join(differences(self._kinds[0], member.platform or {}))
                log.warning("worker %s is left out, since it would train other bits: %s", member.name, differ)
            member.left_out = True
            return []
        member.ready = True
        return [WorkerJoined(member.name, member.partitions)]

    def _trained(self, member: WorkerHandle, run: int, stored: StateLocation, seconds: float) -> list[Event]:
        action = self._runs.get(run)
        if not isinstance(action, RunUnit) or run not in member.queue:  # nobody waits for that any more
            self._pool.free(stored)
            return []
        stored.key = action.target_state
        self._shelf.put((action.node, action.unit + 1), stored)
        self.units += 1
        self.made[action.node] = self.made.get(action.node, 0) | 1 << action.unit
        self._made_bytes += stored.size
        member.since = time.monotonic()
        member.warm = True
        if not action.evaluate:
            self._over(member, run)
        return [UnitFinished(run, member.name, seconds, stored.size)]

    def _over(self, member: WorkerHandle, run: int) -> RunUnit | Evaluate | None:
        """Note that a run of a worker has ended; None if the worker was not given it, or it has ended before."""
        if run not in member.queue:
            return None
        member.since = time.monotonic()
        member.queue.remove(run)
        return self._runs.pop(run, None)

    def _give_up(self, member: WorkerHandle) -> list[Event]:
        """Go on without a worker that has stopped; if it comes back, it ends, and nobody hears what it says."""
        log.warning(
            "worker %s has given no sign of life for %g s: it is given up, and what it ran goes to another one",
            member.name,
            self._heartbeats.limit,
        )
        member.kill()
        member.asked_where = False  # what hangs beats on
        how = f"gave no sign of life for {self._heartbeats.limit:g} s"
        return self._died(member, WorkerExit(how, None, known=False))

    def _died(self, member: WorkerHandle, death: WorkerExit) -> list[Event]:
        """Replace a worker that is gone; what it ran was its doing unless somebody killed it from outside."""
        del self._members[member.name]
        events: list[Event] = []
        fault = death.fault
        if member.queue and member.asked_where:
            limit = f"it ran for more than {self._limit(member):.0f} s"
            reason = f"{limit} and was taken for hung\n{member.stack}".rstrip()
            events.append(UnitFailed(member.queue[0], member.name, reason, "user"))
        elif member.queue:
            reason = f"the worker {death.how}"
            if not death.known and self._deadly(self._runs[member.queue[0]]):
                fault = "user"
                reason += f", as did {_DEADLY - 1} others before it at this unit"
            if fault is not None:
                events.append(UnitFailed(member.queue[0], member.name, reason, fault))
        for run in member.queue:
            self._runs.pop(run, None)
        if member.ready:
            events.append(WorkerLost(member.name))
        elif member.rehearsing:
            self._to_pass = False  # it took the worker down with it: that is found out trial by trial
        elif fault is not None or not death.known:
            self._stillborn += 1
            if self._stillborn >= _CRASHES:
                raise HoptreeError(f"workers: {_CRASHES} in a row {death.how} before they were ready")
        self._recruit()
        return events

    def _deadly(self, action: RunUnit | Evaluate) -> bool:
        """Return whether workers have died at this unit so often that it must be its doing."""
        self._deaths[action.node, action.unit] += 1
        return self._deaths[action.node, action.unit] >= _DEADLY

    # --- time -------------------------------------------------------------------------------------------

    def _limit(self, member: WorkerHandle) -> float:
        """Return the seconds after which what a worker is busy with is taken for hung."""
        if self._unit_limit is not None:
            return self._unit_limit
        action = self._runs.get(member.queue[0])
        expected = self._longest(action) if action is not None else 0.0
        return max(_SHORTEST_HANG, _LONGEST_RATIO * (expected or self._first_guess))

    def _deadline(self, member: WorkerHandle) -> float:
        start_up = 0.0 if member.warm else _START_UP
        return member.since + start_up + self._limit(member) + (_LAST_WORDS if member.asked_where else 0.0)

    def _pause(self) -> float:
        """Return for how long nothing has to be looked after."""
        due = [self._deadline(member) for member in self._members.values() if member.queue]
        due += [self._recruited + _RECRUITING, self._heartbeats.next_look]
        return max(0.0, min(due) - time.monotonic())

    def _hear_hearts(self) -> list[Event]:
        """Give up the workers that have stopped, when it is time to look."""
        now = time.monotonic()
        if now < self._heartbeats.next_look:
            return []
        stopped = self._heartbeats.stopped(list(self._members.values()), now)
        return [event for member in stopped for event in self._give_up(member)]

    def _look_after(self) -> list[Event]:
        """Bring the workers up to number when it is time, and end what hangs."""
        now = time.monotonic()
        events: list[Event] = []
        if now >= self._recruited + _RECRUITING:
            self._recruited = now
            self._recruit()
            self._part()
        events += self._hear_hearts()
        for member in self._members.values():
            if member.queue and now >= self._deadline(member):
                if member.asked_where:
                    member.kill()
                else:
                    member.asked_where = True
                    member.send(DumpStack())
        return events


def _source(action: RunUnit | Evaluate | None) -> PlaceId | None:
    if isinstance(action, RunUnit):
        return action.source, action.unit
    return None if action is None else (action.node, action.unit)
