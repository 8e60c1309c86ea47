"""A small trainer and a small dataset for suites, and what training with them has to give."""

from __future__ import annotations

import os
import signal
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np

from hoptree.backends.job import TrainingJob
from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.schedules import Scalar
from hoptree.data import Dataset
from hoptree.store import FolderStates
from hoptree.trainers.base import Columns, ModelState, Trainer, UnitSpec

PARTITIONS = 2


@final
class SuiteTrainer(Trainer):
    """Adds seeded noise to a vector. The metric ``bits`` is a checksum of it: equal metrics are equal bits.

    The value ``act`` says what the user's code does wrong: "raise", "exit", "raise in evaluate", or "kill", which
    ends its process once, unless the file ``flag`` is there.
    """

    fingerprint = "hoptree.testing 1"

    def build(self, values: Mapping[str, Scalar], seed: int) -> Any:
        """Return a vector and a count."""
        return {"w": np.random.default_rng(seed).normal(size=16), "units": 0}

    def train(self, model: Any, data: Columns, unit: UnitSpec) -> None:
        """Move the vector by noise of the unit's seed, and by the examples in their order."""
        values = unit.at(0, 1)
        _act(values)
        order = np.random.default_rng(unit.shuffle_seed).permutation(len(data["x"]))
        noise = np.random.default_rng(unit.seed).normal(size=16)
        for row in data["x"][order]:
            model["w"] *= 0.99  # in place: a state that shares memory with a model changes with it
            model["w"] += float(values["lr"] or 0.0) * (noise + row.sum())
        model["units"] += 1

    def evaluate(self, model: Any, data: Columns, values: Mapping[str, Scalar]) -> dict[str, float]:
        """Return the vector's size and its checksum."""
        if values.get("act") == "raise in evaluate":
            raise ValueError("as the suite asked in evaluate")
        checksum = zlib.crc32(model["w"].tobytes() + str(model["units"]).encode())
        return {"loss": float(np.abs(model["w"]).mean()), "bits": float(checksum)}

    def dump(self, model: Any) -> ModelState:
        """Return the vector and the count."""
        return ModelState({"w": model["w"]}, {"units": model["units"]})

    def load(self, model: Any, state: ModelState) -> None:
        """Copy both."""
        np.copyto(model["w"], state.arrays["w"])
        model["units"] = state.meta["units"]


def _act(values: Mapping[str, Scalar]) -> None:
    match values.get("act"):
        case "raise":
            raise ValueError("as the suite asked, with a character that UTF-8 has not: \ud800")
        case "exit":
            sys.exit(3)
        case "kill":
            flag = Path(str(values["flag"]))
            if not flag.exists():
                flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)


def make_job(folder: Path, workers: int) -> TrainingJob:
    """Return a job with a dataset of two partitions, in a folder of its own."""
    rows = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    dataset = Dataset.from_arrays(x=rows, partitions=PARTITIONS, valid=0.25, to=folder / "data")
    states = FolderStates(folder / "states", durable=False)
    return TrainingJob("suite", SuiteTrainer(), dataset, states, folder, seed=3, workers=workers)


@final
class ReferenceTraining:
    """Trains units straight, in the order in which they are given, and says what metrics each has to give."""

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self.states: dict[str, ModelState] = {}  # by name

    def run(self, action: RunUnit) -> dict[str, float]:
        """Train a unit and return the metrics of its state."""
        trainer, job = self._job.trainer, self._job
        model = self._model(action, action.source_state)
        trainer.train(model, job.dataset.partition(action.partition), job.unit(action))
        self.states[action.target_state] = _copy(trainer.dump(model))
        return self._metrics(model, action.values.at((action.unit + 1) / job.dataset.partitions))

    def evaluate(self, action: Evaluate) -> dict[str, float]:
        """Return the metrics of a state that was trained before."""
        model = self._model(action, action.key)
        return self._metrics(model, action.origin.values)

    def _model(self, action: RunUnit | Evaluate, state: str | None) -> Any:
        model = self._job.trainer.build(action.origin.values, action.origin.seed)
        if state is not None:
            self._job.trainer.load(model, self.states[state])
        return model

    def _metrics(self, model: Any, values: Mapping[str, Scalar]) -> dict[str, float]:
        valid = self._job.dataset.valid()
        assert valid is not None
        return self._job.trainer.evaluate(model, valid, values)


def _copy(state: ModelState) -> ModelState:
    return ModelState({name: array.copy() for name, array in state.arrays.items()}, dict(state.meta))
