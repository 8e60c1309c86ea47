"""The pool backend: carries actions out on warm workers, whatever kind they are.

A *pool* says where workers come from, how they are spoken to and how states hop between them: processes on this
machine with slots in shared memory (``local.py``), actors on a Ray cluster with its object store (``ray_pool.py``).
All else is here once: rehearsing, giving units out, noticing deaths and hung units, saving behind, interrupts.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, assert_never, final

from hoptree.backends.member import Member, Pool
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
    Full,
    Hello,
    Here,
    Holding,
    Judge,
    Judged,
    Leaving,
    News,
    Origin,
    Quit,
    Refused,
    Rehearse,
    Rehearsed,
    Source,
    Train,
    Trained,
    Where,
)

if TYPE_CHECKING:
    from hoptree.core.schedules import Scalar
    from hoptree.store.states import StateStore

_CRASHES = 5  # workers in a row that die before they are ready
_DEADLY = 3  # workers that died at one unit, nobody knows why: the unit is the reason
_AT_RISK = 60.0  # seconds of training that a loss of power may cost a lineage, but for the epoch under way
_WORTH = 20.0  # times as long as writing it a spare state must have taken to train
_FILE, _DISK = 5e-4, 1e9  # seconds for a file, and bytes per second: what writing takes, roughly
_BACKLOG = 8  # states that may wait to be saved before spare ones are let go
HEARTBEAT = 2.0  # seconds between signs of life
_TICK = 1.0  # seconds after which who looks on is shown that time passes, though nothing happens
_REHEARSAL = 60.0  # seconds to start and to try a config; what takes longer is found out while training
_LAST_WORDS = 3.0  # seconds in which a hung worker may say where it is
_SHORTEST_HANG = 600.0  # seconds: no unit is taken for hung before, unless the user says so
_LONGEST_RATIO = 20.0  # … nor before it has taken this many times as long as it may well take

log = logging.getLogger("hoptree")


class DrainedError(HoptreeError):
    """The user asked to stop, and everything that ran has ended."""


@final
class PoolBackend:
    """Runs units on the workers of a pool; one that dies is replaced.

    ``rehearsal`` are configs to try before anything is trained, with the metrics that must come out.
    ``unit_limit`` are the seconds after which a unit is taken for hung; without it ``longest`` says what a run may
    well take at most, 0 if that is not known. ``alive`` is called every ``pulse`` seconds, for signs of life and
    for events that come from elsewhere, and ``tick`` about every second in which nothing happens. With
    ``save_every`` a lineage's state is saved every so many epochs, not only when much would be lost. With
    ``spares`` the ends of epochs are saved when nobody needs them any more, for studies to come.
    """

    def __init__(
        self,
        pool: Pool,
        states: StateStore,
        plan: Plan,
        *,
        seed: int,
        books: Books,
        begun: float = 0.0,
        rehearsal: tuple[Sequence[dict[str, Scalar]], Sequence[str]] | None = None,
        unit_limit: float | None = None,
        longest: Callable[[RunUnit | Evaluate], float] = lambda _: 0.0,
        alive: Callable[[], Sequence[Event]] = lambda: (),
        tick: Callable[[], None] = lambda: None,
        pulse: Callable[[], float] = lambda: HEARTBEAT,
        save_every: int = 0,
        spares: bool = False,
    ) -> None:
        self._pool = pool
        self._spares = spares
        self._states = states
        self._plan = plan
        self._seed = seed
        self._books = books
        self._offset = begun - time.monotonic()
        self._rehearsal = rehearsal
        self._unit_limit = unit_limit
        self._alive = alive
        self._tick = tick
        self._pulse = pulse
        self._save_every = save_every
        self._said = self._recruited = time.monotonic()
        self._members: dict[str, Member] = {}
        self._node_of: dict[str, str] = {}  # of all workers so far: what one made may outlive it
        self._stillborn = 0
        self._longest = longest
        self._first_guess = 0.0
        self._origins: dict[int, Origin] = {}
        self._runs: dict[int, RunUnit | Evaluate] = {}
        self._deaths: Counter[tuple[int, int]] = Counter()  # of workers at a unit, nobody knows why
        self._at_risk: dict[int, float] = {}  # by node: seconds of training since something was saved
        self._unsaved: dict[int, float] = {}  # by node: seconds of training since the last state that is on disk
        self._kept: dict[int, int] = {}  # by node: the unit after which its state is kept
        self._pending: list[Event] = []
        self._interrupts = 0
        self._draining = False
        self._old_handler: Any = None
        self._shelf = Shelf(states, books, pool)
        self._left = pool.left()
        self.bytes_hopped = 0
        self.bytes_between_nodes = 0
        self._made_bytes = 0
        self.units = 0
        self.made: dict[int, int] = {}  # by node, a bit for each unit that was trained

    # --- the backend's four calls -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the workers; each joins when it is ready. Nothing is trained that fails in rehearsal."""
        if threading.current_thread() is threading.main_thread():
            self._old_handler = signal.signal(signal.SIGINT, self._interrupted)
        patience = float("inf")
        while self._rehearsal is not None:
            if self._interrupts:
                raise DrainedError("stopped as asked, before anything was trained")
            self._recruit()
            if self._members:
                patience = min(patience, time.monotonic() + _REHEARSAL)
            self._pending += self._listen(_TICK)
            self._tick()
            if time.monotonic() > patience:
                self._rehearsal = None
                for member in self._members.values():
                    if member.rehearsing:
                        member.kill()

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
                self._give(action, Judge(action, self._origin(action.node), Source(action.key, slot)))
            case CancelUnit(run, worker):
                if worker in self._members:
                    self._members[worker].send(Forget(run))
            case DropState(node, unit):
                if self._shelf.find((node, unit)) is None:  # found in the store, and never brought here
                    self._books.dropped(self._plan.nodes[node].state_key(unit))
                self._spare(node, unit)
                self._shelf.drop((node, unit))
            case _:
                assert_never(action)

    def wait(self) -> tuple[float, list[Event]]:
        """Wait for news from any worker."""
        events, self._pending = self._pending, []
        while not events:
            if self._interrupts and not self._draining:
                self._draining = True
                events += [WorkerDrained(name) for name, member in self._members.items() if member.ready]
            elif self._draining and not any(member.queue for member in self._members.values()):
                raise DrainedError("stopped as asked; run again to go on")
            else:
                events += self._listen(min(_TICK, self._pause()))
                events += self._look_after()
                if not events:
                    self._tick()
        return time.monotonic() + self._offset, events

    def stop(self, *, failed: bool) -> None:
        """End all workers, and save what is to be saved; only a failure leaves what the next driver could find."""
        try:
            for member in self._members.values():
                if member.queue or member.rehearsing or self._interrupts > 1:
                    member.kill()
            if self._interrupts == 1:
                self._shelf.save_all()
            self._shelf.close()
        finally:
            members = list(self._members.values())
            self._members.clear()
            self._pool.close(members, at_once=self._interrupts > 1, failed=failed and not self._interrupts)
            if self._old_handler is not None:
                signal.signal(signal.SIGINT, self._old_handler)
                self._old_handler = None

    @property
    def state_bytes(self) -> int:
        """The bytes of a state, on average over the units that were trained."""
        return round(self._made_bytes / self.units) if self.units else 0

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

    def save(self, node: int, unit: int) -> bool:
        """Have a state written to the store, behind; return whether it is on its way there."""
        return self._shelf.save((node, unit), self._at_risk.get(node, 0.0))

    def _keep(self, action: RunUnit, seconds: float) -> list[Event]:
        """Have a state kept if it is time: as often as the user says, or after long training."""
        node, unit = action.node, action.unit + 1
        parent = self._plan.nodes[node].parent
        before = self._at_risk.get(parent.id, 0.0) if parent is not None else 0.0
        self._at_risk[node] = self._at_risk.get(node, before) + seconds
        self._unsaved[node] = self._unsaved.get(node, 0.0) + seconds
        epoch, inside = divmod(unit, self._plan.partitions)
        due = bool(self._save_every) and epoch % self._save_every == 0
        if inside or not (due or self._at_risk[node] >= _AT_RISK):
            return []
        self._shelf.save((node, unit), self._at_risk[node])
        self._at_risk[node] = 0.0
        return [StateKept(node, unit)]

    def _spare(self, node: int, unit: int) -> None:
        """Have a state saved on its way out, for a study that comes later, if that is cheap beside training it.

        Only ends of epochs are asked for by others, and only what is shared is found by them.
        """
        trained = self._unsaved.get(node, 0.0)
        if not self._spares or unit % self._plan.partitions or self._plan.nodes[node].lane:
            return
        stored = self._shelf.find((node, unit))
        if stored is None or self._shelf.backlog >= _BACKLOG:
            return
        if trained >= _WORTH * (_FILE + stored.size / _DISK) and self._books.has_room(stored.size):
            self._shelf.save((node, unit), trained, durable=False)
            self._unsaved[node] = 0.0

    def _saved(self) -> list[Event]:
        """Release the states whose place one that has been saved takes; say which went before they were saved."""
        saved, gone = self._shelf.saved()
        events: list[Event] = [StateLost(*spot) for spot in gone]
        for node, unit in saved:
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
                self._hop(stored, action.worker)
        target = self._plan.nodes[action.node].state_key(action.unit + 1)
        shuffle = shuffle_seed(self._seed, action.epoch, action.partition)
        return Train(action, self._origin(action.node), source, target, shuffle)

    def _hop(self, stored: Stored, worker: str) -> None:
        """Count what moves to a worker that goes on from a state, or evaluates it."""
        if stored.owner != worker:
            self.bytes_hopped += stored.size
        if self._node_of.get(stored.owner) != self._node_of.get(worker):
            self.bytes_between_nodes += stored.size

    def _origin(self, number: int) -> Origin:
        found = self._origins.get(number)
        if found is None:
            origin = self._plan.nodes[number].origin
            found = self._origins[number] = Origin(origin.values.at(0.0), seed_of(origin.key, "build"))
        return found

    # --- workers ----------------------------------------------------------------------------------------

    def _give(self, action: RunUnit | Evaluate, command: Command) -> None:
        self._runs[action.run] = action
        member = self._members.get(action.worker)
        if member is not None:
            if not member.queue:
                member.since = time.monotonic()
            member.queue.append(action.run)
            member.send(command)

    def _recruit(self) -> None:
        for member in self._pool.recruit(self._members, self._plan.lineages):
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
                events += self._died(member) if news is None else self._take(member, news)
        return events

    def _take(self, member: Member, news: News) -> list[Event]:
        name = member.name
        match news:
            case Hello(partitions=partitions):
                self._stillborn = 0
                member.partitions = partitions
                if self._rehearsal is None:
                    return self._join(member)
                member.rehearsing = True
                member.send(Rehearse(list(self._rehearsal[0])))
                return []
            case Holding(partitions):
                member.partitions = partitions
                return self._join(member) if member.ready else []
            case Leaving():
                member.leaving = True
                return [WorkerDrained(name)] if member.ready else []
            case Refused(reason):
                raise RefusedError(reason)
            case Rehearsed():
                member.rehearsing = False
                self._first_guess = news.seconds
                if self._rehearsal is not None:
                    check_rehearsal(self._rehearsal[1], news)
                    self._rehearsal = None
                return self._join(member)
            case Trained(run, slot, size, seconds):
                return self._trained(member, run, Stored("", slot, name, size), seconds)
            case Judged(run, metrics, seconds):
                self._over(member, run)
                return [StateEvaluated(run, name, metrics, seconds)]
            case Failed(run, reason, fault, lost):
                action = self._over(member, run)
                spot = _source(action) if lost else None
                if spot is not None and self._shelf.has_copy(spot):
                    spot = None  # tried again, from the store
                if spot is not None:
                    self._shelf.lose(spot)
                gone: list[Event] = [] if spot is None else [StateLost(*spot)]
                return [*gone, UnitFailed(run, name, reason, fault)]
            case Full(reason):
                raise StoreFullError(f"{reason}; free some space and run again: nothing is lost but what ran")
            case Forgotten(run):
                self._over(member, run)
                return [UnitCancelled(run, name)]
            case Here(stack):
                member.stack = stack
                member.kill()
                return []
            case _:
                assert_never(news)

    def _join(self, member: Member) -> list[Event]:
        member.ready = True
        if self._draining:
            return []
        return [WorkerJoined(member.name, member.partitions)]

    def _trained(self, member: Member, run: int, stored: Stored, seconds: float) -> list[Event]:
        action = self._runs[run]
        assert isinstance(action, RunUnit)
        stored.key = self._plan.nodes[action.node].state_key(action.unit + 1)
        self._shelf.put((action.node, action.unit + 1), stored)
        self.units += 1
        self.made[action.node] = self.made.get(action.node, 0) | 1 << action.unit
        self._made_bytes += stored.size
        member.since = time.monotonic()
        if not action.evaluate:
            self._over(member, run)
        return [UnitFinished(run, member.name, seconds), *self._keep(action, seconds)]

    def _over(self, member: Member, run: int) -> RunUnit | Evaluate | None:
        member.since = time.monotonic()
        if run in member.queue:
            member.queue.remove(run)
        return self._runs.pop(run, None)

    def _died(self, member: Member) -> list[Event]:
        """Replace a worker that is gone; what it ran was its doing unless somebody killed it from outside."""
        death = member.bury()
        del self._members[member.name]
        events: list[Event] = []
        fault = death.fault
        if member.queue and member.asked_where:
            limit = f"it ran for more than {self._limit(member):.0f} s"
            reason = f"{limit} and was taken for hung\n{member.stack}".rstrip()
            events.append(UnitFailed(member.queue[0], member.name, reason, "user"))
        elif member.queue:
            if not death.known and self._deadly(self._runs[member.queue[0]]):
                fault = "user"
            if fault is not None:
                events.append(UnitFailed(member.queue[0], member.name, f"the worker {death.how}", fault))
        for run in member.queue:
            self._runs.pop(run, None)
        if member.ready:
            events.append(WorkerLost(member.name))
        elif member.rehearsing:
            self._rehearsal = None  # it took the worker down with it: that is found out trial by trial
        elif fault is not None or not death.known:
            self._stillborn += 1
            if self._stillborn >= _CRASHES:
                raise HoptreeError(f"workers: {_CRASHES} in a row {death.how} before they were ready")
        if not self._draining:
            self._recruit()
        return events

    def _deadly(self, action: RunUnit | Evaluate) -> bool:
        """Return whether workers have died at this unit so often that it must be its doing."""
        self._deaths[action.node, action.unit] += 1
        return self._deaths[action.node, action.unit] >= _DEADLY

    # --- time -------------------------------------------------------------------------------------------

    def _limit(self, member: Member) -> float:
        """Return the seconds after which what a worker is busy with is taken for hung."""
        if self._unit_limit is not None:
            return self._unit_limit
        action = self._runs.get(member.queue[0])
        expected = self._longest(action) if action is not None else 0.0
        return max(_SHORTEST_HANG, _LONGEST_RATIO * (expected or self._first_guess))

    def _deadline(self, member: Member) -> float:
        return member.since + self._limit(member) + (_LAST_WORDS if member.asked_where else 0.0)

    def _pause(self) -> float:
        """Return for how long nothing has to be looked after."""
        due = [self._deadline(member) for member in self._members.values() if member.queue]
        return max(0.0, min([self._said + self._pulse(), self._recruited + HEARTBEAT, *due]) - time.monotonic())

    def _look_after(self) -> list[Event]:
        """Give a sign of life when it is due, and end what hangs."""
        now = time.monotonic()
        events: list[Event] = []
        if now >= self._said + self._pulse():
            self._said = now
            events += self._alive()
        if now >= self._recruited + HEARTBEAT:
            self._recruited = now
            if not self._draining:
                self._recruit()
                self._part()
        for member in self._members.values():
            if member.queue and now >= self._deadline(member):
                if member.asked_where:
                    member.kill()
                else:
                    member.asked_where = True
                    member.send(Where())
        return events

    def _interrupted(self, *_: object) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt
        self._shelf.ring()
        log.warning("stopping when the units that run are done; interrupt again to stop at once")


