"""The controller of nodes: how many a study is to have now, which to give back, and when to plan again.

It is pure: whoever carries decisions out passes the time, what is left to train, and the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import final

import msgspec

from hoptree.elastic.allocation import AllocationPlan, StagePlan
from hoptree.elastic.billing import charge
from hoptree.elastic.errors import BudgetError, DeadlineError
from hoptree.elastic.instance import Instance
from hoptree.elastic.job import Job
from hoptree.elastic.node_shares import jobs_in_turn, work
from hoptree.elastic.placement import nodes_to_release
from hoptree.elastic.planner import Planner

_DEVIATION = 0.05  # of the planned time: so much sooner or later than planned, the rest is planned again
_LEAST = 0.01  # of the time of the first plan: less is no deviation
_INTERVAL = 0.02  # of the time of the first plan: the least time between two plans, unless a stage has begun
_LATE = 1.5  # a node is late if it takes so many times as long as expected
_NEARLY = 1.02  # of the earliest end, once the deadline cannot be met any more
_AT_RISK = 60.0  # seconds of training that a lost node may cost a trial: states are saved at least so often
_LATER = 0.3  # the risk of later plans, over that of the first
_SOON = 1e-3  # seconds: the least time for which a plan is sought
_CENT = 0.01  # dollars: the least budget for which a plan is sought
_SPARE = 2.0  # seconds by which a node is asked for before it has to be


class RunningNode(msgspec.Struct, frozen=True):
    """A node that is paid for: when it started and could train, and the devices that trials use there now.

    ``busy`` are the seconds in which its devices have trained, summed over them.
    """

    devices: int
    started: float
    joined: float | None = None
    trials: dict[str, int] = {}
    busy: float = 0.0


class NodeDecision(msgspec.Struct, frozen=True):
    """How many nodes the cluster is to have now, and which to give back, the best to give back first.

    ``plan`` is a new plan, if one was made for ``reason``. The next decision is due at ``until``, or as soon as
    something changes.
    """

    nodes: int
    release: tuple[str, ...] = ()
    plan: AllocationPlan | None = None
    reason: str = ""
    until: float = math.inf


class _PlanInForce(msgspec.Struct, frozen=True):
    """A plan, when and for what it was made, and by allocation the device-seconds that were left of the stage."""

    plan: AllocationPlan
    made: float
    stage: int
    jobs: tuple[tuple[int, ...], ...]  # by allocation: the places of its jobs among all
    lengths: tuple[int, ...]  # how many stages they had left
    work: tuple[float, ...]


@final
class NodeController:
    """Follows a plan of allocation, and plans the rest again from what really happened.

    It plans at the start, whenever a stage has ended, when a node was lost or is late, and when the work is more
    than 5 % sooner or later than planned. With ``again=False`` it plans only at the start, for comparison.
    ``deadline`` are seconds from ``begun``; without one, the fastest plan within the ``budget`` is followed.
    ``reserve`` are seconds before the deadline that are kept for the loss of a node, until one is lost; None: as
    many as it takes to replace one, if the provider may take them away.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        deadline: float | None,
        budget: float | None,
        begun: float = 0.0,
        again: bool = True,
        risk: float = 0.05,
        reserve: float | None = None,
    ) -> None:
        self._instance = instance
        self._reserve = reserve_for(instance, _AT_RISK) if reserve is None else reserve
        self._deadline, self._budget, self._begun = deadline, budget, begun
        self._again, self._risk = again, risk
        self._force: _PlanInForce | None = None
        self._wanted = 0
        self._requested = begun  # when nodes were last asked for
        self._known: dict[str, RunningNode] = {}
        self._released: set[str] = set()
        self._lost = 0
        self._spent = 0.0  # for nodes that are gone
        self._data_gb = 0.0
        self._horizon = 0.0  # what the first plan expects the run to take

    def decide(
        self, now: float, remaining: Sequence[Job], nodes: Mapping[str, RunningNode], stage: int
    ) -> NodeDecision:
        """Return what the cluster is to have at a time; ``stage`` counts the stages that have ended.

        ``remaining`` are all jobs of the study in the order of the first call, each with the stages that it has
        left, the first of them in part.
        """
        self._data_gb = max((job.data_gb for job in remaining), default=0.0)
        self._note_nodes(now, nodes)
        active = {name: node for name, node in nodes.items() if name not in self._released}
        if not any(job.stages for job in remaining):
            return NodeDecision(len(active))
        plan, reason = None, self._reason(now, remaining, active, stage)
        if reason:
            plan = self._plan(now, remaining, len(active))
            self._put_in_force(plan, now, remaining, stage)
        needed, until = self._needed(now, remaining)
        release, minimum = self._surplus(now, remaining, active, needed)
        self._released.update(release)
        staying = len(active) - len(release)
        wanted = max(needed, staying)
        if wanted > self._wanted:
            self._requested = now
        self._wanted = wanted
        late = self._requested + self._patience
        if staying < wanted and late > now:
            until = min(until, late)
        return NodeDecision(wanted, release, plan, reason if plan is not None else "", min(until, minimum))

    # --- planning ---------------------------------------------------------------------------------------

    def _note_nodes(self, now: float, nodes: Mapping[str, RunningNode]) -> None:
        for name, node in self._known.items():
            if name not in nodes:
                if name not in self._released:
                    self._lost += 1
                    self._reserve = 0.0
                    self._requested = now  # the cluster replaces it
                self._spent += self._charge(node, now)
        self._known = dict(nodes)

    def _reason(self, now: float, remaining: Sequence[Job], active: Mapping[str, RunningNode], stage: int) -> str:
        """Return why the rest has to be planned now; "" if it need not be."""
        force = self._force
        if force is None:
            return "start"
        if not self._again:
            return ""
        if stage != force.stage:
            return "stage"
        if self._lost:
            self._lost = 0
            return "node lost"
        if now - force.made < max(_SPARE, _INTERVAL * self._horizon):
            return ""
        if len(active) < self._wanted and now >= self._requested + self._patience:
            self._requested = now
            return "node late"
        limit = max(_DEVIATION * force.plan.seconds.expected, _LEAST * self._horizon)
        return "deviation" if abs(self._lateness(now, remaining)) > limit else ""

    @property
    def _lead(self) -> float:
        """Seconds from a request to a node that trains."""
        return (self._instance.provision or 0.0) + (self._instance.start or 0.0)

    @property
    def _patience(self) -> float:
        return _LATE * self._lead + _SPARE

    def _plan(self, now: float, remaining: Sequence[Job], running: int) -> AllocationPlan:
        jobs = [_joined(remaining, places) for places in self._allocated(remaining)]
        # Every plan may be late, and a cheaper one uses up the time that was left: later ones risk less.
        risk = self._risk if self._force is None else _LATER * self._risk
        planner = Planner(jobs, self._instance, running=running, risk=risk)
        if self._deadline is not None:
            left = max(_SOON, self._begun + self._deadline - now)
            refusal: DeadlineError | None = None
            for reserve in (self._reserve, 0.0):
                try:
                    return planner.cheapest(max(_SOON, left - reserve))
                except DeadlineError as error:
                    refusal = error
            assert refusal is not None
            if self._force is None:
                raise refusal
            try:
                return planner.cheapest(_NEARLY * refusal.earliest)
            except DeadlineError:
                return planner.front()[0]
        left = math.inf if self._budget is None else self._budget - self._paid(now)
        try:
            return planner.fastest(max(_CENT, left))
        except BudgetError:
            if self._force is None:
                raise
            return planner.front()[-1]

    def _paid(self, now: float) -> float:
        """Return what was spent so far."""
        return self._spent + sum(self._charge(node, now) for node in self._known.values())

    def _charge(self, node: RunningNode, now: float) -> float:
        seconds = max(0.0, now - node.started)
        return charge(self._instance, seconds, busy_device_seconds=node.busy, data_gb=self._data_gb)

    def _put_in_force(self, plan: AllocationPlan, now: float, remaining: Sequence[Job], stage: int) -> None:
        places = self._allocated(remaining)
        self._force = _PlanInForce(
            plan,
            now,
            stage,
            places,
            tuple(len(_joined(remaining, each).stages) for each in places),
            tuple(_work(remaining[each[0]]) if len(each) == 1 else 0.0 for each in places),
        )
        self._horizon = self._horizon or plan.seconds.expected

    def _allocated(self, remaining: Sequence[Job]) -> tuple[tuple[int, ...], ...]:
        """Return the places of the jobs of each allocation: if there are more jobs than nodes, some share them."""
        groups: list[tuple[int, ...]] = [(place,) for place, job in enumerate(remaining) if job.stages]
        most = self._instance.max_count
        while most is not None and len(groups) > most:
            groups.sort(key=lambda places: (work(_joined(remaining, places)), places))
            groups = [groups[0] + groups[1], *groups[2:]]
        return tuple(groups)

    # --- following the plan -----------------------------------------------------------------------------

    def _stages(self, remaining: Sequence[Job]) -> Iterator[tuple[Job, StagePlan, StagePlan | None, float]]:
        """Yield every job with its stage and the next one in the plan, and the work that the plan began with."""
        force = self._force
        assert force is not None
        rows = zip(force.plan.allocations, force.jobs, force.lengths, force.work, strict=True)
        for allocation, places, length, begun in rows:
            job = _joined(remaining, places)
            if job.stages:
                index = min(max(0, length - len(job.stages)), len(allocation.stages) - 1)
                following = allocation.stages[index + 1] if index + 1 < len(allocation.stages) else None
                yield job, allocation.stages[index], following, begun if index == 0 else 0.0

    def _lateness(self, now: float, remaining: Sequence[Job]) -> float:
        """Return by how many seconds the stage under way is later than planned; negative if it is sooner."""
        force = self._force
        assert force is not None
        worst = 0.0
        for job, stage, _, begun in self._stages(remaining):
            seconds = stage.ends - stage.begins
            if begun <= 0 or seconds <= 0:
                continue
            planned = min(1.0, max(0.0, (stage.ends - (now - force.made)) / seconds))
            late = (_work(job) / begun - planned) * seconds
            if planned == 0.0:
                late = max(late, now - force.made - stage.ends)
            worst = late if abs(late) > abs(worst) else worst
        return worst

    def _needed(self, now: float, remaining: Sequence[Job]) -> tuple[int, float]:
        """Return how many nodes are needed now, and when more will be for the next stage."""
        force = self._force
        assert force is not None
        needed, until = 0, math.inf
        for job, stage, following, _ in self._stages(remaining):
            later = 0 if following is None else following.nodes
            mine = min(stage.nodes, max(self._useful(job), later))
            if later > mine:
                ask = force.made + stage.ends - self._lead - _SPARE
                if now >= ask:
                    mine = later
                else:
                    until = min(until, ask)
            needed += mine
        most = self._instance.max_count
        return needed if most is None else min(needed, most), until

    def _useful(self, job: Job) -> int:
        """Return how many nodes the trials that are left of a stage can keep busy."""
        widest = max((width for width in job.speed_ups if width <= self._instance.devices), default=1)
        return max(1, math.ceil(job.stages[0].trials * widest / self._instance.devices))

    def _surplus(
        self, now: float, remaining: Sequence[Job], active: Mapping[str, RunningNode], needed: int
    ) -> tuple[tuple[str, ...], float]:
        """Return the nodes to give back, and when the minimum of one that is kept for it is over."""
        surplus = len(active) - needed
        if surplus <= 0:
            return (), math.inf
        candidates, until = dict(active), math.inf
        helpful = sum(self._useful(job) for job in remaining if job.stages) - needed
        if helpful > 0:
            # What is paid for anyway costs nothing more, so such nodes stay as long as trials can use them.
            ends = {name: node.started + self._instance.minimum for name, node in active.items()}
            paid = sorted((name for name in active if ends[name] > now), key=lambda name: -ends[name])[:helpful]
            for name in paid:
                del candidates[name]
                until = min(until, ends[name])
        count = min(surplus, len(candidates))
        devices = {trial: width for node in active.values() for trial, width in node.trials.items()}
        last = {trial: {name: width} for name, node in active.items() for trial, width in node.trials.items()}
        room = {name: node.devices for name, node in candidates.items()}
        last = {trial: parts for trial, parts in last.items() if set(parts) <= set(room)}
        return nodes_to_release(count, {trial: devices[trial] for trial in last}, room, last), until


def reserve_for(instance: Instance, at_risk: float) -> float:
    """Return the seconds to keep for the loss of a node: until another trains, and ``at_risk`` to train again.

    Instances that their provider does not take away need none.
    """
    lead = (instance.provision or 0.0) + (instance.start or 0.0)
    return _LATE * lead + at_risk if instance.spot else 0.0


def _joined(remaining: Sequence[Job], places: Sequence[int]) -> Job:
    """Return the job of an allocation."""
    jobs = [remaining[place] for place in places]
    return jobs[0] if len(jobs) == 1 else jobs_in_turn(jobs, 1)[0]


def _work(job: Job) -> float:
    """Return the device-seconds that are left of the first stage."""
    stage = job.stages[0]
    return stage.trials * stage.seconds
