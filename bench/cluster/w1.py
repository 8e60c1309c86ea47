"""W1 on this machine, on clusters, and with Ray Tune on a cluster: in every repeat once, in rotating order.

Clusters are up before a program starts, and their daemons have come to rest. Whoever trains W1 with Hoptree has to
come to the same weights.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.cluster.closed import Shape, cluster
from bench.cluster.programs import run
from bench.cluster.spent import Meter, Spent
from bench.speed import race
from bench.speed.settings import ARRAYS, CONFIGS, DATASET, PARTITIONS
from bench.speed.workspace import STORE, STUDY, workspace

QUICK_ROWS = 6000


class Contestant(NamedTuple):
    """A program that trains W1, and the cluster that it joins."""

    title: str
    module: str
    shape: Shape | None = None


ONE, TWO = Shape(1, cpus=2), Shape(2)
CONTESTANTS = {
    "local": Contestant("Hoptree, local", "hoptree_w1"),
    "ray": Contestant(f"Hoptree, Ray, {ONE}", "hoptree_w1", ONE),
    "ray-2": Contestant(f"Hoptree, Ray, {TWO}", "hoptree_w1", TWO),
    "tune": Contestant(f"Ray Tune, {ONE}", "ray_tune_w1", ONE),
    "tune-2": Contestant(f"Ray Tune, {TWO}", "ray_tune_w1", TWO),
}


class Run(NamedTuple):
    """One run, in seconds: the program from start to exit, the call that trains, and what of it was no training."""

    program: float
    run: float  # Hoptree: study.run(); Ray Tune: ray.init(), the tuner, and fit()
    fit: float  # Ray Tune only, else as above
    before: float  # until the first worker was ready to train; Hoptree only
    training: float  # from then until the last event
    hopped: int
    between: int
    spent: Spent
    accuracy: float
    fingerprints: tuple[str, ...]


Runs = Mapping[str, Sequence[Run]]


def measure(folder: Path, repeats: int, quick: bool) -> Runs:
    """Prepare the data, and let all run."""
    data, log = folder / "data", folder / "log"
    for form in (ARRAYS, DATASET):
        race.prepare(form, data, log)
    if quick:
        _cut(data)
    runs: dict[str, list[Run]] = {name: [] for name in CONTESTANTS}
    names = list(CONTESTANTS)
    for repeat in range(repeats):
        start = repeat % len(names)
        for name in (*names[start:], *names[:start]):
            runs[name].append(found := _run(CONTESTANTS[name], data, folder, quick))
            print(f"repeat {repeat + 1}, {name}: {found._replace(fingerprints=())}", file=sys.stderr, flush=True)
    prints = {found.fingerprints for several in runs.values() for found in several if found.fingerprints}
    assert len(prints) == 1, "a cluster has trained something else"
    return runs


def _run(contestant: Contestant, data: Path, folder: Path, quick: bool) -> Run:
    with workspace(folder) as out:
        arguments: list[object] = [data, out]
        module, log, meter = f"bench.cluster.contestants.{contestant.module}", folder / "log", Meter()
        with ExitStack() as stack:
            if contestant.shape is not None:
                arguments.append(stack.enter_context(cluster(contestant.shape, folder, head=True)))
                meter.settle()
            seconds, result = run(module, out, *arguments, log=log, meanwhile=meter.look, period=0.5)
        accuracies = result["accuracies"]
        assert len(accuracies) == len(CONFIGS), (contestant, accuracies)
        assert quick or min(accuracies.values()) > 0.8, (contestant, accuracies)
        hoptree = contestant.module == "hoptree_w1"
        began, ended = _span(out) if hoptree else (0.0, 0.0)
        return Run(
            program=seconds,
            run=result["run"],
            fit=result.get("fit", result["run"]),
            before=began,
            training=ended - began,
            hopped=result.get("bytes_hopped", 0),
            between=result.get("bytes_between_nodes", 0),
            spent=meter.spent,
            accuracy=sum(accuracies.values()) / len(accuracies),
            fingerprints=_fingerprints(data, out) if hoptree else (),
        )


def _span(out: Path) -> tuple[float, float]:
    """Return when the first worker joined, and when the last thing happened, since workers were sent for."""
    from hoptree.core.events import WorkerJoined
    from hoptree.store import Store

    with Store(out / STORE, create=False) as store:
        recorded = list(store.journal.read(STUDY))
    began = next(entry.now for entry in recorded if isinstance(entry.entry.event, WorkerJoined))
    return began, recorded[-1].now


def _fingerprints(data: Path, out: Path) -> tuple[str, ...]:
    from bench.speed.contestants.hoptree_study import study

    return tuple(trial.fingerprint for trial in study(data, out).results().trials)


def _cut(data: Path) -> None:
    """Keep a few of the training images."""
    from shutil import rmtree

    import hoptree as ht

    columns = {name: np.load(data / ARRAYS / f"{name}.npy") for name in ("x", "y", "test_x", "test_y")}
    columns |= {name: columns[name][:QUICK_ROWS] for name in ("x", "y")}
    for name in ("x", "y"):
        np.save(data / ARRAYS / f"{name}.npy", columns[name])
    rmtree(data / DATASET)
    valid = {"x": columns["test_x"], "y": columns["test_y"]}
    ht.Dataset.from_arrays(x=columns["x"], y=columns["y"], partitions=PARTITIONS, valid=valid, to=data / DATASET)