def check_rehearsal(goals: Sequence[str], found: Rehearsed) -> None:
    """Refuse what no config can be trained with, or what would not be reported; warn of what is varied in vain."""
    metrics, reasons = found.metrics, found.reasons
    if found.unread:
        log.warning(
            "space: nothing asks for %s, and no option of the optimizer has that name: it only gives trials other "
            "random numbers; is it misspelt?",
            ", ".join(map(repr, found.unread)),
        )
    if reasons:
        more = len(reasons) - 1
        others = f"\n({more} other config{'s' if more > 1 else ''} failed as well)" if more else ""
        raise RefusedError(f"nothing was trained, since no config that was tried can be:\n{reasons[0]}{others}")
    if not metrics:
        raise RefusedError(
            f"data: there is no validation data to compute {goals[0]!r} on; build the dataset with valid=0.2"
        )
    names = ", ".join(metrics)
    for goal in goals:
        if goal not in metrics:
            close = get_close_matches(goal, metrics, 1)
            meant = f" (was {close[0]!r} meant?)" if close else ""
            raise RefusedError(
                f"{goal!r} is to be optimized, but the trainer reports {names} only{meant}; give one of these as "
                "maximize= or minimize=, or add it to the trainer's metrics="
            )


def _source(action: RunUnit | Evaluate | None) -> Spot | None:
    if isinstance(action, RunUnit):
        return action.source, action.unit
    return None if action is None else (action.node, action.unit)
