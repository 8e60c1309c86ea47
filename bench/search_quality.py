"""How good the configs are that each procedure finds, at equal budget, against the implementations of its name.

    python -m bench.search_quality [seeds [the first]]
    python -m bench.search_quality crossing [seeds [the first]]

The second command compares MedianStopping and Optuna's pruner on crossing curves only.

What they have found on the way is in ``search_quality_anytime``.

The landscapes are those of the tests. Optuna runs as it is, one trial after the other. Of Ray Tune the schedulers
themselves decide (see ``search_quality_ray``).
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable
from statistics import mean, stdev
from typing import Any

import optuna
from tests.search import landscape, moving
from tests.search.landscape import Found

from bench.results import record, table
from bench.search_quality_ray import asha_of_ray, median_of_ray, rays, rays_population
from hoptree.search import ASHA, PBT, Hyperband, MedianStopping, Optuna, Procedure, Random, SuccessiveHalving

EPOCHS = 27
Reference = Callable[[int, float], Found]
COLUMNS = ("procedure", "reference", "ours", "reference", "difference", "epochs", "of the reference")


def main(count: int = 20, first: int = 0) -> None:
    logging.getLogger("ray").setLevel(logging.ERROR)
    seeds = range(first, first + count)
    rows = [row(seeds, *pairing) for pairing in PAIRINGS]
    rows.append(population(seeds, "a textbook's", moving.textbook))
    rows.append(population(seeds, "Ray Tune's", rays_population))
    text = (
        "## Quality of what searches find\n\n"
        "The level that the recommended config really has (0 is the best), mean over the seeds "
        f"{first} to {seeds[-1]}, at equal budget; difference ± its standard error. Where no sampler is compared, "
        "both sides try the same configs in the same order. PBT is on a landscape whose best learning rate falls "
        "on the way.\n\n"
    )
    command = " ".join(["python -m bench.search_quality", *sys.argv[1:]])
    record("search-quality", command, text + table(COLUMNS, rows))


def crossing(count: int = 30, first: int = 0) -> None:
    """Compare MedianStopping with Optuna's pruner where better configs learn more slowly."""
    seeds = range(first, first + count)
    shape = landscape.crossing
    reference = optunas(optuna.pruners.MedianPruner, shape=shape)
    rows: list[list[object]] = []
    for concurrent in (16, 4):
        procedure = MedianStopping(80, EPOCHS, concurrent=concurrent)
        name = f"MedianStopping, concurrent={concurrent}"
        rows.append(row(seeds, name, procedure, "Optuna's pruner", reference, shape))
    text = (
        "## MedianStopping where curves cross\n\n"
        "The better a config, the more slowly it learns, so a search that stops early stops good configs. "
        f"Levels of the recommended config (0 is the best), mean over the seeds {first} to {seeds[-1]}, at equal "
        "budget; difference ± its standard error; the same configs in the same order.\n\n"
    )
    command = " ".join(["python -m bench.search_quality", *sys.argv[1:]])
    record("search-crossing", command, text + table(COLUMNS, rows))


def row(
    seeds: range,
    name: str,
    procedure: Procedure,
    against: str,
    reference: Reference,
    shape: landscape.Shape = landscape.curve,
) -> list[object]:
    ours = [landscape.ours(procedure, seed, shape=shape) for seed in seeds]
    others = [reference(seed, found.epochs) for seed, found in zip(seeds, ours, strict=True)]
    levels = [found.level for found in ours], [found.level for found in others]
    return figures(name, against, *levels, mean(f.epochs for f in ours), mean(f.epochs for f in others))


def figures(
    name: str, against: str, ours: list[float], others: list[float], epochs: float, theirs: float
) -> list[object]:
    differences = [a - b for a, b in zip(ours, others, strict=True)]
    error = stdev(differences) / math.sqrt(len(differences))
    difference = f"{mean(differences):+.4f} ± {error:.4f}"
    return [name, against, f"{mean(ours):.4f}", f"{mean(others):.4f}", difference, f"{epochs:.0f}", f"{theirs:.0f}"]


