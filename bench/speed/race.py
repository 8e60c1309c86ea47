"""The race: every contestant once in every repeat, in rotating order, each in fresh processes."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, final

from bench.speed.measure import Measured, measure
from bench.speed.settings import ARRAYS, CONFIGS, DATASET
from bench.speed.workspace import workspace

# Ray's daemons listen for commands: with a token, and on 127.0.0.1 only. Ray takes the address of a network card
# even with other settings, unless it believes that it cannot be part of a cluster.
RAY = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


class Contestant(NamedTuple):
    """A program that trains W1."""

    title: str
    module: str
    form: str  # of the data it reads


CONTESTANTS = {
    "bare": Contestant("bare bound", "bare", ARRAYS),
    "hoptree": Contestant("Hoptree, `share=False`", "hoptree_study", DATASET),
    "loader": Contestant("DataLoader loop", "data_loader", ARRAYS),
    "ray": Contestant("Ray Tune", "ray_tune", ARRAYS),
    "optuna": Contestant("Optuna", "optuna_grid", ARRAYS),
}


class Run(NamedTuple):
    """One run of a contestant."""

    measured: Measured
    accuracy: float  # of all configs, in the mean
    hopped: int | None


@final
class Race:
    """What was measured, by contestant and repeat."""

    def __init__(self, preparations: Mapping[str, Sequence[float]], runs: Mapping[str, Sequence[Run]]) -> None:
        self.preparations = preparations
        self.runs = runs

    def walls(self, name: str) -> list[float]:
        """Return wall times by repeat."""
        return [run.measured.wall for run in self.runs[name]]

    def ratios(self, name: str, other: str) -> list[float]:
        """Return wall times over another's in the same repeat."""
        return [mine / theirs for mine, theirs in zip(self.walls(name), self.walls(other), strict=True)]


def race(names: Sequence[str], repeats: int, folder: Path) -> Race:
    """Prepare the data, and let the contestants run."""
    data, log = folder / "data", folder / "log"
    preparations: dict[str, list[float]] = {ARRAYS: [], DATASET: []}
    for _ in range(repeats):
        for form, seconds in preparations.items():
            seconds.append(prepare(form, data, log))
    measure("bench.speed.warm", log=log)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for repeat in range(repeats):
        start = repeat % len(names)
        for name in (*names[start:], *names[:start]):
            run = _run(CONTESTANTS[name], folder)
            runs[name].append(run)
            print(f"repeat {repeat + 1}, {name}: {run}", file=sys.stderr, flush=True)
    return Race(preparations, runs)


def prepare(form: str, data: Path, log: Path) -> float:
    """Write the data in a format again, in a separate program, and return the seconds it took."""
    data.mkdir(exist_ok=True)
    rmtree(data / form, ignore_errors=True)
    return measure("bench.speed.data", form, data, log=log).wall


def _run(contestant: Contestant, folder: Path) -> Run:
    env = {**RAY, "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with workspace(folder) as out:
        module = f"bench.speed.contestants.{contestant.module}"
        measured = measure(module, folder / "data", out, log=folder / "log", env=env)
        result: dict[str, Any] = json.loads((out / "result.json").read_text())
    accuracies: dict[str, float] = result["accuracies"]
    assert len(accuracies) == len(CONFIGS), (contestant.title, accuracies)
    assert min(accuracies.values()) > 0.8, (contestant.title, accuracies)  # the least of an honest run is 0.84
    return Run(measured, sum(accuracies.values()) / len(accuracies), result.get("bytes_hopped"))
