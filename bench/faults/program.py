"""The study that is disturbed, as a user would write it; the options come from the environment.

Run as a program it trains, and writes what came of it to a file. Every unit is noted in another file when it
begins: by its seed, which is as unique as its place in a lineage, and by the process that trained it.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from acts import ACTS, NAN  # type: ignore[import-not-found]  # beside this file, which is a program

import hoptree as ht
from hoptree.trainers.base import ModelState, UnitSpec

OPTIONS: dict[str, Any] = json.loads(os.environ["HOPTREE_FAULTS"])
FOLDER = Path(OPTIONS["folder"])
FINE = "fine"


class Plain(ht.Trainer):
    """Mixes seeded noise into a vector: no two units may change places, and no bit of a state is idle."""

    def __init__(self, size: int, nap: float, tame: bool, units: Path) -> None:
        self.size = size
        self.nap = nap
        self.tame = tame
        self.units = units

    @property
    def fingerprint(self) -> str:
        """The size alone: what a disturbed study does wrong is no other code."""
        return f"faults {self.size}"

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        """Return a vector."""
        return {"w": np.random.default_rng(seed).normal(size=self.size), "units": 0}

    def train(self, model: Any, data: Any, unit: UnitSpec) -> None:
        """Do one unit, and in the second one what the config says."""
        values: dict[str, Any] = unit.at(0, 1)
        if unit.partitions > 1:  # in a rehearsal there is one
            self._note(unit)
            time.sleep(self.nap)
            if unit.unit == 1 and not self.tame and values["act"] in ACTS:
                ACTS[str(values["act"])]()
        noise = np.random.default_rng(unit.seed).normal(size=self.size)
        model["w"] = float(values["decay"]) * model["w"] + float(values["lr"]) * noise * (1 + data["x"].mean())
        model["units"] += 1

    def _note(self, unit: UnitSpec) -> None:
        with suppress(OSError), self.units.open("a") as file:
            file.write(f"{os.getpid()} {unit.seed}\n")

    def evaluate(self, model: Any, data: Any, values: Mapping[str, Any]) -> dict[str, float]:
        """Return the mean."""
        loss = float(np.abs(model["w"]).mean() + data["x"].mean())
        return {"loss": float("nan") if values["act"] == NAN and not self.tame else loss}

    def dump(self, model: Any) -> ModelState:
        """Return the vector."""
        return ModelState({"w": model["w"]}, {"units": model["units"]})

    def load(self, model: Any, state: ModelState) -> None:
        """Copy the vector."""
        model["w"] = state.arrays["w"].copy()
        model["units"] = state.meta["units"]


class Ending:
    """A procedure whose driver is killed when it hears of the end of a trial, for the n-th time."""

    def __init__(self, procedure: Any, ends: list[int]) -> None:
        self.procedure = procedure
        self.ends = ends

    def __repr__(self) -> str:
        return repr(self.procedure)

    def search(self, space: Any, goal: Any, seed: int) -> Any:
        """Return the other's search, listened to."""
        search = self.procedure.search(space, goal, seed)
        tell = search.tell

        class Told:
            def start(self) -> Sequence[Any]:
                return list(search.start())

            def tell(_, news: Any) -> Sequence[Any]:  # noqa: N805 the outer self is used
                if hasattr(news, "ending"):
                    self.ends[0] -= 1
                    if not self.ends[0]:
                        os.kill(os.getpid(), signal.SIGKILL)
                return list(tell(news))

        return Told()


def make_study() -> ht.Study:
    """Return the study that the options describe."""
    rows = np.random.default_rng(0).normal(size=(96, 4)).astype(np.float32)
    searches: list[Any] = [ht.Grid(epochs=3)]
    if OPTIONS["halving"]:
        searches.append(ht.SuccessiveHalving(6, max_epochs=4, factor=2))
    if OPTIONS["end"]:
        ends = [OPTIONS["end"]]
        searches = [Ending(search, ends) for search in searches]
    rates = [0.1, ht.multistep(0.1, at=[1], gamma=0.5), ht.multistep(0.1, at=[2], gamma=0.5)]
    return ht.Study(
        OPTIONS["name"],
        trainer=Plain(OPTIONS["size"], OPTIONS["nap"], OPTIONS["tame"], FOLDER / "units.log"),
        data=ht.Dataset.from_arrays(x=rows, partitions=3, valid=0.25, to=FOLDER / "data"),
        space={
            "lr": ht.choice(*rates),
            "decay": ht.choice(0.9, 0.8),
            "act": ht.choice(*(OPTIONS["acts"] or [FINE])),
        },
        search=searches,
        minimize="loss",
        store=FOLDER / "store",
        journal=OPTIONS["journal"],
    )


study = make_study()


def main() -> None:
    known = inspect.signature(study.run).parameters  # an option that this version lacks is left out
    options = {name: value for name, value in OPTIONS["run"].items() if name in known}
    results = study.run(workers=OPTIONS["workers"], **options)
    trials = [
        {
            "config": {name: str(value) for name, value in trial.config.items()},
            "ending": trial.state,
            "curve": {epoch: {n: v.hex() for n, v in found.items()} for epoch, found in trial.curve.items()},
            "fingerprint": trial.fingerprint if trial.state == "complete" else "",
            "error": trial.error[:2000],
            "error_length": len(trial.error),
        }
        for trial in results.trials
    ]
    aside = FOLDER / f"{study.name}.{os.getpid()}.json"
    aside.write_text(json.dumps({"pid": os.getpid(), "trials": trials}))
    aside.rename(FOLDER / f"{study.name}.outcome.json")


if __name__ == "__main__":
    main()
