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

from hoptree.core.actions import Ending, Origin
from hoptree.core.costs import CostFormula
from hoptree.core.errors import WorkloadError
from hoptree.core.events import Asker, Metrics
from hoptree.core.keys import build_seed, lineage_key, root_key, rotation, state_key
from hoptree.core.lineage import History, Values, segments
from hoptree.core.settings import Order

Cost: TypeAlias = Callable[[Values], float]


@final
class State:
    """A stored state: where it stands in the plan, which worker made it, and what needs it."""

    __slots__ = ("home", "kept", "node", "order", "saved", "size", "unit", "users")

    def __init__(self, node: Node, unit: int, home: str, order: int = 0, size: int = 0) -> None:
        self.node = node
        self.unit = unit
        self.home = home
        self.order = order  # in free order: bits of the partitions that its epoch has visited
        self.size = size  # bytes; 0 if unknown
        self.users = 0  # cursors, evaluations and finished trials that need it; the store, while it keeps it
        self.kept = False
        self.saved = False  # whether it is known to be in the store

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
        "_origin", "attempts", "best", "children", "cost", "counts", "cursors", "finals", "first", "id", "key",
        "lane", "live", "lost", "parent", "reports", "requests", "rotation", "start", "states", "stops", "taken",
        "todo", "trained", "values", "waiters", "waiting",
    )  # fmt: skip

    def __init__(
        self, number: int, parent: Node | None, start: int, values: Values, name: str, lane: str = ""
    ) -> None:
        self.id = number
        self.parent = parent
        self.start = start
        self.values = values
        self.key = name
        self.lane = lane  # the tree that it belongs to, by variant and by the trial that shares nothing
        self.cost = 1.0
        self.rotation = 0
        self._origin: Origin | None = None
        self.children: dict[tuple[int, Values], Node] = {}
        self.states: dict[int, State] = {}
        self.lost: dict[int, State] = {}  # gone, but runs under way began from them
        self.reports: dict[int, Metrics] = {}
        self.requests: dict[int, list[Trial]] = {}
        self.live = 0  # trials that pass here and have not ended
        self.first = -1  # the trial that passed here first; -1: none yet
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
        self.cursors: list[ActiveLineage] = []

    @property
    def origin(self) -> Node:
        """The node in which its lineages begin: its values and key are what the untrained model is built from."""
        node = self
        while node.start > 0 and node.parent is not None:
            node = node.parent
        return node

    @property
    def built_from(self) -> Origin:
        """What the untrained model of its lineages is built from."""
        if self._origin is None:
            first = self.origin
            if first is self:
                self._origin = Origin(self.values.at(0.0), build_seed(self.key))
            else:
                self._origin = first.built_from
        return self._origin

    @property
    def is_private(self) -> bool:
        """Whether it belongs to the tree of a trial that shares nothing."""
        return "/" in self.lane

    def state_key(self, unit: int) -> str:
        """Return the name of the state after a unit: equal in every study, but for trials that share nothing."""
        return state_key(self.key, unit, self.lane)

    def __repr__(self) -> str:
        return f"node {self.id}"


