"""One model on two cores: a gang of two workers beside PyTorch's data parallelism and beside one worker.

Two processes train the same batches in turn as a gang (``shards=2``) and with ``DistributedDataParallel``, both
over gloo on loopback; then the first trains alone with one shard. All are interleaved in the same two processes.
``python -m bench.gangs`` starts them.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from bench.results import record, table
from bench.shards import CASES, Case
from hoptree.core.lineage import history, segments
from hoptree.trainers import Torch, UnitSpec
from hoptree.trainers.gang import GangMember
from hoptree.trainers.torch_gang import Gang, disconnect, open_rendezvous

REPEATS = 5
NETS = ("transformer, batch 128", "MLP, batch 512")
SECONDS = 2.0  # of a unit on one worker, about
SPEC = {"unit": 0, "partitions": 1, "partition": 0, "seed": 0, "shuffle_seed": 0}


class Rank:
    """One of two processes: its unit in a gang, with PyTorch's own, and alone."""

    def __init__(self, case: Case, rank: int, folder: Path, meet: dist.Store) -> None:
        self._case, self._rank, self._folder, self._count = case, rank, folder, 0
        values = {"lr": 1e-3, "batch_size": case.batch}
        self._values = segments(history(dict(values)), partitions=1, units=1)[0].values
        self._kept: list[object] = []
        self._two = Torch(case.net, loss=cross_entropy, optimizer="adam", shards=2)
        self._one = Torch(case.net, loss=cross_entropy, optimizer="adam")
        self._sharded, self._whole = self._two.build(values, 0), self._one.build(values, 0)
        self._module = case.net(None)
        self._optimizer = torch.optim.Adam(self._module.parameters(), lr=1e-3, fused=True)
        self.batches = 4
        self._data = case.data(self.batches)
        if rank == 0:
            meet.set("rendezvous", open_rendezvous("127.0.0.1"))
        self._rendezvous = meet.get("rendezvous").decode()

    def lengthen(self, batches: int) -> None:
        """Use so many batches from now on."""
        self.batches, self._data = batches, self._case.data(batches)

    def gang(self) -> dict[str, float]:
        """Return the seconds that forming a gang took, and those of a second unit."""
        self._count += 1
        member = GangMember(self._rendezvous, f"gang-{self._case.batch}-{self._count}", self._rank, 2)
        spec = UnitSpec(self._values, **SPEC)
        began = time.perf_counter()
        Gang(member)
        formed = time.perf_counter() - began
        began = time.perf_counter()
        self._two.train_together(self._sharded, self._data, spec, member)
        seconds = time.perf_counter() - began
        disconnect()
        return {"forming": formed, "gang": seconds}

    def parallel(self) -> dict[str, float]:
        """Return the seconds of a pass with PyTorch's data parallelism."""
        self._count += 1
        store = dist.FileStore(f"{self._folder}/ddp-{self._case.batch}-{self._count}", 2)
        dist.init_process_group("gloo", store=store, rank=self._rank, world_size=2)
        module = DistributedDataParallel(self._module)
        half = self._case.batch // 2
        x, y = torch.from_numpy(self._data["x"]), torch.from_numpy(self._data["y"])
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        dist.barrier()
        began = time.perf_counter()
        for start in range(0, len(order), self._case.batch):
            rows = order[start + self._rank * half : start + (self._rank + 1) * half]
            cross_entropy(module(x[rows]), y[rows]).backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        dist.barrier()
        seconds = time.perf_counter() - began
        self._kept.append(module)  # freeing it may wait forever for a thread that needs the lock held here
        dist.destroy_process_group()
        return {"ddp": seconds}

    def alone(self) -> dict[str, float]:
        """Return the seconds of a unit on one worker, with one shard."""
        spec = UnitSpec(self._values, **SPEC)
        began = time.perf_counter()
        self._one.train(self._whole, self._data, spec)
        return {"alone": time.perf_counter() - began}


def rank_main(number: int, folder: Path) -> None:
    """Measure as one of the two processes, step by step with the other."""
    torch.set_num_threads(1)
    found: dict[str, list[dict[str, float]]] = {}
    ranks: list[Rank] = []
    meet = dist.FileStore(str(folder / "meet"), 2)
    turn = 0

    def together() -> None:
        nonlocal turn
        turn += 1
        meet.add(f"turn {turn}", 1)
        while int(meet.add(f"turn {turn}", 0)) < 2:
            time.sleep(0.001)

    for name in NETS:
        one = Rank(CASES[name], number, folder, meet)
        ranks.append(one)
        one.alone()
        one.gang()  # warm up
        one.parallel()
        together()
        if number == 0:
            meet.set(f"batches of {name}", str(max(4, round(SECONDS / (one.alone()["alone"] / one.batches)))))
        one.lengthen(int(meet.get(f"batches of {name}")))
        for _ in range(REPEATS):
            together()
            seconds: dict[str, float] = {**one.gang()}
            together()
            seconds |= one.parallel()
            together()
            if number == 0:  # the other core is idle, as when a lineage is left alone
                seconds |= one.alone()
            found.setdefault(name, []).append(seconds)
    if number == 0:
        print(json.dumps(found), flush=True)
    os._exit(0)  # what is kept must not be freed


def main() -> None:
    """Start the two processes, and record what the first has measured."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.gangs"]
        other = subprocess.Popen([*command, "1", folder])
        first = subprocess.run([*command, "0", folder], capture_output=True, text=True, check=True)
        other.wait()
    found: dict[str, list[dict[str, float]]] = json.loads(first.stdout.splitlines()[-1])
    rows = []
    for name, repeats in found.items():
        forming = statistics.median(1000 * each["forming"] for each in repeats)
        pairs = (("gang", "alone"), ("ddp", "alone"), ("gang", "ddp"))
        rows.append([name, *(_ratio(repeats, *pair) for pair in pairs), f"{forming:.1f} ms"])
    columns = ["net", "gang / alone", "DDP / alone", "gang / DDP", "forming a gang"]
    text = (
        f"## One model on two cores (median of {REPEATS} interleaved repeats, least to greatest)\n\n"
        "Seconds by the clock of a pass over the same batches: a gang of two workers with two shards, PyTorch's "
        "`DistributedDataParallel` with two ranks, and one worker with one shard while the other core is idle. "
        "Adam, one thread each.\n\n"
    )
    record("gangs", "python -m bench.gangs", text + table(columns, rows))


def _ratio(repeats: list[dict[str, float]], one: str, other: str) -> str:
    found: list[Any] = [each[one] / each[other] for each in repeats]
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank_main(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        main()
