"""What the hop test and the probe cost: seconds of a worker in the rehearsal, beside the plain try they come with.

A plain try builds a model, trains it on a few examples and evaluates it. The rehearsal of a worker does that once
and repeats it in other ways (see ``hoptree.trainers.hop_test``). Both workers of a study rehearse at the same time.
Each repeat is a fresh process with one thread, as a worker is. Two programs: the README's, and W1 of bench.speed,
whose trials take two workers about a minute.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.results import record, table

REPEATS = 5
LIMIT = 1.5  # seconds in the README's program
MINUTE, SHARE = 60.0, 0.02  # and of a study of a minute


def readme() -> tuple[Any, list[dict[str, Any]], Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
    """Return the trainer of the README's program, the values that it rehearses, and a partition of its data."""
    from sklearn.datasets import load_digits
    from torch import nn

    import hoptree as ht

    def net(hp: Mapping[str, Any]) -> nn.Module:
        return nn.Sequential(nn.Linear(64, hp["width"]), nn.ReLU(), nn.Linear(hp["width"], 10))

    trainer = ht.Torch(net, loss=nn.functional.cross_entropy, optimizer="adam", metrics={"accuracy": ht.accuracy})
    digits = load_digits()
    x, y = (digits.data / 16).astype("float32"), digits.target.astype("int64")
    values = {"lr": 3e-3, "width": 32, "batch_size": 64}
    return trainer, [values], {"x": x[:360], "y": y[:360]}, {"x": x[1440:], "y": y[1440:]}


def w1() -> tuple[Any, list[dict[str, Any]], Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
    """Return the same for W1; its images are random here, which takes as long."""
    from torch import nn

    import hoptree as ht
    from bench.speed.settings import BATCH
    from bench.speed.workload import net

    trainer = ht.Torch(net, loss=nn.functional.cross_entropy, optimizer="adam", metrics={"accuracy": ht.accuracy})
    random = np.random.default_rng(0)
    x, y = random.random((20_000, 784), np.float32), random.integers(0, 10, 20_000)
    values = {"lr": 1e-3, "weight_decay": 1e-4, "batch_size": BATCH}
    return trainer, [values], {"x": x[:15_000], "y": y[:15_000]}, {"x": x[15_000:], "y": y[15_000:]}


PROGRAMS = {"README": readme, "W1": w1}


def measure(program: str) -> dict[str, float]:
    """Return the seconds of a plain try, and of what the hop test and the probe add to it."""
    import torch

    from hoptree.trainers.hop_test import HopTest
    from hoptree.trainers.probe import ProbeSteps, reference

    torch.set_num_threads(1)
    trainer, configs, train, valid = PROGRAMS[program]()
    values = configs[0]
    began = time.process_time()
    steps = ProbeSteps(trainer, train, valid)
    model = steps.build(values)
    steps.train(model, values, 0)
    steps.evaluate(model, values)
    tried = time.process_time()
    found = reference(trainer, steps, values)
    HopTest(trainer, steps, values, found).run(None)
    return {"try": tried - began, "test": time.process_time() - tried}


def main() -> None:
    if sys.argv[1:]:
        print(json.dumps(measure(sys.argv[1])))
        return
    found: dict[str, list[dict[str, float]]] = {program: [] for program in PROGRAMS}
    for _ in range(REPEATS):
        for program in PROGRAMS:
            command = [sys.executable, "-m", "bench.rehearsal", program]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[program].append(json.loads(done.stdout))
    rows = [
        [program, *(_spread([each[what] for each in repeats]) for what in ("try", "test"))]
        for program, repeats in found.items()
    ]
    worst = {program: statistics.median(each["test"] for each in repeats) for program, repeats in found.items()}
    lines = [
        table(["program", "plain try, s", "hop test and probe, s"], rows),
        "",
        f"Limits: {LIMIT} s in the README's program ({'met' if worst['README'] < LIMIT else 'missed'}); "
        f"{SHARE:.0%} of a study of a minute, {MINUTE * SHARE:.1f} s, for W1 "
        f"({'met' if worst['W1'] < MINUTE * SHARE else 'missed'}: {worst['W1'] / MINUTE:.1%}).",
    ]
    title = f"## Rehearsal: processor seconds of a worker (median of {REPEATS} processes, least to greatest)"
    record("rehearsal", "python -m bench.rehearsal", "\n".join([title, "", *lines]))


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