@final
class ActiveLineage:
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

    def __init__(self, number: int, worker: str, node: Node, unit: int, cursor: ActiveLineage | None) -> None:
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
        "alone", "asked_by", "barrier", "curve", "earlier", "ending", "every", "final", "followed", "history",
        "lost_state", "number", "onward", "open", "owed", "pinned", "reached", "reason", "retries", "root", "study",
        "tree", "until", "variant", "wanting",
    )  # fmt: skip

    def __init__(self, number: int, history: History, root: str, study: str, every: int) -> None:
        self.number = number
        self.history = history
        self.root = root
        self.variant = ""
        self.onward: tuple[str, str] | None = None  # root and variant under which it would go on; None: its own
        self.earlier: tuple[EarlierHistory, ...] = ()  # the trees that it was in before, oldest first
        self.study = study
        self.every = every
        self.asked_by: Asker | None = None
        self.alone = False
        self.tree = number  # alone: the trial whose tree this is
        self.barrier = False
        self.until = 0
        self.followed = 0  # up to which epoch it counts as live in the nodes that it passes; 0 when it has ended
        self.reached = 0
        self.open: dict[int, Place] = {}  # epochs whose report is due, and where
        self.wanting: set[int] = set()  # epochs among them whose state has to be trained
        self.curve: dict[int, Metrics] = {}  # what it was told, by epoch
        self.final: Place | None = None  # where it ended, complete
        self.lost_state = False  # whether the state that it ended with was lost, and has not been made again
        self.pinned: State | None = None
        self.ending: Ending | None = None
        self.reason = ""
        self.owed: tuple[int, ...] = ()  # failed: epochs whose report was still due
        self.retries = 0  # how often it was trained again after it had failed

    @property
    def epochs(self) -> int:
        """How far it was trained or is to be: what it was granted, or what it had reported when it was given up."""
        return self.reached if self.ending in ("stopped", "failed") else self.until

    @property
    def done(self) -> int:
        """How many epochs it has behind it: all, or as many as it has reported."""
        return self.until if self.ending == "complete" else self.reached

    def tell(self, epoch: int, metrics: Metrics) -> None:
        """Note a report; one that was asked for later may lie before others."""
        del self.open[epoch]
        self.reached = max(self.reached, epoch)
        last = next(reversed(self.curve), 0)
        self.curve[epoch] = metrics
        if epoch < last:
            self.curve = dict(sorted(self.curve.items()))

    def end_at(self, place: Place | None) -> None:
        """Note where it has ended, complete; None: it has not, or not so."""
        if self.final is not None:
            node, unit = self.final
            node.finals[unit].remove(self)
            if not node.finals[unit]:
                del node.finals[unit]
        self.final, self.lost_state = place, False
        if place is not None:
            place.node.finals.setdefault(place.unit, []).append(self)

    def owe(self, until: int) -> None:
        """Note epochs that it was granted after it had failed: it owes them if it is retried."""
        self.owed = tuple(sorted({*self.owed, *due_epochs(self, until)}))
        self.until = max(self.until, until)

    def retry(self) -> list[int]:
        """Let it go on after it has failed, and return the epochs that it owes."""
        due, self.owed = list(self.owed), ()
        self.ending, self.reason = None, ""
        self.retries += 1
        return due

    @property
    def lane(self) -> str:
        """The tree in which it is trained: the one that all share, its own, or that of who it branched from."""
        return self.lane_of(self.variant)

    def lane_of(self, variant: str) -> str:
        """Return the tree in which it would be trained under a variant; only private ones have a slash."""
        if not self.alone:
            return variant
        return f"{variant}/{self.study}/{self.tree}" if variant else f"{self.study}/{self.tree}"

    @property
    def base(self) -> tuple[str, str]:
        """The root and the variant under which it is trained."""
        return self.root, self.variant

    @property
    def base_to_come(self) -> tuple[str, str]:
        """The root and the variant under which it goes on if it is extended or branched from."""
        return self.onward or self.base

    def must_move(self, until: int) -> bool:
        """Return whether an extension to an epoch has to be trained under another root.

        What it was told before is told again as it was.
        """
        return self.ending == "complete" and self.onward is not None and until not in self.curve

    def move(self, root: str, variant: str) -> None:
        """Begin again under another root; what it was told under the one before is no part of its curve."""
        self.earlier += (EarlierHistory(self.root, self.variant, self.until),)
        self.root, self.variant, self.onward = root, variant, None
        self.curve = {}
        self.reached = 0

    def __repr__(self) -> str:
        return f"trial {self.number}"


class EarlierHistory(NamedTuple):
    """A tree that a trial was in before it was trained under another root, and up to which epoch."""

    root: str
    variant: str
    until: int


