"""One rank of PyTorch's own data parallelism: ``python -m tests.trainers.ddp_ranks FOLDER RANK``.

It trains the cases in FOLDER/cases.pt, each with its half of every batch, and rank 0 writes what came of them. It
uses nothing of Hoptree.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

RANKS = 2


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 10))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU()
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.features(x.view(-1, 1, 8, 8)).flatten(1))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x.view(-1, 8, 8))).mean(1))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.rows(x.view(-1, 8, 8))[0][:, -1])


NETS = {"mlp": Mlp, "cnn": Cnn, "transformer": Transformer, "lstm": Lstm}
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def trained(case, rank):
    """Train a case, and return the weights and the optimizer's tensors."""
    module = NETS[case["net"]]()
    module.load_state_dict(case["weights"])
    parallel = DistributedDataParallel(module)
    optimizer = OPTIMIZERS[case["optimizer"]](module.parameters(), fused=True, **case["options"])
    for x, y in case["batches"]:
        half = len(x) // RANKS
        mine = slice(rank * half, (rank + 1) * half)
        nn.functional.cross_entropy(parallel(x[mine].clone()), y[mine].clone()).backward()
        optimizer.step()
        optimizer.zero_grad()
    found = {f"model.{name}": value for name, value in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        found |= {f"optimizer.{index}.{name}": value for name, value in state.items() if value is not None}
    return found


def fully_sharded(case, rank):
    """Train a case with parameters divided by PyTorch, and return the gathered weights."""
    module = NETS[case["net"]]()
    module.load_state_dict(case["weights"])
    fully_shard(module)
    optimizer = OPTIMIZERS[case["optimizer"]](module.parameters(), **case["options"])
    for x, y in case["batches"]:
        half = len(x) // RANKS
        mine = slice(rank * half, (rank + 1) * half)
        nn.functional.cross_entropy(module(x[mine].clone()), y[mine].clone()).backward()
        optimizer.step()
        optimizer.zero_grad()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return {f"model.{name}": value for name, value in get_model_state_dict(module, options=options).items()}


def main(folder, rank):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "ranks"), RANKS), rank=rank, world_size=RANKS)
    cases = torch.load(folder / "cases.pt")
    gathered = [fully_sharded(case, rank) for case in cases if case["optimizer"] == "sgd"]
    torch.use_deterministic_algorithms(True)
    found = [trained(case, rank) for case in cases]
    if rank == 0:
        torch.save((found, gathered), folder / "trained.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
