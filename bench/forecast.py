"""How good the forecast is before anything was trained: ``python -m bench.forecast [REPEATS]``.

Five studies of Fashion-MNIST on 2 workers: a grid, ASHA, Hyperband, 18 configs of mixed widths and batch sizes,
and a CNN. In every repeat each of them gets a fresh store, is explained by one process and run by another, as with
``hoptree explain`` and ``hoptree run``. The time of a run is that of the whole call of ``study.run``, with the
start of workers, rehearsal, evaluations, hops and saving. ``python -m bench.forecast explain NAME`` prints one
forecast.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.results import record, table

WORKERS = 2
PARTITIONS = 4
REPEATS = 3
WITHIN, WIDEST, PILOT_SHARE, INSIDE = 0.10, 1.6, 0.05, 0.9
DATA = "data"


class Outcome(NamedTuple):
    """The forecast of a run, and what happened."""

    study: str
    forecast: float
    least: float
    most: float
    explained: float  # seconds until the forecast was there
    pilot: float  # seconds of it that the pilot took
    took: float

    @property
    def ratio(self) -> float:
        """The forecast over the time that the run took."""
        return self.forecast / self.took

    @property
    def is_inside(self) -> bool:
        """Whether the time was in the range."""
        return self.least <= self.took <= self.most

    @property
    def width(self) -> float:
        """The upper end of the range over the lower one."""
        return self.most / self.least


# --- the studies ------------------------------------------------------------------------------------------------


def mlp(hp: Mapping[str, Any]) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(784, hp["width"]), nn.ReLU(), nn.Linear(hp["width"], 10))


def cnn(hp: Mapping[str, Any]) -> Any:
    from torch import nn

    few, many = hp["channels"], 2 * hp["channels"]
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, few, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(few, many, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(49 * many, 10),
    )


def grid() -> tuple[Any, dict[str, Any], Any]:
    import hoptree as ht

    rates, decays = ht.choice(1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2), ht.choice(0.0, 1e-4)
    space = {"lr": rates, "weight_decay": decays, "width": 256, "batch_size": 128}
    return mlp, space, ht.Grid(epochs=21)


def asha() -> tuple[Any, dict[str, Any], Any]:
    import hoptree as ht

    space = {"lr": ht.log(1e-4, 1e-1), "weight_decay": ht.log(1e-6, 1e-3), "width": 256, "batch_size": 64}
    return mlp, space, ht.ASHA(trials=78, max_epochs=9)


def hyperband() -> tuple[Any, dict[str, Any], Any]:
    import hoptree as ht

    space = {"lr": ht.log(1e-4, 1e-1), "width": 840, "batch_size": ht.choice(32, 64, 128)}
    return mlp, space, ht.Hyperband(max_epochs=9)


def mixed() -> tuple[Any, dict[str, Any], Any]:
    import hoptree as ht

    space = {
        "lr": ht.choice(3e-4, 1e-3, 3e-3),
        "width": ht.choice(64, 256, 512),
        "batch_size": ht.choice(32, 128),
    }
    return mlp, space, ht.Grid(epochs=11)


def convolutions() -> tuple[Any, dict[str, Any], Any]:
    import hoptree as ht

    space = {"lr": ht.choice(3e-4, 1e-3, 3e-3), "channels": ht.choice(4, 8), "batch_size": 64}
    return cnn, space, ht.Grid(epochs=8)


STUDIES: dict[str, Callable[[], tuple[Any, dict[str, Any], Any]]] = {
    "grid": grid,
    "ASHA": asha,
    "Hyperband": hyperband,
    "mixed widths and batch sizes": mixed,
    "CNN": convolutions,
}


def study(name: str, folder: Path) -> Any:
    """Return one of the studies, with its store in a folder and its data beside that."""
    from torch.nn.functional import cross_entropy

    import hoptree as ht

    model, space, search = STUDIES[name]()
    return ht.Study(
        "forecast",
        trainer=ht.Torch(model, loss=cross_entropy, optimizer="adam", metrics={"accuracy": ht.accuracy}),
        data=ht.Dataset.open(folder.parent / DATA),
        space=space,
        search=search,
        maximize="accuracy",
        store=folder,
    )


# --- one process of each kind -----------------------------------------------------------------------------------


def prepare(folder: Path) -> None:
    """Build the dataset."""
    import hoptree as ht
    from bench.speed.data import installed, read

    columns = read(installed())
    valid = {"x": columns["test_x"], "y": columns["test_y"]}
    ht.Dataset.from_arrays(x=columns["x"], y=columns["y"], partitions=PARTITIONS, valid=valid, to=folder / DATA)


def explain(name: str, folder: Path) -> dict[str, float]:
    """Return the forecast, and the time that it took."""
    chosen = study(name, folder)
    began = time.perf_counter()
    found = chosen.explain(workers=WORKERS)
    explained = time.perf_counter() - began
    print(found.table(), found.workers_table(), found.basis, sep="\n", file=sys.stderr)
    return {
        "forecast": found.seconds,
        "least": found.least,
        "most": found.most,
        "explained": explained,
        "pilot": found.pilot_seconds,
    }


def run(name: str, folder: Path) -> dict[str, float]:
    """Return the time of a run."""
    chosen = study(name, folder)
    began = time.perf_counter()
    chosen.run(workers=WORKERS, quiet=True)
    return {"took": time.perf_counter() - began}


def in_process(what: str, name: str, folder: Path) -> dict[str, float]:
    """Call a function of this module in a new process."""
    command = [sys.executable, "-m", "bench.forecast", what, name, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- the report -------------------------------------------------------------------------------------------------


def report(outcomes: list[Outcome]) -> None:
    """Write the section of the results."""
    rows = []
    for name in STUDIES:
        found = [outcome for outcome in outcomes if outcome.study == name]
        if not found:
            continue
        each = partial(_each, found)
        rows.append(
            [
                name,
                each(lambda outcome: f"{outcome.took:.1f}"),
                each(lambda outcome: f"{outcome.forecast:.1f}"),
                each(lambda outcome: f"{outcome.ratio:.2f}"),
                each(lambda outcome: f"{outcome.least:.0f} to {outcome.most:.0f}"),
                f"{sum(outcome.is_inside for outcome in found)} of {len(found)}",
                each(lambda outcome: f"{outcome.pilot:.1f}"),
                each(lambda outcome: f"{outcome.pilot / outcome.took:.1%}"),
            ]
        )
    head = ["study", "took, s", "forecast, s", "ratio", "range, s", "inside", "pilot, s", "share of the run"]
    worst = max(abs(math.log(outcome.ratio)) for outcome in outcomes)
    good = sum(abs(outcome.ratio - 1) <= WITHIN for outcome in outcomes)
    inside = sum(outcome.is_inside for outcome in outcomes)
    widest = max(outcome.width for outcome in outcomes)
    share = max(outcome.pilot / outcome.took for outcome in outcomes)
    whole = max(outcome.explained / outcome.took for outcome in outcomes)
    lines = [
        "## Forecasts before anything was trained, on 2 workers",
        "",
        table(head, rows),
        "",
        f"Within {WITHIN:.0%}: {good} of {len(outcomes)} (the worst is off by a factor of {math.exp(worst):.2f}; "
        f"the mean ratio is {fmean(outcome.ratio for outcome in outcomes):.3f}). Inside the range: {inside} of "
        f"{len(outcomes)} (wanted: {INSIDE:.0%}). Widest range: a factor of {widest:.2f} (limit {WIDEST}). Largest "
        f"share of a pilot: {share:.1%} (limit {PILOT_SHARE:.0%}); of the whole explanation: {whole:.1%}.",
    ]
    record("forecast", "python -m bench.forecast", "\n".join(lines))


def _each(found: list[Outcome], show: Callable[[Outcome], str]) -> str:
    return ", ".join(show(outcome) for outcome in found)


def main() -> None:
    if len(sys.argv) > 3:
        print(json.dumps({"explain": explain, "run": run}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))))
        return
    with TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        if sys.argv[1:2] == ["explain"]:
            print(json.dumps(explain(sys.argv[2], folder / "store")))
            return
        outcomes: list[Outcome] = []
        repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
        for repeat in range(repeats):
            for chosen in STUDIES:
                store = folder / f"store-{repeat}-{len(outcomes)}"
                forecast = in_process("explain", chosen, store)
                outcomes.append(Outcome(chosen, **forecast, **in_process("run", chosen, store)))
                print(outcomes[-1], round(outcomes[-1].ratio, 3), file=sys.stderr, flush=True)
            report(outcomes)


if __name__ == "__main__":
    main()
