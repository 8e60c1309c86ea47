"""Company: other drivers on the same store, and how two of them do not train the same thing.

It stands between the drive loop and the backend. A run of a lineage that is not claimed yet is claimed before it is
passed on; if another driver has claimed it, the engine is told so, and the run never begins. What others want of a
lineage that is trained here is left in the store when it is made, and what others have made is told to the engine.

While nobody else uses the store, a stage is claimed in one go; in company, an epoch at a time, when it begins. So a
claim covers what is being trained, or what was and is in nobody else's hands, and never waits for another driver
(see docs/decisions/0014-claims-on-lineages.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, final

import msgspec

from hoptree.backends.protocol import Backend, Task
from hoptree.core.actions import CancelUnit, DropState, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import (
    Event,
    LineageFreed,
    LineageTaken,
    StateEvaluated,
    UnitCancelled,
    UnitFailed,
    UnitFinished,
)
from hoptree.core.plan import ActiveLineage, Node
from hoptree.core.steps import Step
from hoptree.driver.state_reuse import StateIndex, needs_state

if TYPE_CHECKING:
    from hoptree.store.claims import Claims, WantedState

_ALONE = 2.0  # seconds between two looks at the store
_TOGETHER = 0.25  # … while others use it too


class SavingBackend(Backend, Protocol):
    """A backend that can leave a state in the store."""

    def save(self, node: int, unit: int) -> bool:
        """Have a state written to the store, behind; return whether it is on its way there."""
        ...


class _Claimed(msgspec.Struct):
    node: Node
    first: int
    until: int
    saving: set[str] = msgspec.field(default_factory=set)  # states that others want, on their way to the store


@final
class ClaimingBackend:
    """A backend that trains nothing which another driver trains; ``resumed``: the study was driven before."""

    def __init__(
        self, engine: Engine, claims: Claims, library: StateIndex, *, resumed: bool, now: float = 0.0
    ) -> None:
        self._engine = engine
        self._partitions = engine.settings.partitions
        self._claims = claims
        self._library = library
        self._backend: SavingBackend | None = None
        self._alone = True
        self._look = resumed  # whether others may have trained since what trials ask for was looked up
        self._own: dict[str, _Claimed] = {}  # by lineage and variant
        self._wanted: dict[str, Sequence[WantedState]] = {}  # by lineage: what others want of what is claimed here
        self._published: dict[str, tuple[dict[int, bool], bool]] = {}
        self._hoped: set[str] = set()  # states that others may keep for this study
        self._held: dict[tuple[int, int], None] = {}  # places where a cursor waits for another driver
        self._refused: set[int] = set()  # runs that never began
        self._refusing: set[tuple[int, int]] = set()  # where, since the last wait
        self._pending: list[Event] = []
        self._now = now

    def around(self, backend: SavingBackend) -> ClaimingBackend:
        """Stand before a backend, and return itself."""
        self._backend = backend
        self._claims.clear()
        return self

    def pulse(self) -> float:
        """Return how many seconds may pass until the next look at the store."""
        return _ALONE if self._alone and not self._held else _TOGETHER

    # --- the backend's four calls -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the backend."""
        self._inner.start()

    def submit(self, action: Task) -> None:
        """Pass an action on, unless it is about something that another driver trains."""
        match action:
            case RunUnit():
                if not self._may_run(action):
                    return
            case CancelUnit(run, _) if run in self._refused:
                self._refused.discard(run)
                return
            case _:
                pass
        self._inner.submit(action)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Return what was refused, or wait for news."""
        self._refusing.clear()
        if self._pending:
            events, self._pending = self._pending, []
            return self._now, events
        self._now, events = self._inner.wait(seconds)
        return self._now, events

    def stop(self, *, failed: bool) -> None:
        """Stop the backend, and leave everything to others."""
        try:
            self._inner.stop(failed=failed)
        finally:
            self._claims.clear()
            kept = {state.key for node in self._engine.plan.nodes for state in node.states.values()}
            self._library.renounce(sorted(self._hoped - kept))

    @property
    def _inner(self) -> SavingBackend:
        assert self._backend is not None
        return self._backend

    # --- claiming ---------------------------------------------------------------------------------------

    def _may_run(self, run: RunUnit) -> bool:
        """Claim what a run trains; if that cannot be, take the run back."""
        node, unit = self._engine.plan.nodes[run.node], run.unit
        if node.is_private:
            return True
        if (run.node, unit - 1) in self._refusing:  # it was to follow a run that never began
            self._refusing.add((run.node, unit))
            self._refused.add(run.run)
            return False
        own = self._own.get(_claimed(node))
        if own is not None and own.first <= unit < own.until:
            return True
        first = own.first if own is not None and own.until == unit else unit
        answer = self._claims.claim(_claimed(node), first, unit, self._reach(node, unit))
        self._meet(alone=answer.alone)
        if answer.taken_by:
            self._held[run.node, unit] = None
            return self._refuse(run, [LineageTaken(run.node, unit)])
        saving = own.saving if own is not None else set()
        self._own[_claimed(node)] = _Claimed(node, first, answer.until, saving)
        self._wanted[_claimed(node)] = answer.wants
        news = self._library.find(node, unit, self._partitions, deep=True) if self._look else []
        return self._refuse(run, news) if news else True

    def _refuse(self, run: RunUnit, why: Sequence[Event]) -> bool:
        self._refusing.add((run.node, run.unit))
        self._refused.add(run.run)
        self._pending += [UnitCancelled(run.run, run.worker), *why]
        return False

    def _reach(self, node: Node, unit: int) -> int:
        """Return up to where a claim goes: to the end of the stage if nobody minds, else of the epoch."""
        end = self._epoch_end(unit)
        last = node.stops[-1] if node.stops and node.stops[-1] > unit else end
        return last if self._alone else min(last, end)

    def _epoch_end(self, unit: int) -> int:
        return (unit // self._partitions + 1) * self._partitions

    def _meet(self, *, alone: bool) -> None:
        """Take in whether others use the store; who comes first finds the claims cut to what is under way."""
        came, self._alone = self._alone and not alone, alone
        if not came:
            return
        self._look = True
        for own in self._own.values():
            own.until = max((self._end(c) for c in self._standing(own)), default=own.first)
        self._claims.shorten({lineage: (own.first, own.until) for lineage, own in self._own.items()})

    def _end(self, cursor: ActiveLineage) -> int:
        return self._epoch_end(cursor.unit + len(cursor.runs) - 1) if cursor.runs else cursor.unit

    def _standing(self, own: _Claimed) -> list[ActiveLineage]:
        """Return the cursors that a claim is there for."""
        return [c for c in own.node.active if own.first <= c.unit <= own.until]

    # --- looking around ---------------------------------------------------------------------------------

    def look_around(self) -> list[Event]:
        """Say what is trained and wanted here, and return what has come of what others train."""
        self._meet(alone=self._claims.alone())
        self._tidy()
        if not self._alone:
            self._publish()
        return self._news() if self._held else []

    def _tidy(self) -> None:
        """Release what is not trained here any more, or waits while another driver has nothing to do."""
        if self._alone:
            self._wanted.clear()
        else:
            self._wanted = dict(self._claims.wanted(self._own))
        gone = [lineage for lineage, own in self._own.items() if self._is_over(lineage, own)]
        for lineage in gone:
            del self._own[lineage]
        self._claims.release(gone)

    def _is_over(self, lineage: str, own: _Claimed) -> bool:
        own.saving = {key for key in own.saving if not self._library.holds(key)}
        if own.saving:
            return False
        standing = self._standing(own)
        if not standing:
            return True
        idle = all(not c.runs and (c.status == "held" or c.unit % self._partitions == 0) for c in standing)
        waiting = [want for want in self._wanted.get(lineage, ()) if want.waits]
        if not idle or not waiting:
            return False
        for cursor in standing:
            if cursor.state is not None:
                self._leave(cursor.state.node, cursor.state.unit, waiting, own)
        return not own.saving

    def _publish(self) -> None:
        """Say what is wanted here, for whoever trains it."""
        hungry = self._engine.workers.idle_count > 0
        held = {number for number, _ in self._held}
        wants: dict[str, tuple[dict[int, bool], bool]] = {}
        for node in self._engine.plan.nodes:
            if node.stops and not node.is_private:
                last = node.stops[-1]
                units = {s: s == last or needs_state(node, s, self._partitions) for s in node.stops}
                wants[_claimed(node)] = units, hungry and node.id in held
                self._hoped.update(node.state_key(stop) for stop in node.stops)
        changed = {key: want for key, want in wants.items() if self._published.get(key) != want}
        gone = [lineage for lineage in self._published if lineage not in wants]
        if changed or gone:
            self._claims.want(changed, gone)
            self._published = wants

    def _news(self) -> list[Event]:
        """Return what has come of what is waited for: states and reports, or that nobody trains it any more."""
        nodes = {number: self._engine.plan.nodes[number] for number, _ in self._held}
        claimed = self._claims.claimed({_claimed(node) for node in nodes.values()})
        events: list[Event] = []
        for number, unit in list(self._held):
            node = nodes[number]
            others = [c for c in claimed.get(_claimed(node), ()) if c.first <= unit < c.until]
            waits = any(c.unit == unit for c in node.active)
            news = self._library.find(node, unit, self._partitions, patient=bool(others)) if waits else []
            if news:
                events += news
            elif not others or not waits:
                del self._held[number, unit]
                events.append(LineageFreed(number, unit))
        return events

    # --- leaving states to others -----------------------------------------------------------------------

    def note(self, step: Step) -> None:
        """See what has been made, and have saved what others want: a watch, before actions are carried out."""
        run = step.run
        match step.event:
            case UnitFinished():
                if isinstance(run, RunUnit) and not run.evaluate:
                    self._made(run.node, run.unit + 1)
            case StateEvaluated():
                if run is not None:
                    self._made(run.node, run.unit + isinstance(run, RunUnit))
            case UnitFailed(run=number) | UnitCancelled(run=number):
                self._refused.discard(number)
            case _:
                pass
        if self._wanted:
            for action in step.actions:
                if isinstance(action, DropState):
                    self._given_up(action.node, action.unit)

    def _made(self, number: int, unit: int) -> None:
        node = self._engine.plan.nodes[number]
        wants = [] if node.is_private else self._wanted.get(_claimed(node), ())
        self._leave(
            node, unit, [want for want in wants if self._serves(want, node, unit)], self._own.get(_claimed(node))
        )

    def _given_up(self, number: int, unit: int) -> None:
        """Leave the deepest state of a lineage that is trained no further here to those who want to go on."""
        node = self._engine.plan.nodes[number]
        if node.is_private or unit % self._partitions or any(at > unit for at in node.states):
            return
        wants = [want for want in self._wanted.get(_claimed(node), ()) if max(want.units, default=0) > unit]
        self._leave(node, unit, wants, self._own.get(_claimed(node)))

    def _serves(self, want: WantedState, node: Node, unit: int) -> bool:
        """Return whether a state is of use to somebody: its report is told anyway if it was evaluated here."""
        if unit in want.units:
            return want.units[unit] or unit not in node.reports
        last = not node.stops or node.stops[-1] <= unit
        return last and unit % self._partitions == 0 and max(want.units, default=0) > unit

    def _leave(self, node: Node, unit: int, wants: Iterable[WantedState], own: _Claimed | None) -> None:
        key = node.state_key(unit)
        studies = [want.study for want in wants]
        if not studies:
            return
        for study in studies:
            self._library.promise(key, study)
        if self._inner.save(node.id, unit) and own is not None:
            own.saving.add(key)


def _claimed(node: Node) -> str:
    """Return the name under which a lineage is claimed: under another variant it is another thing to train."""
    return f"{node.key}/{node.tree}" if node.tree else node.key
