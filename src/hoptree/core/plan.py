"""The plan: the prefix tree of all lineages that all trials ask for, at unit granularity.

A node is a run of units with one set of forms, from a start on; children begin where values change. Nodes are
only ever added, and which nodes a trial passes does not depend on who came before it, so a place in the plan,
(node, unit), means the same for every trial and, by its key, in every study. States, reports and open requests
hang on those places. What has to be trained is not stored here but asked for: ``stages`` finds, for every open
request, the deepest stored state below it (algorithm 1 of the stage-tree paper).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias, final

import msgspec

from hoptree.core.actions import Ending
from hoptree.core.costs import CostFormula
from hoptree.core.errors import WorkloadError
from hoptree.core.events import Metrics
from hoptree.core.lineage import History, Values, digest, key, segments

Cost: TypeAlias = Callable[[Values], float]


@final
class State:
    """A stored state: where it stands in the plan, which worker made it, and what needs it."""

    __slots__ = ("home", "kept", "node", "order", "unit", "users")

    def __init__(self, node: Node, unit: int, home: str, order: int) -> None:
        self.node = node
        self.unit = unit
        self.home = home
        self.order = order  # strict: where the epoch's rotation began; free: bits of the partitions visited
        self.users = 0  # cursors, evaluations and finished trials that need it; the store, while it keeps it
        self.kept = False

    @property
    def key(self) -> str:
        """The name under which it is stored."""
        return self.node.state_key(self.unit)

    def __repr__(self) -> str:
        return f"state ({self.node.id}, {self.unit})"


@final
class Node:
    """A run of units that share one set of forms: the first is ``start``, the last is not fixed."""

    __slots__ = (
        "attempts", "best", "children", "cost", "counts", "cursors", "finals", "id", "key", "lane", "live", "lost",
        "parent", "reports", "requests", "rotation", "start", "states", "stops", "taken", "todo", "trained",
        "values", "waiters", "waiting",
    )  # fmt: skip

    def __init__(
        self, number: int, parent: Node | None, start: int, values: Values, name: str, lane: str = ""
    ) -> None:
        self.id = number
        self.parent = parent
        self.start = start
        self.values = values
        self.key = name
        self.lane = lane  # "": shared by all; else the trial that has a tree of its own
        self.cost = 1.0
        self.rotation = 0
        self.children: dict[tuple[int, Values], Node] = {}
        self.states: dict[int, State] = {}
        self.lost: dict[int, State] = {}  # gone, but runs under way began from them
        self.reports: dict[int, Metrics] = {}
        self.requests: dict[int, list[Trial]] = {}
        self.live = 0  # trials that pass here and have not ended
        self.finals: dict[int, list[Trial]] = {}  # trials that ended here, complete
        self.attempts: dict[tuple[str, int], int] = {}
        self.taken: set[int] = set()  # units from which another driver trains on
        # What is to be trained here; kept by demand.py.
        self.stops: list[int] = []
        self.counts: dict[int, int] = {}
        self.best: list[float] | None = []
        self.waiters: dict[int, list[Node]] = {}
        self.waiting = False
        self.todo = 0
        self.trained: dict[int, int] = {}  # by partition, the units that were trained
        self.cursors: list[Cursor] = []

    @property
    def origin(self) -> Node:
        """The node in which its lineages begin: its values and key are what the untrained model is built from."""
        node = self
        while node.start > 0 and node.parent is not None:
            node = node.parent
        return node

    def state_key(self, unit: int) -> str:
        """Return the name of the state after a unit: equal in every study, but for trials that share nothing."""
        return digest(self.key, unit, self.lane) if self.lane else digest(self.key, unit)

    def __repr__(self) -> str:
        return f"node {self.id}"


@final
class Cursor:
    """A lineage being trained: the state it stands at, and the run that takes it on, if one is under way."""

    __slots__ = ("held", "node", "order", "partition", "peak", "runs", "sequence", "stale", "state", "unit")

    def __init__(self, node: Node, unit: int, state: State | None) -> None:
        self.node = node
        self.unit = unit
        self.state = state  # None: the untrained model, at unit 0
        self.order = 0
        self.partition = -1
        self.peak = 0.0
        self.runs: list[Run] = []
        self.sequence = -1  # its place in the ready queue; -1: not ready
        self.held = False
        self.stale = False

    @property
    def available(self) -> bool:
        """Whether nothing stands between the cursor and the ready queue."""
        return not (self.stale or self.runs or self.held) and self.sequence < 0

    def __repr__(self) -> str:
        return f"cursor at {self.node} unit {self.unit}"


@final
class Run:
    """A unit or an evaluation that a worker has been given."""

    __slots__ = (
        "cancelled",
        "cursor",
        "evaluate",
        "evaluating",
        "node",
        "number",
        "partition",
        "state",
        "unit",
        "worker",
    )

    def __init__(self, number: int, worker: str, node: Node, unit: int, cursor: Cursor | None) -> None:
        self.number = number
        self.worker = worker
        self.node = node
        self.unit = unit
        self.cursor = cursor  # None: an evaluation alone
        self.partition = -1
        self.state: State | None = None
        self.evaluate = False
        self.evaluating = cursor is None
        self.cancelled = False


@final
class Trial:
    """One config that a study follows, with the budget it has been given so far."""

    __slots__ = (
        "alone", "barrier", "ending", "every", "final", "followed", "history", "number", "open", "pinned",
        "reached", "reason", "root", "study", "tree", "until", "wanting",
    )  # fmt: skip

    def __init__(self, number: int, history: History, root: str, study: str, every: int) -> None:
        self.number = number
        self.history = history
        self.root = root
        self.study = study
        self.every = every
        self.alone = False
        self.tree = number  # alone: the trial whose tree this is
        self.barrier = False
        self.until = 0
        self.followed = 0  # up to which epoch it counts as live in the nodes that it passes; 0 when it has ended
        self.reached = 0
        self.open: dict[int, tuple[Node, int]] = {}  # epochs whose report is due, and where
        self.wanting: set[int] = set()  # epochs among them whose state has to be trained
        self.final: Place | None = None  # where it ended, complete
        self.pinned: State | None = None
        self.ending: Ending | None = None
        self.reason = ""

    @property
    def epochs(self) -> int:
        """How far it was trained or is to be: what it was granted, or what it had reported when it was given up."""
        return self.reached if self.ending in ("stopped", "failed") else self.until

    @property
    def done(self) -> int:
        """How many epochs it has behind it: all, or as many as it has reported."""
        return self.until if self.ending == "complete" else self.reached

    @property
    def lane(self) -> str:
        """The tree in which it is trained: the one that all share, its own, or that of who it branched from."""
        return f"{self.study}/{self.tree}" if self.alone else ""

    def __repr__(self) -> str:
        return f"trial {self.number}"


class Place(NamedTuple):
    """The state after ``unit`` units of a lineage that ends in ``node``."""

    node: Node
    unit: int


class Stage(msgspec.Struct, frozen=True):
    """Units ``first`` to ``last`` (exclusive) of a node, to be trained in one go; ``after`` is the stage before."""

    node: int
    first: int
    last: int
    after: int | None


class Work(msgspec.Struct, frozen=True):
    """Units asked for one by one, and units that are left when equal ones are trained once."""

    asked: int
    unique: int

    @property
    def merge_rate(self) -> float:
        """Units asked for over unique units; 1.0 for no work."""
        return self.asked / self.unique if self.unique else 1.0


@final
class Plan:
    """All lineages; grows only."""

    def __init__(self, partitions: int, cost: Cost | None = None) -> None:
        if partitions < 1:
            raise WorkloadError(f"partitions: {partitions}; an epoch needs at least one partition")
        self.partitions = partitions
        self.nodes: list[Node] = []
        self.roots: dict[tuple[str, str], Node] = {}
        self._cost = cost
        self.formula: CostFormula | None = None  # what was learned; None: costs are as they were given

    def root(self, fingerprint: str, lane: str = "") -> Node:
        """Return where lineages from this fingerprint begin; a ``lane`` gives a trial a tree of its own.

        Keys, and so seeds and bits, are those of the shared tree; only its states have names of their own.
        """
        node = self.roots.get((fingerprint, lane))
        if node is None:
            node = Node(len(self.nodes), None, 0, Values(()), digest(fingerprint, self.partitions), lane)
            self.nodes.append(node)
            self.roots[fingerprint, lane] = node
        return node

    def places(self, phases: History, root: Node, epochs: Iterable[int]) -> list[Place]:
        """Return where a history stands after each of the (increasing) epochs, adding nodes as needed."""
        ends = [epoch * self.partitions for epoch in epochs]
        path = self.path(phases, root, ends[-1]) if ends else []
        starts = [node.start for node in path]
        return [Place(path[bisect_right(starts, end - 1) - 1], end) for end in ends]

    def path(self, phases: History, root: Node, units: int) -> list[Node]:
        """Return the nodes that the first ``units`` units of a history pass, adding what is missing."""
        node, path = root, []
        for start, values in segments(phases, self.partitions, units):
            child = node.children.get((start, values))
            if child is None:
                child = self._add(node, start, values)
            node = child
            path.append(node)
        return path

    def _add(self, parent: Node, start: int, values: Values) -> Node:
        node = Node(len(self.nodes), parent, start, values, key(parent.key, start, values), parent.lane)
        node.rotation = int(node.key[:8], 16) % self.partitions
        if self._cost is not None:
            node.cost = _priced(self._cost, values)
        self.nodes.append(node)
        parent.children[start, values] = node
        return node

    def learn(self, formula: CostFormula) -> None:
        """Price nodes to come by a formula; those that are there are the caller's to price anew."""
        if not 0 <= formula.least <= formula.most < float("inf"):
            raise WorkloadError(
                f"cost: from {formula.least!r} to {formula.most!r} by {formula}; expected a finite time >= 0"
            )
        self.formula = formula
        self._cost = formula.of

    def price(self, node: Node) -> float:
        """Return what a unit of a node costs by now; a root has none, and costs what it costs."""
        return node.cost if node.parent is None or self._cost is None else _priced(self._cost, node.values)

    def source(self, node: Node, unit: int) -> Place | None:
        """Return the deepest stored state at or before a place; None when it is the untrained model."""
        while True:
            stored = [at for at in node.states if at <= unit]
            if stored:
                return Place(node, max(stored))
            if node.parent is None or node.start == 0:
                return None
            unit = node.start
            node = node.parent

    def stages(self, open_requests: Iterable[Place]) -> list[Stage]:
        """Return what must be trained for the requests, cut where something is asked for or branches.

        Every request leads back to its deepest stored ancestor; the ends met on the way cut the stages.
        """
        cuts: dict[int, list[int]] = {}
        entered: dict[int, list[int]] = {}
        for node, unit in open_requests:
            self._trace(node, unit, cuts, entered)
        found: list[Stage] = []
        ending: dict[tuple[int, int], int] = {}
        for number in sorted(cuts, key=lambda n: (self.nodes[n].start, n)):
            node = self.nodes[number]
            begins = sorted(entered[number])
            for end in cuts[number]:
                before = [b for b in begins if b < end]
                earlier = [c for c in cuts[number] if c < end]
                first = max([*before, *(c for c in earlier if c >= max(before))])
                parent = node.parent.id if node.parent is not None and first == node.start else number
                found.append(Stage(number, first, end, ending.get((parent, first))))
                ending[number, end] = len(found) - 1
        return found

    def _trace(self, node: Node, unit: int, cuts: dict[int, list[int]], entered: dict[int, list[int]]) -> None:
        while True:
            if unit in node.states or node.parent is None or unit in cuts.get(node.id, ()):
                return
            insort(cuts.setdefault(node.id, []), unit)
            stored = [at for at in node.states if at < unit]
            begin = max(stored, default=node.start)
            if begin not in entered.setdefault(node.id, []):
                entered[node.id].append(begin)
            if stored:
                return
            unit, node = node.start, node.parent

    def way(self, trial: Trial, units: int) -> list[tuple[Node, int]]:
        """Return the nodes that a trial's first units pass, each with the unit at which it is left."""
        root = self.root(trial.root, trial.lane)
        path = self.path(trial.history, root, units)
        return list(zip(path, [*(node.start for node in path[1:]), units][: len(path)], strict=True))

    def work(self, trials: Iterable[Trial], *, done: bool = False) -> Work:
        """Return the units that trials ask for (or have done), and the units left after sharing among them."""
        asked = 0
        reach: dict[int, int] = {}
        for trial in trials:
            units = (trial.done if done else trial.epochs) * self.partitions
            asked += units
            for node, end in self.way(trial, units):
                reach[node.id] = max(reach.get(node.id, 0), end)
        return Work(asked, sum(end - self.nodes[number].start for number, end in reach.items()))

    @property
    def lineages(self) -> int:
        """How many lineages are being trained, or could be: as many workers would have something to do."""
        return sum(len(node.cursors) for node in self.nodes)

    def walk(self) -> Iterator[Node]:
        """Yield all nodes but the roots, in the order in which they came."""
        return (node for node in self.nodes if node.parent is not None)


def _priced(cost: Cost, values: Values) -> float:
    seconds = cost(values)
    if not 0 <= seconds < float("inf"):
        raise WorkloadError(f"cost: {seconds!r} for {values}; expected a finite time >= 0")
    return seconds
