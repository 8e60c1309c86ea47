"""Two plain processes with four configs each: how people run a grid without a framework.

The first process only starts the two and waits, so it does not import torch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench.speed.settings import CONFIGS, WORKERS, finish, label

if TYPE_CHECKING:
    from bench.speed.workload import Data

Train = Callable[["Data", Mapping[str, float]], float]


def run(contestant: str, train: Train) -> None:
    """Be the first process, or one of the two if the third argument says which."""
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    if len(sys.argv) == 4:
        _work(data, out, int(sys.argv[3]), train)
        return
    command = [sys.executable, "-m", contestant, str(data), str(out)]
    processes = [subprocess.Popen([*command, str(number)]) for number in range(WORKERS)]
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.exit(f"{contestant}: a process failed")
    accuracies: dict[str, float] = {}
    for number in range(WORKERS):
        accuracies |= json.loads((out / f"{number}.json").read_text())
    finish(out, accuracies)


def _work(folder: Path, out: Path, number: int, train: Train) -> None:
    import torch

    from bench.speed.workload import Data

    torch.set_num_threads(1)
    data = Data.load(folder)
    accuracies = {label(config): train(data, config) for config in CONFIGS[number::WORKERS]}
    (out / f"{number}.json").write_text(json.dumps(accuracies))
