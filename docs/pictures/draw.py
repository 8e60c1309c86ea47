"""Draws the pictures of these pages from runs of the simulator: ``python docs/pictures/draw.py``.

Equal runs give equal files, so drawing them again changes nothing unless decisions have changed. Each picture comes
light and dark; pages name the light one.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import hoptree as ht
from hoptree.report.colours import lane_colour
from hoptree.report.page import LIGHT, Theme, theme_of
from hoptree.ui.workload_file import read

README = Path(__file__).parents[2] / "README.md"
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


def front() -> ht.Simulation:
    """Return the run of the README, from the file that it shows."""
    shown = re.search(r"^```toml\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    assert shown is not None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "study.toml"
        file.write_text(shown[1])
        return ht.simulate(*read(file))


def tree(result: ht.Simulation, path: Path, theme: Theme) -> None:
    """Draw the plan: a bar per node, from the epoch where it begins to the last that a trial asks for."""
    engine, partitions = result.engine, result.workload.partitions
    ways = [engine.plan.path_with_ends(trial, EPOCHS * partitions) for trial in engine.trials.values()]
    nodes = {node.id: node for way in ways for node, _ in way}
    ends = {number: max(end for way in ways for node, end in way if node.id == number) for number in nodes}
    serves = {number: sum(any(node.id == number for node, _ in way) for way in ways) for number in nodes}
    rows = _rows(nodes, ends)
    figure = Figure(figsize=(8.4, 3.4), layout="constrained", facecolor=theme.page)
    axes = figure.add_subplot(facecolor=theme.page)
    for number, node in nodes.items():
        start, end, row = node.start / partitions, ends[number] / partitions, rows[number]
        shape = {
            "boxstyle": "round,pad=0,rounding_size=0.08",
            "facecolor": lane_colour(number),
            "edgecolor": "none",
        }
        axes.add_patch(FancyBboxPatch((start + 0.03, row - 0.3), end - start - 0.06, 0.6, zorder=2, **shape))
        label = f"{number}" if serves[number] < 2 else f"{number}: {serves[number]} trials"
        middle = {"ha": "center", "va": "center_baseline"}
        axes.text((start + end) / 2, row, label, fontsize=9, color=LIGHT.ink, zorder=3, **middle)
        if node.parent is not None and node.parent.id in rows:
            axes.plot([start, start], [rows[node.parent.id], row], color=theme.muted, linewidth=1.2, zorder=1)
    axes.set(xlim=(-0.05, EPOCHS + 0.05), ylim=(max(rows.values()) + 0.6, -0.6), yticks=[])
    axes.set(xticks=range(EPOCHS + 1))
    axes.set_xlabel("epochs", color=theme.muted)
    work = result.work
    title = f"{len(ways)} trials · {work.asked / partitions:g} epochs asked · {work.unique / partitions:g} trained"
    axes.set_title(title, loc="left", fontsize=12, weight="bold", color=theme.ink, pad=10)
    axes.tick_params(colors=theme.muted, length=3)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(theme.muted)
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


def schedules(path: Path, theme: Theme) -> None:
    """Draw the learning rates of the run."""
    figure = Figure(figsize=(8.4, 2.6), layout="constrained", facecolor=theme.page)
    for index, rate in enumerate(RATES):
        axes = figure.add_subplot(2, 3, index + 1, facecolor=theme.page)
        steps = [step / 100 for step in range(EPOCHS * 100)]
        axes.plot(steps, [float(str(rate(step))) for step in steps], color=theme.muted, linewidth=1.6)
        axes.set(ylim=(-0.005, 0.112), xlim=(0, EPOCHS), xticks=range(0, EPOCHS + 1, 2), yticks=[0, 0.1])
        axes.set_title(str(rate).replace("constant(0.1)", "0.1"), fontsize=7.5, color=theme.ink, loc="left")
        axes.tick_params(colors=theme.muted, labelsize=7, length=2)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(theme.muted)
    figure.savefig(path, metadata={"Date": None})


def draw(folder: Path) -> None:
    """Draw all pictures into a folder."""
    first, shared, alone = front(), run(), run(share=False)
    crash = run(faults=[ht.Crash(worker="w1", at=60, back=120)])
    for dark, ending in ((False, ".svg"), (True, "-dark.svg")):
        with matplotlib.style.context(
            {"svg.hashsalt": "hoptree", "svg.fonttype": "path", "font.family": "DejaVu Sans"}
        ):
            tree(shared, folder / f"tree{ending}", theme_of(dark))
            schedules(folder / f"schedules{ending}", theme_of(dark))
        first.save(folder / f"gantt{ending}", dark=dark)
        shared.save(folder / f"shared{ending}", dark=dark)
        alone.save(folder / f"alone{ending}", dark=dark)
        crash.save(folder / f"crash{ending}", dark=dark)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
