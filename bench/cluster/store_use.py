"""The content of the object stores during a run of many hops, and after it.

Ray releases unreferenced objects at once, but removes them later: once a second, a hundred objects at a time, or
when memory is needed. So there are two figures: the referenced objects, which Hoptree controls, and all objects,
which include up to a second of further states. They are measured on a cluster with default settings, with units
that take no time and with units that take some, with stores that are too small for that second, and on a cluster
that frees at once.
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

MODELS = Passes(configs=4, epochs=126, state=4 << 20)  # neighbouring partitions lie on one node: two hops an epoch
FEWER = replace(MODELS, epochs=28, nap=0.1)
QUICK = Passes(configs=2, epochs=2, state=4 << 20)
PARTITIONS = 4
SMALL = 96 << 20
LARGE = 512 << 20


class Way(NamedTuple):
    """What is trained, the bytes of a node's object store, and how many objects Ray gathers to free them."""

    models: Passes
    memory: int = LARGE
    batch: int = 100


WAYS = {
    "as Ray comes": Way(MODELS),
    "as Ray comes, units of 0.1 s": Way(FEWER),
    f"as Ray comes, stores of {SMALL >> 20} MiB": Way(MODELS, SMALL),
    "freed at once": Way(MODELS, batch=1),
}


class Sample(NamedTuple):
    """What all object stores together held at a time, and what they had taken in by then."""

    seconds: float
    used: int
    referred: int
    created: int


class Figures(NamedTuple):
    """The samples, what came of the study, and what was left of it."""

    models: Passes
    samples: list[Sample]
    savings: dict[str, Any]
    spilled: int
    left_bytes: int
    left_actors: int
    left_references: int

    @property
    def hops(self) -> int:
        """How often a state went to another worker."""
        hopped: int = self.savings["bytes_hopped"] // self.savings["state_bytes"]
        return hopped

    def quarters(self) -> list[list[Sample]]:
        """Return the samples between the first states and the last, by quarters of what was made."""
        last = self.samples[-1].created
        begun, ended = 0.05 * last, 0.95 * last
        found: list[list[Sample]] = [[], [], [], []]
        for sample in self.samples:
            if begun < sample.created < ended:
                found[int(4 * (sample.created - begun) / (ended - begun))].append(sample)
        return found


def measure(folder: Path, quick: bool) -> dict[str, Figures]:
    """Train with many hops in all ways, looking at the stores all the time."""
    import hoptree as ht

    rows = np.random.default_rng(0).random((1 << 15, 64), dtype=np.float32)
    data = folder / "small"
    ht.Dataset.from_arrays(x=rows, partitions=PARTITIONS, valid={"x": rows[:256]}, to=data)
    return {
        name: _measure(way._replace(models=QUICK) if quick else way, data, folder) for name, way in WAYS.items()
    }


def _measure(way: Way, data: Path, folder: Path) -> Figures:
    samples: list[Sample] = []
    began = time.monotonic()
    shape = Shape(2, memory=way.memory)
    system = {"free_objects_batch_size": way.batch}
    with cluster(shape, folder, **system) as address, Observer(address) as observer, workspace(folder) as out:

        def look() -> None:
            stores = observer.stores().values()
            used, referred, created, _ = map(sum, zip(*stores, strict=True))
            samples.append(Sample(time.monotonic() - began, used, referred, created))

        arguments = (data, out, address, way.models.as_json())
        _, result = run(
            "bench.cluster.contestants.passes", out, *arguments, log=folder / "log", meanwhile=look, period=0.05
        )
        left = observer.settled()
        look()
        actors, references = len(observer.workers()), observer.references()
    print(f"{way}: {len(samples)} samples, {result['savings']}", file=sys.stderr, flush=True)
    used, spilled = sum(store.used for store in left.values()), sum(store.spilled for store in left.values())
    return Figures(way.models, samples, result["savings"], spilled, used, actors, references)
