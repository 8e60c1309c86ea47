"""Simulation of a model selection: how long it takes on which workers, and what is shared.

The real engine runs in the real loop; only the workers and the clock are simulated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

from hoptree.backends.event_loop import Observer, drive, without_collector
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.allotment import Allotment
from hoptree.core.engine import Engine
from hoptree.core.errors import WorkloadError
from hoptree.core.gang_plan import GangPlan, PlannedVisit
from hoptree.core.invariants import InvariantChecker
from hoptree.core.layouts import SINGLE
from hoptree.core.lineage import history
from hoptree.core.plan import Node, Plan, Work
from hoptree.core.policies import Policy
from hoptree.core.policy_choice import PolicyChoice, check_policy, planned
from hoptree.core.replication import ReplicationSettings
from hoptree.core.settings import DEFAULT_POLICY, Order, Settings
from hoptree.optimize.joint import JointSolution
from hoptree.report import gantt, trace
from hoptree.report.tables import count, duration, size, text_table
from hoptree.report.timeline import Span, Timeline
from hoptree.search.fixed import Fixed
from hoptree.search.protocol import Search
from hoptree.search.tuner import Tuner
from hoptree.simulator.cluster import Cluster, WorkerSpec
from hoptree.simulator.scaling import profile_of, speed_up, widest
from hoptree.simulator.workload import Workload

_DETAILS = ("ahead", "affinity", "retries", "patience", "landscape", "check", "watches", "enough")
_RECORDED = 200_000  # units up to which a run keeps the spans for charts


def simulate(
    workload: Workload,
    cluster: Cluster | None = None,
    *,
    policy: PolicyChoice | JointSolution = DEFAULT_POLICY,
    order: Order = "strict",
    search: Search | None = None,
    seed: int = 0,
    **details: Any,
) -> Simulation:
    """Run a workload on a simulated cluster.

    ``policy`` is a name, a policy, the ``starts`` of a solved schedule (then the order is free), or what
    ``solve_joint`` has returned for the nodes of the cluster: dry runs follow that until they find better.
    ``search`` replaces "train every config for ``epochs``". ``details``: ``ahead``, ``affinity``, ``retries`` and
    ``patience`` of the engine, ``landscape`` for costs and metrics as functions of values, ``check`` to test every
    invariant after every step, ``watches`` for observers that get every step, and ``enough``, which is called
    after every event and ends the run when it returns true.

        >>> result = simulate(Workload(configs=4, epochs=2, partitions=4), Cluster(workers=4), order="free")
        >>> result.makespan
        8.0
    """
    cluster = cluster or Cluster()
    if cluster.elastic is not None:
        raise WorkloadError("cluster: its nodes come and go; expected simulate_allocation for such a cluster")
    check = details.pop("check", False)
    watches: list[Observer] = list(details.pop("watches", ()))
    enough = details.pop("enough", None) or (lambda: False)
    landscape = details.pop("landscape", None) or workload.landscape()
    if not callable(enough):
        raise WorkloadError(
            f"enough: {enough!r}; expected a function without arguments that returns whether to end"
        )
    plan: GangPlan = ()
    if isinstance(policy, JointSolution):
        plan, policy = _gang_plan(policy, workload, cluster, order, seed), DEFAULT_POLICY
    check_policy(policy)
    starts = None if isinstance(policy, str | Policy) else policy
    name = policy if isinstance(policy, str) else DEFAULT_POLICY
    try:
        settings = Settings(workload.partitions, order if starts is None else "free", name, seed, **details)
    except TypeError as error:
        raise WorkloadError(f"details: {error}; expected {', '.join(_DETAILS)}") from None
    if starts is not None:
        histories = [history(config) for config in workload.config_list()]
        policy = planned(starts, histories, simulation_root(seed), workload.partitions)
    own = policy if isinstance(policy, Policy) else None
    engine = Engine(
        settings,
        landscape.seconds,
        own,
        allotment=_allotment(cluster, workload.partitions),
        replication=_replication(cluster, workload.partitions),
        plan=plan,
    )
    units = workload.size * workload.epochs * workload.partitions
    backend = SimulatedBackend(
        cluster,
        workload.partitions,
        landscape,
        state_bytes=workload.state_bytes,
        evaluation_seconds=workload.evaluation_seconds,
        seed=seed,
        record=units <= _RECORDED,
    )
    if check:
        watches.append(InvariantChecker(engine).see)
    tuner = Tuner(
        search or Fixed(workload.config_list(), workload.epochs, workload.every),
        root=simulation_root(seed),
        share=workload.share,
        barrier=workload.barrier,
    )
    with without_collector():
        makespan = drive(engine, backend, tuner, watches, enough=enough)
    return Simulation(workload, cluster, engine, backend, makespan)


@final
class Simulation:
    """The result of a simulated run."""

    def __init__(
        self, workload: Workload, cluster: Cluster, engine: Engine, backend: SimulatedBackend, makespan: float
    ) -> None:
        self.workload = workload
        self.cluster = cluster
        self.engine = engine
        self.makespan = makespan
        self.units = backend.units
        self.hops = backend.hops
        self.bytes_hopped = backend.hops * workload.state_bytes
        self.busy_seconds = backend.busy_seconds
        self._did = backend.did

    @property
    def work(self) -> Work:
        """Units asked for, and distinct units after sharing."""
        return self.engine.plan.work(self.engine.trials.values())

    @property
    def bound(self) -> float:
        """A lower bound of the makespan: the load of the busiest partition, and the longest lineage.

        It holds for a cluster that keeps its workers; noise, faults and hops are not included.
        """
        return _lower_bound(self.engine, self.cluster)

    @property
    def utilisation(self) -> float:
        """The share of all workers' time that was spent on units and evaluations."""
        workers = len(self.cluster.placed(self.workload.partitions))
        return self.busy_seconds / (self.makespan * workers) if self.makespan else 1.0

    @property
    def timeline(self) -> Timeline:
        """What every worker did, for charts; empty for runs too large to draw."""
        names = tuple(spec.name for spec in self.cluster.placed(self.workload.partitions))
        spans = tuple(
            Span(d.worker, d.start, d.end, d.kind, max(0, d.node), f"lineage {d.node}", d.partition, d.epoch)
            for d in self._did
        )
        return Timeline(spans, self.makespan, names)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dictionary."""
        work = self.work
        return {
            "trials": len(self.engine.trials),
            "units_asked": work.asked,
            "units_unique": work.unique,
            "units_trained": self.units,
            "merge_rate": work.merge_rate,
            "makespan_seconds": self.makespan,
            "lower_bound_seconds": self.bound,
            "utilisation": self.utilisation,
            "hops": self.hops,
            "bytes_hopped": self.bytes_hopped,
            "failed_trials": sum(trial.ending == "failed" for trial in self.engine.trials.values()),
        }

    def table(self, width: int | None = None) -> str:
        """Return the figures as a table."""
        d = self.to_dict()
        per_epoch = self.workload.partitions
        over = self.makespan / self.bound if self.bound else 1.0
        rows = [
            ("trials", count(d["trials"])),
            ("epochs asked", f"{d['units_asked'] / per_epoch:,.10g}"),
            ("epochs after sharing", f"{d['units_unique'] / per_epoch:,.10g} (merge rate {d['merge_rate']:.2f})"),
            ("units trained", count(d["units_trained"])),
            ("makespan", duration(self.makespan)),
            ("lower bound", f"{duration(self.bound)} (makespan is {over:.3f} of it)"),
            ("utilisation", f"{100 * self.utilisation:.1f} %"),
            ("hops", f"{count(self.hops)} ({size(self.bytes_hopped)})"),
        ]
        if d["failed_trials"]:
            rows.append(("failed trials", count(d["failed_trials"])))
        return text_table(["", "simulated"], rows, width=width)

    def gantt(self, width: int = 100, *, colour: bool = True) -> str:
        """Return the Gantt chart as text."""
        return gantt.terminal(self.timeline, width=width, colour=colour)

    def save(self, path: str | Path, *, dark: bool = False) -> None:
        """Write the Gantt chart to an SVG or PNG file, or a trace for Perfetto to a JSON file."""
        if Path(path).suffix == ".json":
            trace.save_trace(self.timeline, path)
        else:
            gantt.save(self.timeline, path, dark=dark)


def _allotment(cluster: Cluster, partitions: int) -> Allotment | None:
    """Return what forms gangs, with the cluster's scaling as its profile; None if every unit has one device."""
    devices = Counter(spec.machine for spec in cluster.placed(partitions))
    width = widest(cluster.scaling, max(devices.values()))
    return Allotment(width, profile_of(cluster.scaling, width), exact=True) if width > 1 else None


