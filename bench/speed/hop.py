"""The cost of a hop: ``python -m bench.speed.hop OUT`` takes states out of one process and puts them into another.

A repetition is a memory copy of as many bytes, a hop through a slot that is mapped already, and a hop through a
fresh file in shared memory. A hop ends when the state is in place in the resident model of the other process.
"""

from __future__ import annotations

import json
import mmap
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import numpy as np
import torch
from torch import nn

import hoptree as ht
from bench.speed.workspace import memory_of
from hoptree.store import fingerprint
from hoptree.trainers.base import ModelState
from hoptree.worker.slots import SlotReader, SlotWriter

SIZES = {"16 MB": 4, "300 MB": 75}  # layers of 1000 x 1000 weights: 4 MB each
REPETITIONS = 24
WARM = 4  # repetitions before them that do not count


def net(hp: Mapping[str, Any]) -> nn.Module:
    return nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(hp["layers"])))


@final
class Resident:
    """A model that stays in a process, of a trainer that users use."""

    def __init__(self, layers: int, seed: int) -> None:
        torch.set_num_threads(1)
        self._trainer = ht.Torch(net, loss=nn.functional.mse_loss, optimizer="sgd")
        self._model = self._trainer.build({"layers": layers, "lr": 0.1}, seed)

    def dump(self) -> ModelState:
        """Return the state, as a worker takes it out."""
        return self._trainer.dump(self._model)

    def load(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Put a state in place, as a worker does."""
        self._trainer.load(self._model, ModelState(arrays, meta))


def receive(pipe: Connection, layers: int) -> None:
    """Be the other process: put states into a resident model, and say when they were in place."""
    resident = Resident(layers, seed=2)
    meta = resident.dump().meta
    shapes = {name: array.shape for name, array in resident.dump().arrays.items()}
    reader = SlotReader()
    pipe.send(None)  # ready
    while (message := pipe.recv()) is not None:
        kind, name = message
        if kind == "slot":
            header, arrays = reader.read(name)
            resident.load(arrays, header.meta)
        else:
            resident.load(_mapped(Path(name), shapes), meta)
        pipe.send(time.perf_counter())  # the same clock in all processes
    pipe.send(fingerprint(resident.dump().arrays))


def _mapped(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays, offset = {}, 0
    for name, shape in shapes.items():
        arrays[name] = np.frombuffer(mapped, np.float32, int(np.prod(shape)), offset).reshape(shape)
        offset += arrays[name].nbytes
    return arrays


def measure(layers: int, memory: Path) -> dict[str, Any]:
    """Return the size of the state, and the seconds of every repetition by way."""
    with TemporaryDirectory(dir=memory) as folder:
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        other = context.Process(target=receive, args=(theirs, layers), daemon=True)
        other.start()
        theirs.close()  # so that its end is noticed here
        resident = Resident(layers, seed=1)
        ways = _ways(pipe, Path(folder), resident)
        pipe.recv()
        seconds = {way: [] for way in ways}
        for repetition in range(WARM + REPETITIONS):
            for way, run in ways.items():
                took = run()
                if repetition >= WARM:
                    seconds[way].append(took)
        arrays = resident.dump().arrays
        pipe.send(None)
        assert pipe.recv() == fingerprint(arrays), "the state did not arrive as it was sent"
        other.join()
    return {"bytes": sum(array.nbytes for array in arrays.values()), "seconds": seconds}


def _ways(pipe: Connection, folder: Path, resident: Resident) -> dict[str, Callable[[], float]]:
    writer = SlotWriter([folder], "bench")
    size = sum(array.nbytes for array in resident.dump().arrays.values())
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)

    def copy() -> float:
        began = time.perf_counter()
        np.copyto(target, source)
        return time.perf_counter() - began

    def hop() -> float:
        began = time.perf_counter()
        state = resident.dump()
        slot = writer.write("key", state.arrays, state.meta)
        pipe.send(("slot", slot))
        ended: float = pipe.recv()
        writer.free(slot)
        return ended - began

    def fresh() -> float:
        path = folder / "fresh"
        began = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for array in resident.dump().arrays.values():
                file.write(array.data)
        pipe.send(("fresh", str(path)))
        ended: float = pipe.recv()
        path.unlink()
        return ended - began

    return {"copy": copy, "hop": hop, "fresh": fresh}


def main(out: Path) -> None:
    memory = memory_of(out)
    memory.mkdir()
    figures = {title: measure(layers, memory) for title, layers in SIZES.items()}
    (out / "result.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
