"""Snapshots: the state of a study as plain data, so that opening it reads only the entries after the last one.

A snapshot is a stored format like the journal: it refers to lineages by key, and a change needs a new version.
"""

from __future__ import annotations

import msgspec

from hoptree.core.actions import Ending, EndTrial, Evaluate, Report, RunUnit
from hoptree.core.costs import CostFormula
from hoptree.core.errors import ProtocolError
from hoptree.core.events import Asker, Metrics
from hoptree.core.fact_reader import FactReader
from hoptree.core.fact_writer import FactWriter
from hoptree.core.facts import EvaluationGiven, UnitGiven
from hoptree.core.lineage import History
from hoptree.core.node_ledger import NodeLedger, NodeRows
from hoptree.core.nodes import Node, Place, State
from hoptree.core.settings import Settings
from hoptree.core.study_state import Request, StudyState
from hoptree.core.trial import EarlierHistory, Trial

SNAPSHOT_VERSION = 1


class _Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    pass


class StateRow(_Row, frozen=True):
    """A state of a node."""

    unit: int
    home: str
    order: int
    size: int
    kept: bool
    saved: bool


class NodeRow(_Row, frozen=True):
    """The data of a node that do not follow from its trials."""

    lineage: str
    tree: str
    states: tuple[StateRow, ...]
    reports: dict[int, Metrics]
    attempts: tuple[tuple[str, int, int], ...]  # what failed and by whose fault, the unit, and how often
    taken: tuple[int, ...]
    trained: dict[int, int]
    visits: dict[int, int]


class TrialRow(_Row, frozen=True):
    """A trial; ``told`` are the epochs that were reported to it, ``open`` those whose report is due."""

    number: int
    history: History
    root: str
    study: str
    every: int
    alone: bool
    tree: int
    barrier: bool
    until: int
    reached: int
    open: tuple[int, ...]
    told: tuple[int, ...]
    ending: Ending | None
    reason: str
    ended_at: int  # the unit after which it ended complete; 0: it is not complete
    owed: tuple[int, ...]
    retries: int
    lost_state: bool
    asked_by: Asker | None = None
    variant: str = ""
    onward: tuple[str, str] | None = None
    earlier: tuple[EarlierHistory, ...] = ()


class ToldRow(_Row, frozen=True):
    """A message to a search: a trial's report at an epoch, or (with epoch 0) how it ended and why.

    ``metrics`` is set only if the trial has been moved to another root since the report.
    """

    trial: int
    epoch: int
    ending: Ending | None = None
    reason: str = ""
    metrics: Metrics | None = None


