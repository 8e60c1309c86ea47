"""How good a search is on the way, not only at the end: the area under its regret, by policy.

    python -m bench.search_quality_anytime [seeds [the first]]

The regret at a time is how far the true loss of the best report so far is above the best that any config reaches.
Its area is taken over simulated time with 4 workers, up to the later of the two makespans, and divided by it. A
unit takes as long as the config is deep, so trials differ by up to a factor of 4.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from tests.search import landscape
from tests.search.landscape import Shape

from bench.results import record, table
from hoptree.core.actions import Report
from hoptree.core.events import TrialAsked
from hoptree.core.lineage import Values
from hoptree.core.steps import Step
from hoptree.forecast.simulation import Simulation, simulate
from hoptree.search import ASHA, Hyperband, MedianStopping, Optuna, Procedure, Random, SuccessiveHalving
from hoptree.simulator import Cluster, Workload
from hoptree.simulator.workload import Landscape

EPOCHS = 27
WORKERS = 4
UNTRAINED = 1.2  # the loss before anything is reported
SHAPES: dict[str, Shape] = {"falling": landscape.curve, "crossing": landscape.crossing}
PLACEMENTS = {"1 partition, held by all": 1, "4 partitions, one each": 4}
PROCEDURES: dict[str, Procedure] = {
    "Random": Random(20, EPOCHS),
    "SuccessiveHalving": SuccessiveHalving(81, EPOCHS),
    "Hyperband": Hyperband(EPOCHS, rounds=2),
    "Hyperband, every=1": Hyperband(EPOCHS, rounds=2, every=1),
    "ASHA": ASHA(81, EPOCHS, concurrent=8),
    "MedianStopping": MedianStopping(80, EPOCHS, concurrent=8),
}
POLICIES = ("longest-path", "first-come", "breadth-first")


class Row(NamedTuple):
    """A row of the table, and the area of the default policy over longest path's."""

    procedure: str
    cells: list[object]
    ratio: float


class Played(NamedTuple):
    """One simulated search: when its best report got better and how far that was from the best, and its end."""

    steps: list[tuple[float, float]]
    makespan: float
    level: float
    idle: float  # makespan over the time of the work without idle workers

    def area(self, until: float) -> float:
        """Return the mean regret up to a time."""
        total, before, regret = 0.0, 0.0, UNTRAINED
        for now, lower in [*self.steps, (until, 0.0)]:
            total += (min(now, until) - before) * regret
            before, regret = min(now, until), lower
        return total / until


def play(procedure: Procedure, seed: int, policy: str, shape: Shape, partitions: int) -> Played:
    """Run a search on the simulated backend, and follow its regret."""
    best = min(shape({**_OPTIMUM, "lr": 10 ** (tenth / 50)}, EPOCHS) for tenth in range(-200, 1))
    configs: dict[int, dict[str, Any]] = {}
    steps: list[tuple[float, float]] = []
    lowest = math.inf

    def watch(step: Step) -> None:
        nonlocal lowest
        if isinstance(step.event, TrialAsked):
            configs[step.event.trial] = dict(step.event.config)
        for action in step.actions:
            if isinstance(action, Report) and action.metrics["loss"] < lowest:
                lowest = action.metrics["loss"]
                steps.append((step.now, shape(configs[action.trial], action.epoch) - best))

    def metrics(values: Values, epoch: int, _key: str) -> dict[str, float]:
        return {"loss": landscape.loss(values.constants(), epoch, seed, shape)}

    def seconds(values: Values) -> float:
        return float(values.constants()["depth"]) / partitions  # type: ignore[arg-type]

    result: Simulation = simulate(
        Workload(partitions=partitions),
        Cluster(workers=WORKERS, noise=0.2),
        policy=policy,
        search=procedure.search(landscape.SPACE, landscape.LOSS, seed),
        landscape=Landscape(seconds, metrics),
        seed=seed,
        watches=[watch],
    )
    level = landscape.level(landscape.best(result, seed, shape))
    return Played(steps, result.makespan, level, WORKERS * result.makespan / result.busy_seconds)


