"""The cost of a hop through the object store: ``python -m bench.cluster.hop OUT ADDRESS LAYERS REPETITIONS``.

As in the backend, one actor returns a state, the driver hears of it, and passes its reference to another actor,
which loads it into a resident model: on the same node, or on another one. A hop ends when the state is in place.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
import ray

from bench.cluster.closed import Shape, cluster, nodes_of, on_node
from bench.cluster.programs import run
from bench.speed.hop import SIZES, Resident
from bench.speed.workspace import workspace
from hoptree.store import fingerprint

STATE = "300 MB"
WARM = 4  # repetitions before those that count
REPETITIONS = 24
QUICK = ("16 MB", 4)
SHAPE = Shape(2, cpus=2, memory=2 << 30)


@final
class Holder:
    """An actor with a resident model; what it returns second is the state, which the driver owns."""

    def __init__(self, layers: int, seed: int) -> None:
        self._resident = Resident(layers, seed)
        self._source = np.ones(self.size(), np.uint8)
        self._target = np.zeros(self.size(), np.uint8)

    @ray.method(num_returns=2)
    def dump(self) -> Any:
        """Return the time, and the state."""
        began = time.perf_counter()  # the same clock in all processes
        state = self._resident.dump()
        return began, (state.arrays, state.meta)

    def load(self, state: tuple[dict[str, np.ndarray], dict[str, Any]]) -> float:
        """Put a state in place, and return when it was."""
        self._resident.load(*state)
        return time.perf_counter()

    def fingerprint(self) -> str:
        """Return what is in the model."""
        return fingerprint(self._resident.dump().arrays)

    def copy(self) -> float:
        """Return the seconds of a memory copy of as many bytes, between buffers that warm after the first one."""
        began = time.perf_counter()
        np.copyto(self._target, self._source)
        return time.perf_counter() - began

    def size(self) -> int:
        """Return the bytes of the state."""
        return sum(array.nbytes for array in self._resident.dump().arrays.values())


def measure(folder: Path, quick: bool) -> dict[str, Any]:
    """Return the size of the state, and the seconds of every repetition by way."""
    title, repetitions = QUICK if quick else (STATE, REPETITIONS)
    with cluster(SHAPE, folder) as address, workspace(folder) as out:
        arguments = (out, address, SIZES[title], repetitions)
        _, result = run("bench.cluster.hop", out, *arguments, log=folder / "log")
    return {"title": title, **result}


def main(out: Path, address: str, layers: int, repetitions: int) -> None:
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    here, there = nodes_of()
    sender = on_node(Holder, here).remote(layers, 1)
    neighbour = on_node(Holder, here).remote(layers, 2)
    stranger = on_node(Holder, there).remote(layers, 3)

    def hop(target: Any) -> float:
        news, state = sender.dump.remote()
        began = ray.get(news)
        ended: float = ray.get(target.load.remote(state))
        return ended - began

    ways: dict[str, Callable[[], float]] = {
        "copy": lambda: ray.get(sender.copy.remote()),
        "within": lambda: hop(neighbour),
        "between": lambda: hop(stranger),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for repetition in range(WARM + repetitions):
        for way, once in ways.items():
            took = once()
            if repetition >= WARM:
                seconds[way].append(took)
    prints = ray.get([actor.fingerprint.remote() for actor in (sender, neighbour, stranger)])
    assert len(set(prints)) == 1, "the state did not arrive as it was sent"
    figures = {"bytes": ray.get(sender.size.remote()), "seconds": seconds}
    ray.shutdown()
    (out / "result.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
