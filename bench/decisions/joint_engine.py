"""Figures 4.1 to 4.3 of the thesis on Cerebro's unified scheduler, scheduled by the engine in simulation.

It takes about two minutes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from bench.decisions.joint import AIMS, PICTURES
from bench.decisions.joint_figures import FIGURES, SCALINGS, SEEDS, Figure
from bench.results import record, spread, table
from hoptree.backends.event_loop import Observer
from hoptree.core.settings import Order
from hoptree.forecast.simulation import Simulation, simulate
from hoptree.optimize import solve_joint
from hoptree.optimize.joint.bounds import load_bound
from hoptree.optimize.joint.problem import parse_joint
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Workload

SECONDS = 300  # more than a dry run takes


class Case(NamedTuple):
    """One problem; makespans over the largest load of a task or node."""

    figure: Figure
    scaling: str
    free: float
    strict: float
    monte_carlo: float
    per_gpu: float
    whole: float
    solver: float  # the dry run of `solve_joint`
    decision: float  # seconds of the longest step of the engine


def main() -> None:
    began = time.process_time()
    cases = [solve_case(*one) for one in product(FIGURES, SCALINGS, SEEDS)]
    record("joint-engine", "python -m bench.decisions joint-engine", text(cases, time.process_time() - began))


def run(figure: Figure, scaling: str, seed: int, order: Order = "free", **details: Any) -> Simulation:
    """Simulate a figure with the engine: a unit is one shard, and a node has as many as GPUs."""
    workload = Workload(configs=figure.tasks, partitions=sum(figure.devices), seconds=figure.shards(seed))
    cluster = Cluster(nodes=list(figure.devices), scaling={"data": SCALINGS[scaling]})
    return simulate(workload, cluster, order=order, check=True, **details)


def solve_case(figure: Figure, scaling: str, seed: int) -> Case:
    times, devices = figure.times(scaling, seed), figure.devices
    bound = load_bound(parse_joint(times, devices))
    longest = 0.0
    last = time.process_time()

    def watch(_step: object) -> None:
        nonlocal longest, last
        now = time.process_time()
        longest, last = max(longest, now - last), now

    watches: list[Observer] = [watch]
    free = run(figure, scaling, seed, watches=watches)
    if scaling == "sublinear" and seed == SEEDS[0]:
        PICTURES.mkdir(exist_ok=True)
        free.save(PICTURES / f"joint-engine-{figure.number}.svg")
    shards = [[{1: seconds}] * sum(devices) for seconds in figure.shards(seed)]
    others = [
        run(figure, scaling, seed, "strict").makespan,
        run(figure, scaling, seed, policy="monte-carlo").makespan,
        solve_joint(shards, [1] * sum(devices), method="random", seed=seed).makespan,
        solve_joint(times, devices, method="random", seed=seed).makespan,
        solve_joint(times, devices, method="dry-run", seconds=SECONDS, seed=seed).makespan,
    ]
    return Case(figure, scaling, free.makespan / bound, *(each / bound for each in others), longest)  # type: ignore[arg-type]


def text(cases: Sequence[Case], seconds: float) -> str:
    columns = [
        "figure, scaling", "engine, free order", "engine, strict order", "engine, Monte-Carlo", "one model per GPU",
        "whole nodes at random", "solver's dry run", "longest step", "aim",
    ]  # fmt: skip
    groups = [
        [case for case in cases if (case.figure, case.scaling) == group] for group in product(FIGURES, SCALINGS)
    ]
    missed = sum(case.free > AIMS[case.scaling] for case in cases)
    worse = sum(case.free > min(case.per_gpu, case.whole) * (1 + 1e-9) for case in cases)
    rows = [
        [
            f"{group[0].figure.name}, {group[0].scaling}",
            *(spread([case[column] for case in group], 3) for column in range(2, 8)),  # type: ignore[misc]
            f"{max(case.decision for case in group):.3f} s",
            f"{AIMS[group[0].scaling]}",
        ]
        for group in groups
        if group
    ]
    names = " ".join(f"[{figure.number}](pictures/joint-engine-{figure.number}.svg)" for figure in FIGURES)
    return "\n\n".join(
        [
            "## Figures 4.1 to 4.3 by the engine in simulation",
            "The problems of the section above, but the engine decides while it runs, by dry runs from the present "
            "state, and the invariant checker watches. A unit is one shard, so a task visits a node of 4 GPUs in 4 "
            f"units that may have different widths. Makespan over the largest load of a task or node, {len(SEEDS)} "
            "seeds: mean (least to greatest). In strict order the lineage fixes in which order a task visits the "
            "partitions; the bound does not know that. `longest step` is the processor time from one step of the "
            "engine to the next, simulation and checks included.",
            f"In free order the engine misses its aim in **{missed} of {len(cases)}** problems, and is worse than "
            f"one model per GPU or whole nodes at random in **{worse}**. All of it took {seconds:.0f} s of "
            "processor time.",
            table(columns, rows),
            f"Charts with sublinear scaling, seed {SEEDS[0]}: {names}",
        ]
    )
