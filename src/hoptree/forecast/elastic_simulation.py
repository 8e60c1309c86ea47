"""Simulation of a study on nodes that come and go: what a plan of allocation takes and costs when it is followed.

The real engine runs in the real loop, and the real controller plans; only the nodes and the clock are simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import msgspec

from hoptree.backends.event_loop import Observer, drive, without_collector
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.actions import RunUnit
from hoptree.core.allotment import Allotment
from hoptree.core.engine import Engine
from hoptree.core.errors import WorkloadError
from hoptree.core.events import UnitFinished
from hoptree.core.invariants import InvariantChecker
from hoptree.core.saving import SavePolicy
from hoptree.core.settings import DEFAULT_POLICY, Settings
from hoptree.core.steps import Step
from hoptree.driver.elastic_run import ElasticRun
from hoptree.driver.study_stages import JobTerms, StudyStages, TrainingTimes
from hoptree.elastic.allocation import AllocationPlan
from hoptree.elastic.billing import charge
from hoptree.elastic.controller import NodeController
from hoptree.elastic.instance import Instance
from hoptree.forecast.simulation import simulation_root
from hoptree.search.parse_space import Space
from hoptree.search.protocol import Goal, begin
from hoptree.search.tuner import Tuner
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.scaling import profile_of, speed_up, widest
from hoptree.simulator.workload import Landscape, Workload

_UNITS_TO_LEARN = 10  # units after which what was measured counts as much as what was expected before


class AllocationTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulated study is to keep to: the instance, and a deadline in seconds or a budget.

    With ``again=False`` it is planned only once, at the start. ``saving`` says when states are saved; what is not
    saved is lost with its node. ``policy`` is the engine's, ``reserve`` the controller's. At first units are
    ``misjudged``: they are expected to take so many times what they take, until some were measured.
    """

    instance: Instance
    deadline: float | None = None
    budget: float | None = None
    again: bool = True
    risk: float = 0.05
    saving: SavePolicy = SavePolicy(every=1)
    policy: str = DEFAULT_POLICY
    reserve: float | None = None
    misjudged: float = 1.0

    def __post_init__(self) -> None:
        if (self.deadline is None) == (self.budget is None):
            raise WorkloadError(
                f"deadline, budget: {self.deadline} and {self.budget}; expected one of them, and None for the other"
            )


def simulate_allocation(
    workload: Workload,
    procedure: object,
    space: Space,
    cluster: Cluster,
    terms: AllocationTerms,
    *,
    seed: int = 0,
    check: bool = False,
) -> AllocationRun:
    """Run a search on a simulated cluster whose nodes are planned for a deadline or a budget.

    The ``cluster`` has ``elastic`` nodes; ``workload`` says what units take, its configs and epochs do not count.
    With ``check`` every invariant is tested after every step.
    """
    elastic = cluster.elastic
    if elastic is None:
        raise WorkloadError("cluster: its nodes are fixed; expected Cluster(elastic=ElasticNodes(…))")
    goal = Goal("loss", maximize=False)
    landscape = workload.landscape()
    partitions = workload.partitions
    width = widest(cluster.scaling, elastic.devices)
    engine = Engine(
        Settings(partitions, policy=terms.policy, seed=seed),
        landscape.seconds,
        allotment=Allotment(width, profile_of(cluster.scaling, width), exact=True) if width > 1 else None,
        saving=terms.saving,
    )
    backend = SimulatedBackend(
        cluster,
        partitions,
        landscape,
        state_bytes=workload.state_bytes,
        evaluation_seconds=workload.evaluation_seconds,
        seed=seed,
        record=False,
    )

    def tuner() -> Tuner:
        return Tuner(begin(procedure, space, goal, seed), root=simulation_root(seed), share=workload.share)

    stages = StudyStages(
        {("", 0): procedure}, tuner, [goal.metric], partitions, JobTerms(_speed_ups(cluster, elastic.devices))
    )
    learned = _LearnedTimes(landscape, workload.evaluation_seconds, backend.hop_seconds, cluster, terms.misjudged)
    controller = NodeController(
        terms.instance,
        deadline=terms.deadline,
        budget=terms.budget,
        again=terms.again,
        risk=terms.risk,
        reserve=terms.reserve,
    )
    run = ElasticRun(engine.state, stages, controller, backend, learned.times, lambda: backend.now)
    watches: list[Observer] = [learned.see, run.see]
    if check:
        watches.append(InvariantChecker(engine).see)
    with without_collector():
        seconds = drive(engine, backend, tuner(), watches, sources=[run])
    return AllocationRun(terms.instance, engine, run.plans, seconds, backend)