def row(seeds: range, name: str, shape: str, placement: str) -> Row:
    """Compare the policies for one procedure."""
    runs = {
        policy: [play(PROCEDURES[name], seed, policy, SHAPES[shape], PLACEMENTS[placement]) for seed in seeds]
        for policy in POLICIES
    }
    before = runs["longest-path"]
    cells: list[object] = [name, shape, placement]
    ratios: dict[str, float] = {}
    for policy in POLICIES:
        pairs = [_areas(old, new) for old, new in zip(before, runs[policy], strict=True)]
        old, new = mean(b for b, _ in pairs), mean(a for _, a in pairs)
        ratios[policy] = new / old
        cells.append(f"{new:.4f}" if policy == "longest-path" else f"{new:.4f} ({_ratio(new, old, pairs)})")
    cells += [f"{mean(run.level for run in runs[policy]):.4f}" for policy in POLICIES[:2]]
    spans = [mean(run.makespan for run in runs[policy]) for policy in POLICIES[:2]]
    cells.append(f"{spans[1] / spans[0]:.3f}")
    return Row(name, cells, ratios["first-come"])


def summary(rows: Sequence[Row], *names: str) -> str:
    """Return the mean ratio of some procedures over all landscapes and placements of the data."""
    means = {name: mean(each.ratio for each in rows if each.procedure == name) for name in names}
    listed = ", ".join(f"{name} {value:.2f}" for name, value in means.items())
    return (
        f"Area of first come over longest path's, mean of the {len(SHAPES) * len(PLACEMENTS)} settings: {listed}."
    )


def _areas(old: Played, new: Played) -> tuple[float, float]:
    end = max(old.makespan, new.makespan)
    return old.area(end), new.area(end)


def _ratio(new: float, old: float, pairs: Sequence[tuple[float, float]]) -> str:
    """Return the ratio of two means with its standard error."""
    rests = [after - new / old * before for before, after in pairs]
    error = stdev(rests) / math.sqrt(len(rests)) / old if len(rests) > 1 else 0.0
    return f"{new / old:.2f} ± {error:.2f}"


def batches(seeds: range) -> list[list[object]]:
    """Return how long Optuna's samplers take over what the work takes, with batches and without."""
    rows: list[list[object]] = []
    for partitions in PLACEMENTS.values():
        for batch, asynchronous in ((4, False), (4, True), (8, True)):
            name = f"asynchronous, {batch} under way" if asynchronous else f"batches of {batch}"
            procedure = Optuna("tpe", trials=40, epochs=9, every=0, batch=batch, asynchronous=asynchronous)
            runs = [play(procedure, seed, "first-come", landscape.curve, partitions) for seed in seeds]
            idle, level = mean(run.idle for run in runs), mean(run.level for run in runs)
            rows.append([name, partitions, f"{idle:.2f}", f"{level:.4f}"])
    return rows


def main(count: int = 20, first: int = 0) -> None:
    seeds = range(first, first + count)
    rows = [
        row(seeds, name, shape, placement) for placement in PLACEMENTS for shape in SHAPES for name in PROCEDURES
    ]
    columns = [
        "procedure",
        "landscape",
        "data",
        "longest path first",
        "first come (default)",
        "breadth first",
        "final, longest path",
        "final, first come",
        "makespan, first come / longest path",
    ]
    text = (
        "## Anytime performance of searches\n\n"
        "The area under the regret over simulated time, as the mean regret while it runs, with 4 workers; means "
        f"over the seeds {first} to {seeds[-1]}, in brackets over longest path's, ± its standard error. A unit "
        "takes as long as the config is deep (1 to 4). The finals are levels, 0 is the best.\n\n"
        + summary(rows, "Random", "Hyperband")
        + "\n\n"
        + table(columns, [each.cells for each in rows])
        + "\n\nOptuna's TPE, 40 trials of 9 epochs: the makespan over the time that the work takes if no worker is "
        "ever idle, and the final level.\n\n"
        + table(["mode", "partitions", "makespan / work", "final"], batches(seeds))
    )
    command = " ".join(["python -m bench.search_quality_anytime", *sys.argv[1:]])
    record("search-anytime", command, text)


_OPTIMUM = {"momentum": 0.7, "dropout": 0.25, "depth": 3}

if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
