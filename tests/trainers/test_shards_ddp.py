"""Two shards train the bits of PyTorch's own data parallelism with two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from hoptree.trainers import Torch
from tests.trainers.ddp_ranks import NETS, RANKS
from tests.trainers.digits import partition, unit

ROOT = Path(__file__).parents[2]
VALUES = {"sgd": {"lr": 0.05, "momentum": 0.9}, "adam": {"lr": 0.01}}
SIZE, STEPS = 32, 5


def data():
    return {name: column[: SIZE * STEPS] for name, column in partition(0).items()}


def case(net, optimizer):
    """Return what the ranks need, and train the same with two shards."""
    values = {**VALUES[optimizer], "batch_size": SIZE}
    trainer = Torch(lambda hp: NETS[net](), loss=cross_entropy, optimizer=optimizer, shards=RANKS)
    model = trainer.build(values, 7)
    spec, columns = unit(values, 0), data()
    order = np.random.Generator(np.random.PCG64(spec.shuffle_seed)).permutation(SIZE * STEPS)
    batches = [
        tuple(torch.tensor(columns[name][order[start : start + SIZE]]) for name in ("x", "y"))
        for start in range(0, SIZE * STEPS, SIZE)
    ]
    weights = {name: value.clone() for name, value in model.module.state_dict().items()}
    trainer.train(model, columns, spec)
    given = {
        "net": net,
        "optimizer": optimizer,
        "options": VALUES[optimizer],
        "weights": weights,
        "batches": batches,
    }
    return given, trainer.dump(model).arrays


def test_two_shards_train_the_bits_of_two_ranks(tmp_path: Path) -> None:
    names = [(net, optimizer) for net in NETS for optimizer in VALUES]
    cases = [case(*name) for name in names]
    torch.save([given for given, _ in cases], tmp_path / "cases.pt")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "tests.trainers.ddp_ranks", str(tmp_path)]
    ranks = [
        subprocess.Popen([*command, str(rank)], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(RANKS)
    ]
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * RANKS, "\n".join(errors)
    parallel, gathered = torch.load(tmp_path / "trained.pt")
    for name, (_, arrays), found in zip(names, cases, parallel, strict=True):
        assert found.keys() == arrays.keys(), name
        differ = [part for part in arrays if arrays[part].tobytes() != found[part].numpy().tobytes()]
        assert differ == [], name
    by_sgd = [(name, arrays) for name, (_, arrays) in zip(names, cases, strict=True) if name[1] == "sgd"]
    for (name, arrays), found in zip(by_sgd, gathered, strict=True):  # fully_shard, gathered by PyTorch
        weights = {part: array for part, array in arrays.items() if part.startswith("model.")}
        assert found.keys() == weights.keys(), name
        for part, array in weights.items():
            gathered_part = found[part].numpy()
            if array.size % 32 == 0:  # its optimizer steps on halves, and rounds the rest of a vector apart
                assert array.tobytes() == gathered_part.tobytes(), (name, part)
            np.testing.assert_allclose(array, gathered_part, rtol=1e-5, atol=1e-7, err_msg=f"{name} {part}")