@final
class AllocationRun:
    """The result of a simulated run on nodes that come and go."""

    def __init__(
        self,
        instance: Instance,
        engine: Engine,
        plans: Sequence[AllocationPlan],
        seconds: float,
        backend: SimulatedBackend,
    ) -> None:
        self.engine = engine
        self.plans = plans
        self.seconds = seconds
        self.units = backend.units
        self.busy_seconds = backend.busy_seconds
        self._instance = instance

    @property
    def forecast(self) -> AllocationPlan:
        """The plan that was made at the start."""
        return self.plans[0]

    @property
    def nodes(self) -> list[tuple[str, float, float]]:
        """Every node with its start and its end."""
        uses = self.engine.state.nodes.rows.uses
        return [(use.node, use.started, self.seconds if use.ended is None else use.ended) for use in uses]

    @property
    def cost(self) -> float:
        """What all nodes cost."""
        uses = self.engine.state.nodes.rows.uses
        return math.fsum(
            charge(self._instance, end - start, busy_device_seconds=sum(use.busy.values()))
            for use, (_, start, end) in zip(uses, self.nodes, strict=True)
        )


def _speed_ups(cluster: Cluster, devices: int) -> dict[int, float]:
    """Return the best speed-up by number of devices, up to those of a node."""
    found, width = {1: 1.0}, 2
    while width <= widest(cluster.scaling, devices):
        found[width] = max(speed_up(cluster.scaling, layout, width) for layout in cluster.scaling)
        width *= 2
    return found


@final
class _LearnedTimes:
    """What units are expected to take: misjudged at first, then as those that have been trained alone took."""

    def __init__(
        self, landscape: Landscape, evaluation: float, hop: float, cluster: Cluster, misjudged: float
    ) -> None:
        share, factor = cluster.stragglers, cluster.straggling
        self._mean = 1 - share + share * factor
        square = (1 + cluster.noise**2) * (1 - share + share * factor**2)
        self._noise = math.sqrt(max(0.0, square - self._mean**2)) / self._mean
        self._landscape = landscape
        self._evaluation = landscape.evaluation or (lambda _: evaluation)
        self._hop = hop
        self._misjudged = misjudged
        self._count, self._measured, self._expected = 0, 0.0, 0.0

    def see(self, step: Step) -> None:
        """Learn from a unit: an observer of the loop."""
        run = step.run
        if isinstance(step.event, UnitFinished) and isinstance(run, RunUnit) and not run.crew:
            self._count += 1
            self._measured += step.event.seconds
            self._expected += self._mean * self._landscape.seconds(run.values)

    def times(self) -> TrainingTimes:
        """Return what is expected by now."""
        factor, seconds = self._misjudged, self._landscape.seconds
        if factor != 1.0 and self._expected:
            # What was measured counts the more the less the noise of so many units is.
            doubt = _UNITS_TO_LEARN / (_UNITS_TO_LEARN + self._count)
            factor = doubt * factor + (1 - doubt) * self._measured / self._expected
        mean = factor * self._mean
        return TrainingTimes(lambda values: mean * seconds(values), self._evaluation, self._hop, self._noise)
