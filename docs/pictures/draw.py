"""Draws the pictures of these pages from runs of the simulator: ``python docs/pictures/draw.py``.

Equal runs give equal files, so drawing them again changes nothing unless decisions have changed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import hoptree as ht
from hoptree.report.colours import lane_colour

INK, MUTED = "#1f2430", "#6b7280"
RATES = [
    ht.constant(0.1),
    ht.multistep(0.1, at=[2], gamma=0.1),
    ht.multistep(0.1, at=[4], gamma=0.1),
    ht.multistep(0.1, at=[2, 4], gamma=0.1),
    ht.warmup(0.0, 1, ht.constant(0.1)),
    ht.warmup(0.0, 1, ht.multistep(0.1, at=[3], gamma=0.1)),
]
EPOCHS = 6


def run(share: bool = True, workers: int = 3, **faults: Any) -> ht.Simulation:
    """Return the run that all pictures are of: six learning rates, six epochs, three partitions."""
    configs = [{"lr": rate} for rate in RATES]
    workload = ht.Workload(configs=configs, epochs=EPOCHS, partitions=3, seconds=10, share=share)
    return ht.simulate(workload, ht.Cluster(workers=workers, **faults))


def tree(result: ht.Simulation, path: Path) -> None:
    """Draw the plan: a bar per node, from the epoch where it begins to the last that a trial asks for."""
    engine, partitions = result.engine, result.workload.partitions
    ways = [engine.plan.way(trial, EPOCHS * partitions) for trial in engine.trials.values()]
    nodes = {node.id: node for way in ways for node, _ in way}
    ends = {number: max(end for way in ways for node, end in way if node.id == number) for number in nodes}
    serves = {number: sum(any(node.id == number for node, _ in way) for way in ways) for number in nodes}
    rows = _rows(nodes, ends)
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for number, node in nodes.items():
        start, end, row = node.start / partitions, ends[number] / partitions, rows[number]
        shape = {
            "boxstyle": "round,pad=0,rounding_size=0.08",
            "facecolor": lane_colour(number),
            "edgecolor": "none",
        }
        axes.add_patch(FancyBboxPatch((start + 0.03, row - 0.3), end - start - 0.06, 0.6, zorder=2, **shape))
        label = f"{number}" if serves[number] < 2 else f"{number}: {serves[number]} trials"
        axes.text((start + end) / 2, row, label, ha="center", va="center_baseline", fontsize=9, color=INK, zorder=3)
        if node.parent is not None and node.parent.id in rows:
            axes.plot([start, start], [rows[node.parent.id], row], color=MUTED, linewidth=1.2, zorder=1)
    axes.set(xlim=(-0.05, EPOCHS + 0.05), ylim=(max(rows.values()) + 0.6, -0.6), yticks=[])
    axes.set(xticks=range(EPOCHS + 1))
    axes.set_xlabel("epochs", color=MUTED)
    work = result.work
    title = f"{len(ways)} trials · {work.asked / partitions:g} epochs asked · {work.unique / partitions:g} trained"
    axes.set_title(title, loc="left", fontsize=12, weight="bold", color=INK, pad=10)
    axes.tick_params(colors=MUTED, length=3)
    axes.spines[["top", "left", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def _rows(nodes: dict[int, Any], ends: dict[int, int]) -> dict[int, int]:
    """Return a row for each node: what leaves last stands nearest, so that no line crosses a bar."""
    rows: dict[int, int] = {}

    def put(number: int, row: int) -> None:
        rows[number] = row
        children = [child for child in nodes.values() if child.parent is not None and child.parent.id == number]
        for child in sorted(children, key=lambda child: (-child.start, child.id)):
            goes_on = child.start == ends[number]
            put(child.id, row if goes_on else max(rows.values()) + 1)

    for number, node in nodes.items():
        if node.parent is None or node.parent.id not in nodes:
            put(number, max(rows.values(), default=-1) + 1)
    return rows


def schedules(path: Path) -> None:
    """Draw the learning rates of the run."""
    figure = Figure(figsize=(8.4, 2.6), layout="constrained")
    for index, rate in enumerate(RATES):
        axes = figure.add_subplot(2, 3, index + 1)
        steps = [step / 100 for step in range(EPOCHS * 100)]
        axes.plot(steps, [float(str(rate(step))) for step in steps], color=MUTED, linewidth=1.6)
        axes.set(ylim=(-0.005, 0.112), xlim=(0, EPOCHS), xticks=range(0, EPOCHS + 1, 2), yticks=[0, 0.1])
        axes.set_title(str(rate).replace("constant(0.1)", "0.1"), fontsize=7.5, color=INK, loc="left")
        axes.tick_params(colors=MUTED, labelsize=7, length=2)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def draw(folder: Path) -> None:
    """Draw all pictures into a folder."""
    shared = run()
    with matplotlib.style.context(
        {"svg.hashsalt": "hoptree", "svg.fonttype": "path", "font.family": "DejaVu Sans"}
    ):
        tree(shared, folder / "tree.svg")
        schedules(folder / "schedules.svg")
    shared.save(folder / "shared.svg")
    run(share=False).save(folder / "alone.svg")
    run(faults=[ht.Crash(worker="w1", at=60, back=120)]).save(folder / "crash.svg")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
