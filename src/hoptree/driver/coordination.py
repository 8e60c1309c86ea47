"""Coordination with other drivers on the same store, so that two drivers do not train the same thing.

The coordinator sits between the drive loop and the backend. It claims a lineage before it passes a run of it on.
If another driver holds the claim, the engine gets an event that says so, and the run never starts. States that
other drivers want are saved to the store as soon as they are trained here, and the engine gets events for what
others have trained.

While no other driver uses the store, one claim covers a whole stage; otherwise it covers one epoch at a time and
is taken when that epoch starts. So a claim never waits for another driver: it covers only what is being trained,
or was trained and is claimed by nobody else (see docs/decisions/0014-claims-on-lineages.md).
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

_POLL_ALONE = 2.0  # seconds between two polls of the store
_POLL_SHARED = 0.25  # … while other drivers use it too


class SavingBackend(Backend, Protocol):
    """A backend that can save a state to the store on request."""

    def save(self, node: int, unit: int) -> bool:
        """Start saving a state in the background; return whether the save is under way."""
        ...


class _HeldClaim(msgspec.Struct):
    node: Node
    first: int
    until: int
    saving: set[str] = msgspec.field(
        default_factory=set
    )  # keys of states that others want and that are being saved


@final
class ClaimingBackend:
    """A backend that trains nothing that another driver trains; ``resumed``: the study was driven before."""

    def __init__(
        self, engine: Engine, claims: Claims, index: StateIndex, *, resumed: bool, now: float = 0.0
    ) -> None:
        self._engine = engine
        self._partitions = engine.settings.partitions
        self._claims = claims
        self._index = index
        self._backend: SavingBackend | None = None
        self._is_only_driver = True
        self._must_look_up = resumed  # whether others may have trained since trials were looked up in the store
        self._held_claims: dict[str, _HeldClaim] = {}  # by claim name
        self._wanted: dict[str, Sequence[WantedState]] = {}  # by claim name: what other studies want of it
        self._published: dict[str, tuple[dict[int, bool], bool]] = {}
        self._reserved: set[str] = set()  # keys of states that other drivers may save for this study
        self._blocked: dict[tuple[int, int], None] = {}  # places where a lineage waits for another driver
        self._rejected_runs: set[int] = set()  # runs that never started
        self._rejected_places: set[tuple[int, int]] = set()  # their places since the last wait
        self._pending_events: list[Event] = []
        self._now = now

    def wrap(self, backend: SavingBackend) -> ClaimingBackend:
        """Set the backend that actions go to, and return self."""
        self._backend = backend
        self._claims.clear()
        return self

    def poll_interval(self) -> float:
        """Return the seconds until the store should be polled again."""
        return _POLL_ALONE if self._is_only_driver and not self._blocked else _POLL_SHARED

    # --- the backend protocol ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the backend."""
        self._inner.start()

    def submit(self, action: Task) -> None:
        """Pass an action on, unless another driver trains what it is about."""
        match action:
            case RunUnit():
                if not self._try_claim(action):
                    return
            case CancelUnit(run, _) if run in self._rejected_runs:
                self._rejected_runs.discard(run)
                return
            case _:
                pass
        self._inner.submit(action)

    def wait(self, seconds: float | None = None) -> tuple[float, list[Event]]:
        """Return the events of rejected runs, or else wait for events of the backend."""
        self._rejected_places.clear()
        if self._pending_events:
            events, self._pending_events = self._pending_events, []
            return self._now, events
        self._now, events = self._inner.wait(seconds)
        return self._now, events

    def stop(self, *, failed: bool) -> None:
        """Stop the backend, and release all claims and unused reservations."""
        try:
            self._inner.stop(failed=failed)
        finally:
            self._claims.clear()
            kept = {state.key for node in self._engine.plan.nodes for state in node.states.values()}
            self._index.release_reserved(sorted(self._reserved - kept))

    @property
    def _inner(self) -> SavingBackend:
        assert self._backend is not None
        return self._backend

    # --- claiming ---------------------------------------------------------------------------------------

    def _try_claim(self, run: RunUnit) -> bool:
        """Claim what a run trains and return True; if it cannot be claimed, cancel the run and return False."""
        node, unit = self._engine.plan.nodes[run.node], run.unit
        if node.is_private:
            return True
        if (run.node, unit - 1) in self._rejected_places:  # it follows a run that never started
            self._rejected_places.add((run.node, unit))
            self._rejected_runs.add(run.run)
            return False
        held = self._held_claims.get(_claim_name(node))
        if held is not None and held.first <= unit < held.until:
            return True
        first = held.first if held is not None and held.until == unit else unit
        answer = self._claims.claim(_claim_name(node), first, unit, self._claim_end(node, unit))
        self._note_other_drivers(alone=answer.alone)
        if answer.taken_by:
            self._blocked[run.node, unit] = None
            return self._reject(run, [LineageTaken(run.node, unit)])
        saving = held.saving if held is not None else set()
        self._held_claims[_claim_name(node)] = _HeldClaim(node, first, answer.until, saving)
        self._wanted[_claim_name(node)] = answer.wants
        found = self._index.find(node, unit, self._partitions, deep=True) if self._must_look_up else []
        return self._reject(run, found) if found else True

    def _reject(self, run: RunUnit, events: Sequence[Event]) -> bool:
        self._rejected_places.add((run.node, run.unit))
        self._rejected_runs.add(run.run)
        self._pending_events += [UnitCancelled(run.run, run.worker), *events]
        return False

    def _claim_end(self, node: Node, unit: int) -> int:
        """Return where a claim ends: at the end of the stage for the only driver, else of the epoch."""
        end = self._epoch_end(unit)
        last = node.targets[-1] if node.targets and node.targets[-1] > unit else end
        return last if self._is_only_driver else min(last, end)

    def _epoch_end(self, unit: int) -> int:
        return (unit // self._partitions + 1) * self._partitions

    def _note_other_drivers(self, *, alone: bool) -> None:
        """Note whether other drivers use the store; when the first one appears, cut claims to what is running."""
        first_other, self._is_only_driver = self._is_only_driver and not alone, alone
        if not first_other:
            return
        self._must_look_up = True
        for held in self._held_claims.values():
            held.until = max((self._training_end(c) for c in self._active_lineages(held)), default=held.first)
        self._claims.shorten({lineage: (held.first, held.until) for lineage, held in self._held_claims.items()})

    def _training_end(self, active: ActiveLineage) -> int:
        return self._epoch_end(active.unit + len(active.runs) - 1) if active.runs else active.unit

    def _active_lineages(self, held: _HeldClaim) -> list[ActiveLineage]:
        """Return the active lineages that a claim covers."""
        return [c for c in held.node.active if held.first <= c.unit <= held.until]

    # --- polling the store -------------------------------------------------------------------------------

    def poll(self) -> list[Event]:
        """Publish what is trained and wanted here, and return events for what other drivers have trained."""
        self._note_other_drivers(alone=self._claims.alone())
        self._release_unused()
        if not self._is_only_driver:
            self._publish_wanted()
        return self._poll_blocked() if self._blocked else []

    def _release_unused(self) -> None:
        """Release claims on what is not trained here any more, or is idle while another driver waits for it."""
        if self._is_only_driver:
            self._wanted.clear()
        else:
            self._wanted = dict(self._claims.wanted(self._held_claims))
        unused = [lineage for lineage, held in self._held_claims.items() if self._can_release(lineage, held)]
        for lineage in unused:
            del self._held_claims[lineage]
        self._claims.release(unused)

    def _can_release(self, lineage: str, held: _HeldClaim) -> bool:
        held.saving = {key for key in held.saving if not self._index.holds(key)}
        if held.saving:
            return False
        active_lineages = self._active_lineages(held)
        if not active_lineages:
            return True
        idle = all(not c.runs and (c.status == "held" or c.unit % self._partitions == 0) for c in active_lineages)
        waiting = [want for want in self._wanted.get(lineage, ()) if want.waits]
        if not idle or not waiting:
            return False
        for active in active_lineages:
            if active.state is not None:
                self._save_for_others(active.state.node, active.state.unit, waiting, held)
        return not held.saving

    def _publish_wanted(self) -> None:
        """Publish which states this study wants, for the driver that trains them."""
        has_idle_workers = self._engine.workers.idle_count > 0
        blocked = {number for number, _ in self._blocked}
        wants: dict[str, tuple[dict[int, bool], bool]] = {}
        for node in self._engine.plan.nodes:
            if node.targets and not node.is_private:
                last = node.targets[-1]
                units = {s: s == last or needs_state(node, s, self._partitions) for s in node.targets}
                wants[_claim_name(node)] = units, has_idle_workers and node.id in blocked
                self._reserved.update(node.state_key(stop) for stop in node.targets)
        changed = {key: want for key, want in wants.items() if self._published.get(key) != want}
        removed = [lineage for lineage in self._published if lineage not in wants]
        if changed or removed:
            self._claims.want(changed, removed)
            self._published = wants

    def _poll_blocked(self) -> list[Event]:
        """Return events for blocked places: states and reports found, or that nobody trains them any more."""
        nodes = {number: self._engine.plan.nodes[number] for number, _ in self._blocked}
        claimed = self._claims.claimed({_claim_name(node) for node in nodes.values()})
        events: list[Event] = []
        for number, unit in list(self._blocked):
            node = nodes[number]
            others = [c for c in claimed.get(_claim_name(node), ()) if c.first <= unit < c.until]
            waits = any(c.unit == unit for c in node.active)
            found = self._index.find(node, unit, self._partitions) if waits else []
            if found:
                events += found
            elif not others or not waits:
                del self._blocked[number, unit]
                events.append(LineageFreed(number, unit))
        return events

    # --- saving states for other drivers ----------------------------------------------------------------

    def note(self, step: Step) -> None:
        """Save what others want of what this step trained: an observer that runs before the step's actions."""
        run = step.run
        match step.event:
            case UnitFinished():
                if isinstance(run, RunUnit) and not run.evaluate:
                    self._save_trained(run.node, run.unit + 1)
            case StateEvaluated():
                if run is not None:
                    self._save_trained(run.node, run.unit + isinstance(run, RunUnit))
            case UnitFailed(run=number) | UnitCancelled(run=number):
                self._rejected_runs.discard(number)
            case _:
                pass
        if self._wanted:
            for action in step.actions:
                if isinstance(action, DropState):
                    self._save_dropped(action.node, action.unit)

    def _save_trained(self, number: int, unit: int) -> None:
        node = self._engine.plan.nodes[number]
        wants = [] if node.is_private else self._wanted.get(_claim_name(node), ())
        self._save_for_others(
            node,
            unit,
            [want for want in wants if self._is_useful(want, node, unit)],
            self._held_claims.get(_claim_name(node)),
        )

    def _save_dropped(self, number: int, unit: int) -> None:
        """Save the deepest state of a lineage that stops here for studies that want to train it further."""
        node = self._engine.plan.nodes[number]
        if node.is_private or unit % self._partitions or any(at > unit for at in node.states):
            return
        wants = [want for want in self._wanted.get(_claim_name(node), ()) if max(want.units, default=0) > unit]
        self._save_for_others(node, unit, wants, self._held_claims.get(_claim_name(node)))

    def _is_useful(self, want: WantedState, node: Node, unit: int) -> bool:
        """Return whether a study needs this state: it reads reports of states evaluated here from the store."""
        if unit in want.units:
            return want.units[unit] or unit not in node.reports
        last = not node.targets or node.targets[-1] <= unit
        return last and unit % self._partitions == 0 and max(want.units, default=0) > unit

    def _save_for_others(
        self, node: Node, unit: int, wants: Iterable[WantedState], held: _HeldClaim | None
    ) -> None:
        key = node.state_key(unit)
        studies = [want.study for want in wants]
        if not studies:
            return
        for study in studies:
            self._index.reserve(key, study)
        if self._inner.save(node.id, unit) and held is not None:
            held.saving.add(key)


def _claim_name(node: Node) -> str:
    """Return the name under which a lineage is claimed; each variant of it is claimed separately."""
    return f"{node.key}/{node.tree}" if node.tree else node.key
