"""What the plan consists of: nodes with their stored states, the lineages being trained in them, and their runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from hoptree.core.actions import Origin
from hoptree.core.events import Metrics
from hoptree.core.keys import build_seed, state_key
from hoptree.core.layouts import SINGLE
from hoptree.core.lineage import Values
from hoptree.core.transitions import (
    ACTIVE_LINEAGE,
    RUN,
    LineageEvent,
    LineageStatus,
    RunEvent,
    RunStatus,
    wrong_transition,
)

if TYPE_CHECKING:
    from hoptree.core.trial import Trial


@final
class State:
    """A stored state: its place in the plan, the worker that made it, and how many users need it."""

    __slots__ = ("home", "kept", "node", "order", "saved", "size", "unit", "users")

    def __init__(self, node: Node, unit: int, home: str, order: int = 0, size: int = 0) -> None:
        self.node = node
        self.unit = unit
        self.home = home
        self.order = order  # in free order: bits of the partitions that its epoch has visited
        self.size = size  # bytes; 0 if unknown
        self.users = 0  # active lineages, evaluations and complete trials that need it; 1 more while ``kept``
        self.kept = False  # whether the store keeps it to resume from
        self.saved = False  # whether it is known to be in the store

    @property
    def key(self) -> str:
        """The key under which it is stored."""
        return self.node.state_key(self.unit)

    def __repr__(self) -> str:
        return f"state ({self.node.id}, {self.unit})"


@final
class Node:
    """Consecutive units whose values have the same forms, from unit ``start`` on; the last unit is not fixed."""

    __slots__ = (
        "_origin",
        "active",
        "attempts",
        "best",
        "children",
        "cost",
        "counts",
        "finals",
        "first",
        "id",
        "key",
        "live",
        "lost",
        "parent",
        "reports",
        "requests",
        "rotation",
        "standing",
        "start",
        "states",
        "taken",
        "targets",
        "todo",
        "trained",
        "tree",
        "values",
        "waiters",
        "waiting",
    )  # fmt: skip

    def __init__(
        self, number: int, parent: Node | None, start: int, values: Values, name: str, tree: str = ""
    ) -> None:
        self.id = number
        self.parent = parent
        self.start = start
        self.values = values
        self.key = name
        self.tree = tree  # the variant, and the trial if it shares nothing; part of the keys of states
        self.cost = 1.0
        self.rotation = 0
        self._origin: Origin | None = None
        self.children: dict[tuple[int, Values], Node] = {}
        self.states: dict[int, State] = {}
        self.lost: dict[int, State] = {}  # lost states from which runs under way started
        self.reports: dict[int, Metrics] = {}
        self.requests: dict[int, list[Trial]] = {}
        self.live = 0  # trials that pass here and have not ended
        self.first = -1  # the first trial that passed here; -1: none yet
        self.standing = -1  # that trial's
        self.finals: dict[int, list[Trial]] = {}  # complete trials, by the unit after which they ended
        self.attempts: dict[tuple[str, int], int] = {}
        self.taken: set[int] = set()  # units from which another driver is training
        # What has to be trained here; maintained by open_work.py.
        self.targets: list[int] = []
        self.counts: dict[int, int] = {}
        self.best: list[float] | None = []
        self.waiters: dict[int, list[Node]] = {}
        self.waiting = False
        self.todo = 0
        self.trained: dict[int, int] = {}  # number of trained units, by partition
        self.active: list[ActiveLineage] = []

    @property
    def origin(self) -> Node:
        """The node in which its lineages begin; the untrained model is built from its values and key."""
        node = self
        while node.start > 0 and node.parent is not None:
            node = node.parent
        return node

    @property
    def built_from(self) -> Origin:
        """The values and seed from which the untrained model of its lineages is built."""
        if self._origin is None:
            first = self.origin
            if first is self:
                self._origin = Origin(self.values.at(0.0), build_seed(self.key))
            else:
                self._origin = first.built_from
        return self._origin

    @property
    def is_private(self) -> bool:
        """Whether it belongs to a trial that shares nothing."""
        return "/" in self.tree

    def state_key(self, unit: int) -> str:
        """Return the key of the state after a unit: the same in every study, unless the trial shares nothing."""
        return state_key(self.key, unit, self.tree)

    def __repr__(self) -> str:
        return f"node {self.id}"


@final
class ActiveLineage:
    """A lineage being trained: the state it has reached, and the runs that train its next units.

    ``status`` changes through the table ``ACTIVE_LINEAGE`` only.
    """

    __slots__ = ("node", "order", "partition", "peak", "runs", "sequence", "state", "status", "unit")

    def __init__(self, node: Node, unit: int, state: State | None) -> None:
        self.node = node
        self.unit = unit
        self.state = state  # None: the untrained model, at unit 0
        self.order = 0  # strict: where its epoch's rotation begins; free: bits of the visited partitions
        self.partition = -1  # of its next unit
        self.peak = 0.0  # end of its longest path, counted from the start of the node
        self.runs: list[Run] = []
        self.sequence = -1  # its number in the ready queue; -1: not ready
        self.status: LineageStatus = "idle"

    def change(self, event: LineageEvent) -> None:
        """Change the status by an event, or raise TransitionError if the table does not allow it."""
        target = ACTIVE_LINEAGE[self.status].get(event)
        if target is None:
            raise wrong_transition(self, "active lineage", self.status, event)
        self.status = target

    def end_run(self, run: Run) -> None:
        """Remove a run that has ended."""
        self.runs.remove(run)
        if not self.runs:
            self.change("end last run")

    def end_runs(self, first: int = 0) -> None:
        """Remove the runs from position ``first`` on."""
        del self.runs[first:]
        if not self.runs:
            self.change("end last run")

    def __repr__(self) -> str:
        return f"lineage at {self.node} unit {self.unit}"


@final
class Run:
    """A unit or an evaluation that was assigned to a worker; ``status`` changes through the table ``RUN`` only."""

    __slots__ = (
        "began",
        "crew",
        "evaluate",
        "layout",
        "lineage",
        "node",
        "number",
        "partition",
        "state",
        "status",
        "unit",
        "worker",
    )

    def __init__(self, number: int, worker: str, node: Node, unit: int, lineage: ActiveLineage | None) -> None:
        self.number = number
        self.worker = worker
        self.node = node
        self.unit = unit
        self.lineage = lineage  # None: it evaluates a stored state
        self.partition = -1
        self.state: State | None = None
        self.crew: tuple[str, ...] = ()  # workers that train the unit together with this one
        self.layout = SINGLE  # the name of how they hold the model
        self.began = 0.0  # when it was assigned
        self.evaluate = False  # whether the state is evaluated right after the unit
        self.status: RunStatus = "evaluating" if lineage is None else "training"

    @property
    def evaluating(self) -> bool:
        """Whether it computes metrics; its unit, if it has one, is trained."""
        return self.status == "evaluating"

    def change(self, event: RunEvent) -> None:
        """Change the status by an event, or raise TransitionError if the table does not allow it."""
        target = RUN[self.status].get(event)
        if target is None:
            raise wrong_transition(self, "run", self.status, event)
        self.status = target

    def __repr__(self) -> str:
        return f"run {self.number} of {self.worker}"


class Place(NamedTuple):
    """The state after ``unit`` units of a lineage that ends in ``node``."""

    node: Node
    unit: int