# --- Optuna -----------------------------------------------------------------------------------------------


def optunas(
    pruner: Callable[[], Any] | None = None,
    sampler: Any = None,
    epochs: int = EPOCHS,
    shape: landscape.Shape = landscape.curve,
) -> Reference:
    def run(seed: int, budget: float) -> Found:
        return landscape.reference(seed, budget, epochs, sampler=sampler, pruner=pruner and pruner(), shape=shape)

    return run


def tpe(seed: int) -> Any:
    return optuna.samplers.TPESampler(seed=seed)


def cma_es(seed: int) -> Any:
    return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def gaussian_process(seed: int) -> Any:
    return optuna.samplers.GPSampler(seed=seed)


def random_sampler(seed: int) -> Any:
    return optuna.samplers.RandomSampler(seed=seed)


def halving() -> Any:
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)


def hyperband() -> Any:
    return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EPOCHS, reduction_factor=3)


def population(seeds: range, against: str, reference: Callable[[PBT, int], tuple[float, int]]) -> list[object]:
    procedure = PBT(20, moving.EPOCHS, interval=1)
    ours = [moving.ours(procedure, seed) for seed in seeds]
    others = [reference(procedure, seed) for seed in seeds]
    levels = [loss for loss, _ in ours], [loss for loss, _ in others]
    return figures("PBT", against, *levels, mean(e for _, e in ours), mean(e for _, e in others))


PAIRINGS: list[tuple[str, Procedure, str, Reference]] = [
    ("Random", Random(20, EPOCHS, every=0), "Optuna's sampler", optunas(sampler=random_sampler)),
    ("SuccessiveHalving", SuccessiveHalving(81, EPOCHS), "Optuna's pruner", optunas(halving)),
    ("Hyperband", Hyperband(EPOCHS, rounds=2), "Optuna's pruner", optunas(hyperband)),
    ("ASHA, promote", ASHA(81, EPOCHS, concurrent=8), "Optuna's pruner", optunas(halving)),
    ("ASHA, promote", ASHA(81, EPOCHS, concurrent=8), "Ray Tune's scheduler", rays(asha_of_ray)),
    ("ASHA, stop", ASHA(81, EPOCHS, mode="stop", concurrent=8), "Ray Tune's scheduler", rays(asha_of_ray)),
    ("MedianStopping", MedianStopping(80, EPOCHS), "Optuna's pruner", optunas(optuna.pruners.MedianPruner)),
    ("MedianStopping", MedianStopping(80, EPOCHS), "Ray Tune's scheduler", rays(median_of_ray)),
    (
        "Optuna, tpe asynchronous, 4 under way",
        Optuna("tpe", trials=40, epochs=9, every=0, batch=4, asynchronous=True),
        "Optuna, one by one",
        optunas(sampler=tpe, epochs=9),
    ),
    (
        "Optuna, tpe in batches of 4",
        Optuna("tpe", trials=40, epochs=9, every=0, batch=4),
        "Optuna, one by one",
        optunas(sampler=tpe, epochs=9),
    ),
    (
        "Optuna, cma-es in batches of 4",
        Optuna("cma-es", trials=80, epochs=9, every=0, batch=4),
        "Optuna, one by one",
        optunas(sampler=cma_es, epochs=9),
    ),
    (
        "Optuna, gp in batches of 4",
        Optuna("gp", trials=24, epochs=9, every=0, batch=4),
        "Optuna, one by one",
        optunas(sampler=gaussian_process, epochs=9),
    ),
    (
        "BOHB",
        Hyperband(EPOCHS, rounds=2, sampler=Optuna("tpe")),
        "Optuna's TPE and pruner",
        optunas(hyperband, tpe),
    ),
]


if __name__ == "__main__":
    if sys.argv[1:2] == ["crossing"]:
        crossing(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
