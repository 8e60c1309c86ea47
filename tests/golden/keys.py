"""What ``keys.json`` pins, as this version makes it: ``python -m tests.golden.keys`` prints it.

The values in the file never change. A new encoding gets a new version, and a file of its own beside this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import hoptree as ht
from hoptree.core import keys
from hoptree.core.costs import level_of
from hoptree.core.lineage import History, branched, history, segments
from hoptree.core.plan import Plan
from hoptree.core.schedules import Config
from hoptree.search.streams import share
from hoptree.trainers.base import UnitSpec

FILE = Path(__file__).with_suffix(".json")
PROGRAM = Path(__file__).with_name("trained_study.py")
EPOCHS = 6
LINEAGE = "0123456789abcdef0123456789abcdef"

ENCODED: dict[str, Any] = {
    "none": None,
    "false": False,
    "true": True,
    "int 0": 0,
    "int 1": 1,
    "int -1": -1,
    "int 127": 127,
    "int 128": 128,
    "int -128": -128,
    "int -129": -129,
    "int 2**63": 2**63,
    "int -10**30": -(10**30),
    "float 0.0": 0.0,
    "float -0.0": -0.0,
    "float 1.0": 1.0,
    "float 0.1": 0.1,
    "float -1e-300": -1e-300,
    "float 5e-324": 5e-324,
    "float inf": float("inf"),
    "str": "lr",
    "str, empty": "",
    "str, not ASCII": "größe 🌱",
    "bytes": b"\x00\xff",
    "sequence": (1, "a", (None, ())),
    "mapping": {"b": 1, "a": [2.0], "": {}},
    "form": segments(history({"lr": 0.1}), 1, 1)[0].values.items[0][1][0],
    "values": segments(history({"lr": ht.multistep(0.1, at=[0.5], gamma=0.1), "width": 8}), 1, 1)[0].values,
    "phase": history({"lr": ht.cosine(0.1, period=10), "width": 8})[0],
    "schedule": ht.warmup(0.0, 2, ht.piecewise([0.1, ht.linear(0.1, 0.0, over=2)], at=[3])),
}

CONFIGS: dict[str, Config] = {
    "constants of every type": {"a": None, "b": True, "c": 1, "d": 1.0, "e": "1", "f": -(2**70)},
    "constant": {"lr": ht.constant(0.1)},
    "linear": {"lr": ht.linear(0.1, 0.0, over=3)},
    "exponential": {"lr": ht.exponential(0.1, 0.9)},
    "multistep": {"lr": ht.multistep(64, at=[2, 4], gamma=2)},
    "multistep, boundaries within units": {"lr": ht.multistep(0.1, at=[1.1, 1.2, 2.7], gamma=0.1), "width": 8},
    "cyclic": {"lr": ht.cyclic(0.0, 1.0, up=0.75, down=1.5)},
    "cosine": {"lr": ht.cosine(0.1, 0.001, period=1.5, gamma=2.0)},
    "warmup": {"lr": ht.warmup(0.0, 1.3, ht.multistep(0.1, at=[2], gamma=0.5))},
    "piecewise": {"lr": ht.piecewise([0.1, ht.exponential(0.1, 0.5), ht.constant(0.3)], at=[1, 2.6])},
    "names that are not ASCII": {"größe": 3, "lr": 0.1},
}

HISTORIES: dict[str, History] = {
    **{name: history(config) for name, config in CONFIGS.items()},
    "branched": branched(history(CONFIGS["constant"]), 2, CONFIGS["warmup"]),
    "branched twice": branched(
        branched(history(CONFIGS["cosine"]), 1, CONFIGS["constants of every type"]), 4, CONFIGS["cyclic"]
    ),
}


def pinned() -> dict[str, Any]:
    """Return all that is pinned but the trained study."""
    return {
        "encodings": {name: keys.encode(value).hex() for name, value in ENCODED.items()},
        "purposes": {
            "study root": keys.study_root("trainer", "data", 7),
            "root, strict": keys.root_key("fingerprint", 4, "strict"),
            "root, free": keys.root_key("fingerprint", 4, "free"),
            "state": keys.state_key(LINEAGE, 3),
            "state of a private tree": keys.state_key(LINEAGE, 3, "digits/2"),
            "unit seeds": [keys.unit_seed(LINEAGE, unit) for unit in (0, 1, 255, 10**6)],
            "build seed": keys.build_seed(LINEAGE),
            "shuffle seeds": [keys.shuffle_seed(7, epoch, partition) for epoch in (0, 1) for partition in (0, 3)],
            "shard seeds": [keys.shard_seed(2**62 + 1, batch, shard) for batch in (0, 300) for shard in (0, 3)],
            "rotations": [keys.rotation(LINEAGE, partitions) for partitions in (1, 2, 3, 8, 1000)],
            "identity": keys.identity("example", 1, "a"),
            "search stream": [share(7, "lr", config, 0) for config in range(3)],
            "cost level": level_of({"optimizer": "adam"}, "optimizer"),
        },
        "histories": {name: keys.history_key(phases) for name, phases in HISTORIES.items()},
        "lineages": {
            f"{name}, {partitions} partitions": _lineage(phases, partitions)
            for name, phases in HISTORIES.items()
            for partitions in (1, 4)
        },
        "order of 12 examples": {
            f"epoch {epoch}, partition {partition}": visited(keys.shuffle_seed(7, epoch, partition))
            for epoch in (0, 1)
            for partition in (0, 1)
        },
    }


def _lineage(phases: History, partitions: int) -> list[list[Any]]:
    """Return start, key and rotation of every node, with the seeds of its first unit and the state after it."""
    plan = Plan(partitions)
    path = plan.path(phases, plan.root("fingerprint"), EPOCHS * partitions)
    return [
        [
            node.start,
            node.key,
            node.rotation,
            keys.build_seed(node.origin.key),
            keys.unit_seed(node.key, node.start),
            node.state_key(node.start + 1),
        ]
        for node in path
    ]


def visited(shuffle_seed: int) -> list[int]:
    """Return the order in which the torch trainer takes the examples of a unit."""
    seen: list[int] = []

    class Watching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.extend(x.long().tolist())
            return x * self.weight

    trainer = ht.Torch(lambda hp: Watching(), loss=lambda out, y: (out * y).sum(), optimizer="sgd")
    values = segments(history({"lr": 0.1, "batch_size": 4}), 1, 1)[0].values
    model = trainer.build(values.at(0.0), seed=1)
    numbers = np.arange(12, dtype=np.float32)
    trainer.train(model, {"x": numbers, "y": numbers}, UnitSpec(values, 0, 1, 0, 1, shuffle_seed))
    return seen


def trained() -> dict[str, Any]:
    """Train the study of ``trained_study.py`` in a process of its own, with arithmetic of the plainest kind."""
    plain = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, PROGRAM], cwd=folder, env={**os.environ, **plain}, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def written(content: dict[str, dict[str, Any]]) -> str:
    """Return the file's text, one line for each thing that is pinned."""
    sections = []
    for name, section in content.items():
        lines = [f"  {json.dumps(key, ensure_ascii=False)}: {json.dumps(value)}" for key, value in section.items()]
        sections.append(f' "{name}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(sections) + "\n}\n"


if __name__ == "__main__":
    sys.stdout.write(written({**pinned(), "trained": trained()}))
