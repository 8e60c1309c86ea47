"""Appendix D of the Cerebro paper (hopping, data parallelism, or a hybrid), decided by the engine in simulation.

It takes about a minute.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bench.results import record, table
from hoptree.core.settings import Order
from hoptree.forecast.simulation import simulate
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Workload

DEVICES, EPOCHS, PARTITIONS = 8, 2, 8
CONFIGS = range(1, 17)
SCALINGS = {
    "linear": {2: 2.0, 4: 4.0, 8: 8.0},
    "sublinear": {2: 1.8, 4: 3.1, 8: 5.2},
    "poor": {2: 1.5, 4: 2.1, 8: 2.6},
}
COSTS = ("equal", "different")
PICTURE = Path(__file__).parents[1] / "pictures" / "hybrid.svg"


class Case(NamedTuple):
    """Makespans of one problem, in units of the mean time of a unit on one device."""

    scaling: str
    costs: str
    order: Order
    configs: int
    hopping: float
    data_parallel: float
    ours: float
    bound: float


def main() -> None:
    began = time.process_time()
    cases = [solve_case(*one) for one in product(SCALINGS, COSTS, ("strict", "free"), CONFIGS)]  # type: ignore[arg-type]
    print(*filter(slower, cases), sep="\n")
    draw(cases)
    record("hybrid", "python -m bench.decisions hybrid", text(cases, time.process_time() - began))


def solve_case(scaling: str, costs: str, order: Order, configs: int) -> Case:
    """Simulate configs on one node: one device for each, all devices for each, and as the engine decides."""
    random = Random(configs)
    seconds = [random.uniform(0.5, 1.5) if costs == "different" else 1.0 for _ in range(configs)]
    workload = Workload(configs=configs, epochs=EPOCHS, partitions=PARTITIONS, seconds=seconds)
    hopping = [
        simulate(workload, cluster, order=order).makespan
        for cluster in (Cluster(nodes=[DEVICES]), Cluster(workers=DEVICES))  # each device holds all data, or a part
    ]
    ours = simulate(workload, Cluster(nodes=[DEVICES], scaling={"data": SCALINGS[scaling]}), order=order)
    data_parallel = EPOCHS * PARTITIONS * sum(seconds) / SCALINGS[scaling][DEVICES]
    return Case(scaling, costs, order, configs, min(hopping), data_parallel, ours.makespan, ours.bound)


def slower(case: Case) -> bool:
    """Return whether the engine is slower than either pure mode."""
    return case.ours > min(case.hopping, case.data_parallel) * (1 + 1e-9)


def text(cases: Sequence[Case], seconds: float) -> str:
    columns = ["configs", *(f"{scaling}, {costs}" for scaling, costs in product(SCALINGS, COSTS))]
    rows = []
    for configs in CONFIGS:
        row = [str(configs)]
        for scaling, costs in product(SCALINGS, COSTS):
            (case,) = (case for case in cases if case[:4] == (scaling, costs, "strict", configs))
            row.append(f"{case.hopping:.1f} / {case.data_parallel:.1f} / **{case.ours:.1f}** ({case.bound:.1f})")
        rows.append(row)
    worse = sum(map(slower, cases))
    faster = sum(case.ours < 0.99 * min(case.hopping, case.data_parallel) for case in cases)
    return "\n\n".join(
        [
            "## Hopping, data parallelism, or both (appendix D of the Cerebro paper)",
            f"1 to {max(CONFIGS)} configs on {DEVICES} devices that hold all {PARTITIONS} partitions, {EPOCHS} "
            "epochs, simulated with the engine's decisions. Equal costs, or drawn from U(0.5, 1.5). "
            "Makespan in times "
            "of a unit on one device: **hopping** (one device for each config; the better of a partition on each "
            "device and all on all), **data parallelism** (one config after another, on all devices), "
            "**ours**, and in "
            "parentheses the lower bound of ours. Speed-ups with 2, 4 and 8 devices: "
            + "; ".join(
                f"{name} {', '.join(f'{s:g}' for s in speeds.values())}" for name, speeds in SCALINGS.items()
            )
            + ". The table shows strict order.",
            f"Ours is slower than one of the pure modes in **{worse} of {len(cases)}** cases (strict and free "
            f"order), and more than 1 % faster than both in {faster}. All of it took {seconds:.0f} s of "
            "processor time.",
            table(columns, rows),
            f"![Makespan by the number of configs](pictures/{PICTURE.name})",
        ]
    )


def draw(cases: Sequence[Case]) -> None:
    """Draw the makespans of equal configs by their number, a chart for each scaling."""
    PICTURE.parent.mkdir(exist_ok=True)
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    FigureCanvasSVG(figure)
    for axes, scaling in zip(figure.subplots(1, len(SCALINGS), sharey=True), SCALINGS, strict=True):
        shown = [case for case in cases if case[:3] == (scaling, "equal", "strict")]
        for field, label in (("hopping", "hopping"), ("data_parallel", "data parallel"), ("ours", "Hoptree")):
            style = {"linewidth": 2.5, "color": "black"} if field == "ours" else {"linestyle": "--"}
            axes.plot(
                [case.configs for case in shown], [getattr(case, field) for case in shown], label=label, **style
            )
        axes.set_title(f"{scaling} scaling")
        axes.set_xlabel("configs")
        axes.set_ylim(0, 40)
        axes.grid(visible=True, alpha=0.3)
        if scaling == "linear":
            axes.set_ylabel("makespan")
            axes.legend()
    figure.savefig(PICTURE, format="svg")