def _gang_plan(solution: JointSolution, workload: Workload, cluster: Cluster, order: Order, seed: int) -> GangPlan:
    """Return a solved joint schedule by lineage; its rows belong to the configs in order."""
    if order != "free":
        raise WorkloadError(
            f"policy: a joint solution with order {order!r}; expected order='free': strict order fixes it"
        )
    shape = (len(solution.visits), len(solution.visits[0]))
    if shape != (workload.size, len(cluster.nodes)):
        raise WorkloadError(
            f"policy: a joint solution of {shape[0]} configs on {shape[1]} nodes; expected {workload.size} configs "
            f"and {len(cluster.nodes)} nodes, as in the workload and the cluster"
        )
    plan = Plan(workload.partitions, order="free")
    begin = plan.root(simulation_root(seed))
    keys = [plan.path(history(config), begin, 1)[0].key for config in workload.config_list()]
    return tuple(
        PlannedVisit(visit.start, key, node, visit.width)
        for key, row in zip(keys, solution.visits, strict=True)
        for node, visit in enumerate(row)
    )


def _replication(cluster: Cluster, partitions: int) -> ReplicationSettings | None:
    if not cluster.replicate_idle:
        return None
    return ReplicationSettings(cluster.replicate_idle, (cluster.partition_bytes,) * partitions)