class Place(NamedTuple):
    """The state after ``unit`` units of a lineage that ends in ``node``."""

    node: Node
    unit: int


def due_epochs(trial: Trial, until: int) -> list[int]:
    """Return the epochs whose reports a trial owes anew when it is granted epochs up to ``until``."""
    every = trial.every
    due = [*(range((trial.until // every + 1) * every, until, every) if every else ()), until]
    return [epoch for epoch in due if epoch not in trial.open]


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

    def __init__(self, partitions: int, cost: Cost | None = None, order: Order = "strict") -> None:
        if partitions < 1:
            raise WorkloadError(f"partitions: {partitions}; an epoch needs at least one partition")
        self.partitions = partitions
        self.order: Order = order
        self.nodes: list[Node] = []
        self.roots: dict[tuple[str, str], Node] = {}
        self._by_key: dict[tuple[str, str], Node] = {}
        self._cost = cost
        self.formula: CostFormula | None = None  # what was learned; None: costs are as they were given

    def root(self, fingerprint: str, lane: str = "") -> Node:
        """Return where lineages from this fingerprint begin; a ``lane`` gives a trial a tree of its own.

        Keys, and so seeds and bits, are those of the shared tree; only its states have names of their own.
        """
        node = self.roots.get((fingerprint, lane))
        if node is None:
            name = root_key(fingerprint, self.partitions, self.order)
            node = Node(len(self.nodes), None, 0, Values(()), name, lane)
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
        node = Node(len(self.nodes), parent, start, values, lineage_key(parent.key, start, values), parent.lane)
        node.rotation = rotation(node.key, self.partitions)
        if self._cost is not None:
            node.cost = _priced(self._cost, values)
        self.nodes.append(node)
        self._by_key[node.key, node.lane] = node
        parent.children[start, values] = node
        return node

    def find(self, key: str, tree: str = "") -> Node | None:
        """Return the node of a lineage, if a trial passes it."""
        return self._by_key.get((key, tree))

    def rotation(self, node: Node, unit: int) -> int:
        """Return where the rotation of the epoch begins in which a unit lies, in strict order."""
        begin = unit - unit % self.partitions
        while node.start > begin and node.parent is not None:
            node = node.parent
        return node.rotation

    def price_by(self, cost: Cost) -> None:
        """Price nodes by a function of their values, until something is learned."""
        self._cost = cost

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

    def follow(self, trial: Trial, until: int) -> list[Node]:
        """Count a trial in the nodes that it passes up to an epoch, and there only; return those of before."""
        before = [node for node, _ in self.way(trial, trial.followed * self.partitions)] if trial.followed else []
        for node in before:
            node.live -= 1
        trial.followed = until
        for node, _ in self.way(trial, until * self.partitions) if until else ():
            node.live += 1
            if node.first < 0:
                node.first = trial.number
        return before

    def arrange(self, nodes: list[Node]) -> None:
        """Give the nodes their numbers by this order."""
        for number, node in enumerate(nodes):
            node.id = number
        self.nodes[:] = nodes

    def work(self, trials: Iterable[Trial], *, done: bool = False) -> Work:
        """Return the units that trials ask for (or have done), and the units left after sharing among them."""
        some = list(trials)
        asked = sum(trial.done if done else trial.epochs for trial in some) * self.partitions
        reach = self.reach(some, done=done)
        return Work(asked, sum(end - self.nodes[number].start for number, end in reach.items()))

    def reach(self, trials: Iterable[Trial], *, done: bool = False) -> dict[int, int]:
        """Return the nodes that trials ask for (or have done), by number, each with the unit up to which."""
        reach: dict[int, int] = {}
        for trial in trials:
            for node, end in self.way(trial, (trial.done if done else trial.epochs) * self.partitions):
                reach[node.id] = max(reach.get(node.id, 0), end)
        return reach

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
