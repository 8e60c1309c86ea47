"""What somebody does who has installed Hoptree and no extra: ``python smoke.py FOLDER``.

It runs in an environment of its own, so it imports nothing but Hoptree and what Hoptree depends on. It prints a
line for each call that needs an extra: the name of the extra, a tab, and the error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import hoptree as ht
from hoptree.search import make_sampler
from hoptree.trainers.base import ModelState, UnitSpec


class Line(ht.Trainer):
    """Fits a line by gradient descent, in numpy."""

    fingerprint = "line"

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        return np.random.default_rng(seed).normal(size=2)

    def train(self, model: Any, data: Any, unit: UnitSpec) -> None:
        error = model[0] * data["x"] + model[1] - data["y"]
        rate = float(unit.at(0, 1)["lr"])
        model -= rate * np.array([(error * data["x"]).mean(), error.mean()])

    def evaluate(self, model: Any, data: Any, values: Mapping[str, Any]) -> dict[str, float]:
        return {"loss": float(np.square(model[0] * data["x"] + model[1] - data["y"]).mean())}

    def dump(self, model: Any) -> ModelState:
        return ModelState({"w": model}, {})

    def load(self, model: Any, state: ModelState) -> None:
        np.copyto(model, state.arrays["w"])


def make_study(folder: Path, name: str = "line", **options: Any) -> ht.Study:
    x = np.linspace(0, 1, 64, dtype=np.float32)
    return ht.Study(
        name,
        trainer=Line(),
        data=ht.Dataset.from_arrays(x=x, y=2 * x + 1, partitions=2, valid=0.25, to=folder / "data"),
        space={"lr": ht.choice(0.1, ht.multistep(0.1, at=[2], gamma=0.5))},
        search=ht.Grid(epochs=3),
        minimize="loss",
        store=folder / "store",
        **options,
    )


def calls(folder: Path, study: ht.Study, results: ht.Results) -> list[tuple[str, Callable[[], Any]]]:
    """Return each documented call that needs an extra, with the name of that extra."""
    space = {"lr": ht.uniform(0.0, 1.0)}
    times = [[3, 1, 2], [1, 3, 1], [2, 1, 3]]
    return [
        ("torch", lambda: ht.Torch),
        ("torch", lambda: ht.Functions),
        ("pandas", results.to_frame),
        ("plot", lambda: ht.plot.curves(study)),
        ("plot", lambda: results.export("html", folder / "report.html")),
        ("tensorboard", lambda: results.export("tensorboard", folder / "tensorboard")),
        ("mlflow", lambda: results.export("mlflow", folder / "mlflow")),
        ("safetensors", lambda: results.best.save(folder / "best.safetensors")),
        ("optuna", lambda: study.run(workers=1, mirror="sqlite:///optuna.db")),
        ("wandb", lambda: study.run(workers=1, mirror=ht.WandB(project="line"))),
        ("ray", lambda: make_study(folder, "ray").run(backend="ray")),
        ("optuna", lambda: make_sampler(ht.Optuna("tpe"), space, 0)),
        ("sampling", lambda: make_sampler("sobol", space, 0)),
        ("optimize", lambda: ht.optimize.solve(times, method="cp-sat")),
        ("optimize", lambda: ht.optimize.solve(times, method="milp")),
        (
            "postgresql",
            lambda: make_study(folder, "database", journal="postgresql://me@localhost/x").run(workers=1),
        ),
        ("remote", lambda: make_study(folder, "url", states="s3://bucket/states").run(workers=1)),
    ]


def main(folder: Path) -> None:
    assert version("hoptree") == ht.__version__
    study = make_study(folder)
    results = study.run(workers=2)
    assert [trial.state for trial in results.trials] == ["complete", "complete"], results
    assert results.savings.epochs_trained == 4, results.savings  # two epochs are shared
    assert all(check.holds for check in study.verify())
    results.export("csv", folder / "trials.csv")
    for extra, call in calls(folder, study, results):
        try:
            call()
        except ht.MissingExtraError as error:
            print(f"{extra}\t{error}")
        else:
            raise AssertionError(f"hoptree[{extra}] is not installed, but nothing said so")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
