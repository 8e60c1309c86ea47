"""What a contestant leaves for the harness."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

import hoptree as ht
from bench.sharing.meter import Spent, spent
from hoptree.record.results import Results


class Outcome(msgspec.Struct):
    """One study, or several that were driven together, as one contestant trained them."""

    cpu: Spent  # of the processes that trained
    driver: float  # CPU seconds of the first process while they ran
    trials: int
    epochs: float  # that were trained, …
    asked: float  # … of those that trials were granted
    best: float  # accuracy
    prints: list[dict[int, str]] = []  # by study: the fingerprints of complete trials
    curves: list[list[Any]] = []  # by study and trial: accuracy by epoch

    @property
    def seconds(self) -> float:
        """CPU seconds of training and all that goes with it, without the start of processes."""
        return self.cpu.whole + self.driver


class Clock:
    """CPU seconds of this process."""

    def __init__(self) -> None:
        self._began = time.process_time()

    def spent(self) -> float:
        """Return what was spent since it was made."""
        return time.process_time() - self._began


def warm_up(study: ht.Study) -> None:
    """Import what a run imports: its start, as the import of torch is."""
    import hoptree.study.run_studies  # noqa: F401

    with study.open_store():
        pass


def of_hoptree(results: list[Results], meter: Path, driver: float) -> Outcome:
    """Return the outcome of studies that ran together."""
    savings = results[0].savings
    return Outcome(
        cpu=spent(meter),
        driver=driver,
        trials=sum(len(one.trials) for one in results),
        epochs=savings.epochs_trained,
        asked=savings.epochs_asked,
        best=max(one.best.metrics["accuracy"] for one in results),
        prints=[{t.number: t.fingerprint for t in one.trials if t.state == "complete"} for one in results],
        curves=[[[list(point) for point in _curve(t)] for t in one.trials] for one in results],
    )


def _curve(trial: Any) -> list[tuple[int, float]]:
    return [(epoch, metrics["accuracy"]) for epoch, metrics in sorted(trial.curve.items())]


def finish(out: Path, outcomes: list[Outcome]) -> None:
    """Leave the outcomes, in the order of the studies."""
    (out / "result.json").write_bytes(msgspec.json.encode(outcomes))


def read(out: Path) -> list[Outcome]:
    """Return what a contestant left."""
    return msgspec.json.decode((out / "result.json").read_bytes(), type=list[Outcome])
