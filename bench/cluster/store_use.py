"""What lies in the object stores over a run of many hops, and after it.

Ray gathers what nobody refers to any more, and frees it once a second or a hundred objects at a time. So a run is
seen on a cluster as it comes, with units that take no time and with units that take some, and on one that frees at
once, which shows what we still refer to.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.cluster.closed import Observer, Shape, cluster
from bench.cluster.contestants.passes import Passes
from bench.cluster.programs import run
from bench.speed.workspace import workspace

SHAPE = Shape(2, memory=512 << 20)
MODELS = Passes(configs=4, epochs=28, state=4 << 20)  # neighbouring partitions lie on one node: two hops an epoch
QUICK = Passes(configs=2, epochs=2, state=4 << 20)
PARTITIONS = 4
WAYS: dict[str, tuple[dict[str, int], float]] = {  # settings of the cluster, and how long a unit takes at least
    "as Ray comes": ({}, 0.0),
    "as Ray comes, units of 0.1 s": ({}, 0.1),
    "freed at once": ({"free_objects_batch_size": 1}, 0.0),
}


class Sample(NamedTuple):
    """What all object stores together held at a time, and what they had taken in by then."""

    seconds: float
    used: int
    created: int


class Figures(NamedTuple):
    """The samples, what came of the study, and what was left of it."""

    models: Passes
    samples: list[Sample]
    savings: dict[str, Any]
    left_bytes: int
    left_actors: int
    left_references: int

    @property
    def hops(self) -> int:
        """How often a state went to another worker."""
        hopped: int = self.savings["bytes_hopped"] // self.savings["state_bytes"]
        return hopped

    def busy(self) -> list[Sample]:
        """Return the samples between the first states and the last."""
        last = self.samples[-1].created
        return [sample for sample in self.samples if 0.05 * last < sample.created < 0.95 * last]

    def halves(self) -> tuple[list[int], list[int]]:
        """Return the bytes held in the first half of the run, and in the second."""
        used = [sample.used for sample in self.busy()]
        return used[: len(used) // 2], used[len(used) // 2 :]


def measure(folder: Path, quick: bool) -> dict[str, Figures]:
    """Train with many hops in both ways, looking at the stores all the time."""
    import hoptree as ht

    rows = np.random.default_rng(0).random((1 << 15, 64), dtype=np.float32)
    data = folder / "small"
    ht.Dataset.from_arrays(x=rows, partitions=PARTITIONS, valid={"x": rows[:256]}, to=data)
    models = QUICK if quick else MODELS
    return {way: _measure(replace(models, nap=nap), data, folder, system) for way, (system, nap) in WAYS.items()}


def _measure(models: Passes, data: Path, folder: Path, system: dict[str, int]) -> Figures:
    samples: list[Sample] = []
    began = time.monotonic()
    with cluster(SHAPE, folder, **system) as address, Observer(address) as observer, workspace(folder) as out:

        def look() -> None:
            stores = observer.stores().values()
            used, created = sum(store.used for store in stores), sum(store.created for store in stores)
            samples.append(Sample(time.monotonic() - began, used, created))

        arguments = (data, out, address, models.as_json())
        _, result = run(
            "bench.cluster.contestants.passes", out, *arguments, log=folder / "log", meanwhile=look, period=0.05
        )
        left = observer.settled()
        look()
        actors, references = len(observer.workers()), observer.references()
    print(f"{system}: {len(samples)} samples, {result['savings']}", file=sys.stderr, flush=True)
    used = sum(store.used for store in left.values())
    return Figures(models, samples, result["savings"], used, actors, references)
