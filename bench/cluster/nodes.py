"""What nodes hold of a dataset, and what goes between them: on 1, 2, 4 and 8 nodes, beside task parallelism.

Every node has a copy of its partitions on a disk of its own, as on machines apart. What is resident of those files
in the memory of its workers is read from /proc while they train. A file that several of them map counts once, at
the most that one of them has: shares of pages (Pss) would not add up, as workers are read one after another.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.cluster.closed import Observer, Shape, Store, Worker, cluster, nodes_of, on_node
from bench.cluster.contestants.passes import Passes
from bench.cluster.programs import run
from bench.speed.workspace import workspace

PARTITIONS = 8
COLUMNS = 256
MODELS = Passes(configs=8, epochs=2, state=16 << 20)
SHAPES = (Shape(1), Shape(2), Shape(4), Shape(8), Shape(2, cpus=2))
SIZE = 1 << 30
QUICK_SIZE = 1 << 26
QUICK_SHAPES = (Shape(1), Shape(2), Shape(2, cpus=2))


class Held(NamedTuple):
    """What the nodes of a cluster had at most, in bytes, by node."""

    resident: list[int]
    disk: list[int]


class Figures(NamedTuple):
    """What was seen on one cluster."""

    shape: Shape
    data: int  # bytes of all partitions
    held: Held
    tasks: list[int]  # by node: bytes in the object store when every node reads as much as the whole dataset
    savings: dict[str, Any]
    traffic: dict[str, int]
    made: int  # bytes of all states that units made
    brought: int  # bytes that nodes' object stores took in beyond that


def measure(folder: Path, quick: bool) -> list[Figures]:
    """Build a dataset, and train on it on clusters of all shapes."""
    data = folder / "passes"
    rows = _build(data, QUICK_SIZE if quick else SIZE)
    found = []
    for shape in QUICK_SHAPES if quick else SHAPES:
        found.append(figures := _measure(shape, data, rows.nbytes, folder))
        print(figures, file=sys.stderr, flush=True)
    return found


def _build(path: Path, size: int) -> np.ndarray:
    import hoptree as ht

    rows = np.random.default_rng(0).random((size // (4 * COLUMNS), COLUMNS), dtype=np.float32)
    ht.Dataset.from_arrays(x=rows, partitions=PARTITIONS, valid={"x": rows[:256]}, to=path)
    return rows


def _measure(shape: Shape, data: Path, size: int, folder: Path) -> Figures:
    import hoptree as ht

    manifest = ht.Dataset.open(data).manifest
    names = [file.name for file in manifest.train]
    resident: dict[str, int] = defaultdict(int)
    disk: dict[str, int] = defaultdict(int)
    stores: dict[str, Store] = {}
    shape = shape._replace(memory=size + (256 << 20))
    with cluster(shape, folder) as address, Observer(address) as observer:

        def look() -> None:
            stores.update(observer.stores())
            for node, (in_memory, on_disk) in held(observer.workers(), names).items():
                resident[node] = max(resident[node], in_memory)
                disk[node] = max(disk[node], on_disk)

        with workspace(folder) as out:
            arguments = (data, out, address, MODELS.as_json())
            _, result = run(
                "bench.cluster.contestants.passes", out, *arguments, log=folder / "log", meanwhile=look, period=0.1
            )
        stores.update(observer.settled())
        created = sum(store.created for store in stores.values())
        tasks = _tasks(size, observer)
    savings = result["savings"]
    made = round(savings["epochs_trained"] * PARTITIONS) * savings["state_bytes"]
    return Figures(
        shape,
        sum(file.bytes for file in manifest.train),
        Held(list(resident.values()), list(disk.values())),
        tasks,
        savings,
        result["traffic"],
        made,
        created - made,
    )


def held(workers: list[Worker], names: list[str]) -> dict[str, tuple[int, int]]:
    """Return the bytes of these files that each node's workers have in memory, and those that lie on its disk."""
    resident: dict[str, dict[str, int]] = defaultdict(dict)
    files: dict[str, dict[str, int]] = defaultdict(dict)
    for worker in workers:
        of_node = resident[worker.node]
        for path, count in _resident(worker.pid, names).items():
            of_node[path] = max(count, of_node.get(path, 0))
            files[worker.node] |= _on_disk(Path(path).parent, names)
    return {node: (sum(resident[node].values()), sum(files[node].values())) for node in files}


def _resident(pid: int, names: list[str]) -> dict[str, int]:
    """Return the bytes of each file that a process has in memory; nothing if it has just ended."""
    found: dict[str, int] = defaultdict(int)
    try:
        lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    except OSError:
        return {}
    mapped = ""
    for line in lines:
        fields = line.split(maxsplit=5)
        if not fields[0].endswith(":"):
            mapped = fields[5] if len(fields) == 6 and Path(fields[5]).name in names else ""
        elif mapped and fields[0] == "Rss:":
            found[mapped] += int(fields[1]) * 1024
    return found


def _on_disk(folder: Path, names: list[str]) -> dict[str, int]:
    return {str(path): path.stat().st_size for name in names if (path := folder / name).exists()}


def _tasks(size: int, observer: Observer) -> list[int]:
    """Have a task on every node read so many bytes from the object store, and return what each then holds."""
    import ray

    nodes = nodes_of()
    everything = on_node(_make, nodes[0]).remote(size)
    ray.get([on_node(_read, node).remote(everything) for node in nodes])
    used = observer.stores()
    return [used[node].used for node in nodes]


def _make(size: int) -> np.ndarray:
    return np.ones(size // 4, np.float32)


def _read(data: np.ndarray) -> float:
    return float(data.sum())
