"""Studies for plots: real engine, real search, real loop; only the workers and what they find are made up."""

from __future__ import annotations

import math
from typing import Any

import hoptree as ht
from hoptree.backends.event_loop import Observer, drive
from hoptree.backends.simulated import SimulatedBackend
from hoptree.core.engine import Engine
from hoptree.core.keys import fraction
from hoptree.core.lineage import Values
from hoptree.core.settings import Settings
from hoptree.report.study_timeline import StudyTimeline
from hoptree.report.timeline_builder import TimelineBuilder
from hoptree.search.protocol import Goal
from hoptree.search.tuner import Tuner
from hoptree.simulator.workload import Landscape

STEPPED = {
    "lr": ht.choice(1e-2, ht.multistep(1e-2, at=[4], gamma=0.1), ht.multistep(1e-2, at=[4, 8], gamma=0.1)),
    "width": ht.choice(32, 128),
    "act": ht.choice("relu", "gelu"),
}
WIDE = {
    "lr": ht.log(1e-5, 0.5),
    "width": ht.choice(16, 32, 64, 128, 256),
    "act": ht.choice("relu", "gelu", "tanh"),
    "drop": ht.uniform(0.0, 0.5),
    "depth": ht.integer(1, 12),
}
MIXED = {
    "lr": ht.choice(ht.log(1e-4, 1e-1), ht.multistep(ht.log(1e-4, 1e-1), at=[1], gamma=0.8)),
    "width": ht.choice(64, 128),
    "drop": ht.uniform(0.0, 0.5),
}
CONDITIONAL = {
    "lr": ht.log(1e-4, 0.1),
    "kind": ht.choice({"name": "sgd", "momentum": ht.uniform(0.0, 0.9)}, {"name": "adam"}),
}


def landscape() -> Landscape:
    def seconds(values: Values) -> float:
        return 2.0 + float(values.at(0.0).get("width") or 64) / 64  # type: ignore[arg-type]

    def metrics(values: Values, epoch: int, key: str) -> dict[str, float]:
        now: dict[str, Any] = values.at(float(epoch))
        noise = fraction("noise", key, epoch) - 0.5
        quality = math.exp(-((math.log10(now["lr"]) + 2.3) ** 2) / 1.2) * (1 - 8 / now.get("width", 64))
        accuracy = 0.1 + 0.85 * quality * (1 - math.exp(-epoch / 4)) + 0.01 * noise
        return {"accuracy": accuracy, "loss": 3 * (1 - accuracy) + (50 * now["lr"] if now["lr"] > 0.3 else 0)}

    return Landscape(seconds, metrics)


def run(
    procedure: Any,
    space: Any,
    *,
    maximize: bool = True,
    workers: int = 4,
    partitions: int = 4,
    watches: tuple[Observer, ...] = (),
    faults: Any = (),
    seed: int = 1,
) -> TimelineBuilder:
    """Run a study, and return who has listened."""
    goal = Goal("accuracy", True) if maximize else Goal("loss", False)
    engine = Engine(Settings(partitions))
    cluster = ht.Cluster(workers=workers, bandwidth=1e9, noise=0.1, faults=faults)
    backend = SimulatedBackend(cluster, partitions, landscape(), state_bytes=1e8, evaluation_seconds=0.4)
    builder = TimelineBuilder(engine.state)
    tuner = Tuner(procedure.search(space, goal, seed), study="made-up", root="root")
    drive(engine, backend, tuner, [*watches, builder.see])
    return builder


def history(procedure: Any, space: Any, *, maximize: bool = True, **options: Any) -> StudyTimeline:
    """Return what happened in a study."""
    told = run(procedure, space, maximize=maximize, **options)
    return told.study_timeline("made-up", "accuracy" if maximize else "loss", maximize)