class ShortageRow(_Row, frozen=True):
    """A layout in which a unit of a lineage was out of memory, with how many workers; sizes in bytes."""

    lineage: str
    tree: str
    layout: str
    devices: int
    limit: int
    asked: int


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state of a study at one entry of its journal."""

    version: int
    now: float
    issued: int
    units: int
    formula: CostFormula | None
    trials: tuple[TrialRow, ...]
    nodes: tuple[NodeRow, ...]
    workers: dict[str, tuple[int, ...]]
    runs: tuple[UnitGiven | EvaluationGiven, ...]
    evaluating: tuple[int, ...]
    asked: tuple[Request, ...]
    dialogue: tuple[int | ToldRow, ...]
    too_large: tuple[ShortageRow, ...] = ()
    instances: NodeRows = msgspec.field(default_factory=NodeRows)


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Snapshot)


def take_snapshot(state: StudyState, now: float) -> bytes:
    """Return the state of a study as bytes."""
    return _ENCODER.encode(snapshot_of(state, now))


def read_snapshot(data: bytes, settings: Settings) -> tuple[StudyState, float]:
    """Return the state of a study from bytes, and its time."""
    try:
        snapshot = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"snapshot: it cannot be decoded ({error})") from None
    if snapshot.version != SNAPSHOT_VERSION:
        raise ProtocolError(f"snapshot: version {snapshot.version}; this Hoptree reads version {SNAPSHOT_VERSION}")
    return restored(snapshot, settings), snapshot.now


def snapshot_of(state: StudyState, now: float) -> Snapshot:
    """Return the state of a study as plain data: equal snapshots are equal states."""
    writer = FactWriter(state)
    given = [writer.decided(run) for run in state.runs.under_way()]
    visits: dict[int, dict[int, int]] = {}
    for (number, unit), partition in state.visits.items():
        visits.setdefault(number, {})[unit] = partition
    asked: list[Request] = []
    dialogue: list[int | ToldRow] = []
    for part in state.dialogue:
        match part:
            case Report(trial, epoch, metrics):
                known = _same(state.trials[trial].curve.get(epoch), metrics)
                dialogue.append(ToldRow(trial, epoch) if known else ToldRow(trial, epoch, metrics=metrics))
            case EndTrial(trial, ending, reason):
                dialogue.append(ToldRow(trial, 0, ending, reason))
            case _:
                dialogue.append(len(asked))
                asked.append(part)
    return Snapshot(
        version=SNAPSHOT_VERSION,
        now=now,
        issued=state.issued,
        units=state.units,
        formula=state.plan.formula,
        trials=tuple(_trial_row(trial) for trial in state.trials.values()),
        nodes=tuple(_node_row(node, visits.get(node.id, {})) for node in state.plan.nodes),
        workers=dict(state.workers),
        runs=tuple(each for each in given if isinstance(each, UnitGiven | EvaluationGiven)),
        evaluating=tuple(run.run for run in state.runs.under_way() if state.runs.has_trained(run.run)),
        asked=tuple(asked),
        dialogue=tuple(dialogue),
        too_large=tuple(_shortage_row(state.plan.nodes[tried[0]], tried, state) for tried in state.too_large),
        instances=state.nodes.rows,
    )


def restored(snapshot: Snapshot, settings: Settings) -> StudyState:
    """Return the state of a study from a snapshot."""
    state = StudyState(settings)
    plan = state.plan
    if snapshot.formula is not None:
        plan.learn(snapshot.formula)
    for row in snapshot.trials:
        trial = _trial(row)
        state.trials[row.number] = trial
        for earlier in row.earlier:
            begin = plan.root(earlier.root, trial.tree_of(earlier.variant))
            plan.path(trial.history, begin, earlier.until * plan.partitions)
        plan.follow(trial, row.until)
        if row.ending is not None:
            plan.follow(trial, 0)
    made = {(node.key, node.tree): node for node in plan.nodes}
    named = [(line.lineage, line.tree) for line in snapshot.nodes]
    if set(named) != set(made):
        raise ProtocolError(
            f"snapshot: it holds {len(named)} lineages, but its trials pass {len(made)} different ones"
        )
    plan.arrange([made[name] for name in named])
    for node, line in zip(plan.nodes, snapshot.nodes, strict=True):
        _fill(node, line)
        state.visits.update(((node.id, unit), partition) for unit, partition in line.visits.items())
    for short in snapshot.too_large:
        node = made[short.lineage, short.tree]
        state.too_large[node.id, short.layout, short.devices] = short.limit, short.asked
    for row in snapshot.trials:
        trial = state.trials[row.number]
        root = plan.root(trial.root, trial.tree)
        trial.open.update(zip(row.open, plan.places(trial.history, root, row.open), strict=True))
        for epoch, (node, unit) in zip(row.told, plan.places(trial.history, root, row.told), strict=True):
            trial.curve[epoch] = node.reports[unit]
        if row.ended_at:
            trial.end_at(Place(*plan.path_with_ends(trial, row.ended_at)[-1]))
            trial.lost_state = row.lost_state
    state.runs.issued, state.units = snapshot.issued, snapshot.units
    state.workers.update(snapshot.workers)
    reader = FactReader(state)
    for given in snapshot.runs:
        run = reader.action(given)
        assert isinstance(run, RunUnit | Evaluate)
        state.runs.resume(run, trained=run.run in snapshot.evaluating)
    state.nodes = NodeLedger(snapshot.instances)
    state.dialogue += [_part(state, snapshot, part) for part in snapshot.dialogue]
    return state


def _part(state: StudyState, snapshot: Snapshot, part: int | ToldRow) -> Request | Report | EndTrial:
    if isinstance(part, int):
        return snapshot.asked[part]
    if part.ending is not None:
        return EndTrial(part.trial, part.ending, part.reason)
    metrics = state.trials[part.trial].curve[part.epoch] if part.metrics is None else part.metrics
    return Report(part.trial, part.epoch, metrics)


def _same(one: Metrics | None, two: Metrics) -> bool:
    """Return whether metrics are equal; NaN equals NaN here."""
    if one is None or one.keys() != two.keys():
        return False
    return all(one[name] == value or (one[name] != one[name] and value != value) for name, value in two.items())


def _node_row(node: Node, visits: dict[int, int]) -> NodeRow:
    states = [
        StateRow(each.unit, each.home, each.order, each.size, each.kept, each.saved)
        for each in sorted(node.states.values(), key=lambda state: state.unit)
    ]
    attempts = tuple((what, unit, count) for (what, unit), count in sorted(node.attempts.items()))
    return NodeRow(
        node.key,
        node.tree,
        tuple(states),
        dict(sorted(node.reports.items())),
        attempts,
        tuple(sorted(node.taken)),
        dict(sorted(node.trained.items())),
        visits,
    )


def _fill(node: Node, row: NodeRow) -> None:
    for each in row.states:
        state = node.states[each.unit] = State(node, each.unit, each.home, each.order, each.size)
        state.kept, state.saved = each.kept, each.saved
    node.reports.update(row.reports)
    node.attempts.update({(what, unit): count for what, unit, count in row.attempts})
    node.taken.update(row.taken)
    node.trained.update(row.trained)


def _shortage_row(node: Node, tried: tuple[int, str, int], state: StudyState) -> ShortageRow:
    return ShortageRow(node.key, node.tree, *tried[1:], *state.too_large[tried])


def _trial_row(trial: Trial) -> TrialRow:
    return TrialRow(
        trial.number,
        trial.history,
        trial.root,
        trial.study,
        trial.every,
        trial.alone,
        trial.tree_owner,
        trial.barrier,
        trial.until,
        trial.reached,
        tuple(sorted(trial.open)),
        tuple(sorted(trial.curve)),
        trial.ending,
        trial.reason,
        trial.final.unit if trial.final is not None else 0,
        trial.owed,
        trial.retries,
        trial.lost_state,
        trial.asked_by,
        trial.variant,
        trial.onward,
        trial.earlier,
    )


def _trial(row: TrialRow) -> Trial:
    trial = Trial(row.number, row.history, row.root, row.study, row.every)
    trial.alone, trial.tree_owner, trial.barrier = row.alone, row.tree, row.barrier
    trial.variant, trial.onward, trial.earlier = row.variant, row.onward, row.earlier
    trial.until, trial.reached = row.until, row.reached
    trial.ending, trial.reason = row.ending, row.reason
    trial.owed, trial.retries = row.owed, row.retries
    trial.asked_by = row.asked_by
    return trial