def simulation_root(seed: int) -> str:
    """Return what the lineages of a simulated workload start from."""
    return f"simulation {seed}"


def _lower_bound(engine: Engine, cluster: Cluster) -> float:
    """Count whole epochs only: each visits every partition once, at best on its fastest worker or gang."""
    plan, partitions = engine.plan, engine.settings.partitions
    placed = cluster.placed(partitions)
    holders = [
        tuple(spec for spec in placed if p in spec.partitions or cluster.replicate_idle) for p in range(partitions)
    ]
    epoch = sum(1 / (max(spec.speed for spec in specs) * _gain(cluster, specs)) for specs in holders)
    efficiency = _efficiency(cluster, len(placed))
    reach: dict[int, int] = {}
    longest = 0.0
    for trial in engine.trials.values():
        length = 0.0
        for node, end in plan.path_with_ends(trial, trial.epochs * partitions):
            reach[node.id] = max(reach.get(node.id, 0), end)
            length += _whole_epochs(node, end, partitions) * node.cost * epoch
        longest = max(longest, length)
    nodes = (plan.nodes[number] for number in reach)
    load = sum(_whole_epochs(node, reach[node.id], partitions) * node.cost for node in nodes) / efficiency
    # Partitions with the same holders must share them; all partitions share all workers.
    groups = {names: holders.count(names) * load / _speed(names) for names in dict.fromkeys(holders)}
    return max(longest, partitions * load / _speed(placed), *groups.values())


def _gain(cluster: Cluster, holders: Sequence[WorkerSpec]) -> float:
    """Return the greatest speed-up of a gang of one machine."""
    most = max(Counter(spec.machine for spec in holders).values())
    return max(speed for width, speed in _speed_ups(cluster, most))


def _efficiency(cluster: Cluster, devices: int) -> float:
    """Return the most that a device does in a gang, over what it does alone."""
    return max(speed / width for width, speed in _speed_ups(cluster, devices))


def _speed_ups(cluster: Cluster, devices: int) -> Iterator[tuple[int, float]]:
    width = 1
    while width <= widest(cluster.scaling, devices):
        for layout in cluster.scaling or (SINGLE,):
            yield width, speed_up(cluster.scaling, layout, width)
        width *= 2


def _speed(specs: Iterable[WorkerSpec]) -> float:
    return sum(spec.speed for spec in specs)


def _whole_epochs(node: Node, end: int, partitions: int) -> int:
    return max(0, end // partitions - -(-node.start // partitions))
