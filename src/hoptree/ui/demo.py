"""The studies of ``hoptree demo``: one is trained, one is simulated."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from hoptree.core.errors import MissingExtraError
from hoptree.core.schedules import Config, Value, multistep, warmup
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Workload


def demo_workload() -> tuple[Workload, Cluster]:
    """Return eight configs with common prefixes, and four workers with a quarter of the data each."""
    configs: list[Config] = []
    for size in (64, 128):
        rates: list[Value] = [
            0.1,
            multistep(0.1, at=[4], gamma=0.1),
            multistep(0.1, at=[8], gamma=0.1),
            warmup(0.0, 2, multistep(0.1, at=[6], gamma=0.1)),
        ]
        configs += [{"lr": rate, "batch_size": size} for rate in rates]
    workload = Workload(
        configs=configs,
        epochs=12,
        partitions=4,
        every=4,
        factors={"batch_size": {"64": 1.5}},
        evaluation_seconds=0.5,
        state_bytes=50e6,
    )
    return workload, Cluster(workers=4, bandwidth=1e9)


def train_demo(workers: int | None = None) -> str:
    """Train four configs on scikit-learn's handwritten digits, and return the text to print."""
    for module, package in (("torch", "torch"), ("sklearn", "scikit-learn")):
        if find_spec(module) is None:
            raise MissingExtraError(
                f"demo: needs {package}, which is not installed; pip install 'hoptree[demo]', or run "
                "hoptree demo --simulate"
            )
    from sklearn.datasets import load_digits

    from hoptree.data import Dataset
    from hoptree.search.grid import Grid
    from hoptree.search.space import choice
    from hoptree.study.study import Study
    from hoptree.trainers import Torch, accuracy
    from hoptree.ui.studies_view import find_study, reading
    from hoptree.ui.study_tables import trials_table

    digits = load_digits()
    study = Study(
        "demo",
        trainer=Torch(_net, loss=_loss, optimizer="adam", metrics={"accuracy": accuracy}),
        data=Dataset.from_arrays(x=(digits.data / 16).astype("float32"), y=digits.target, partitions=4, valid=0.2),
        space={
            "lr": choice(3e-3, multistep(3e-3, at=[4], gamma=0.1)),
            "width": choice(32, 128),
            "batch_size": 64,
        },
        search=Grid(epochs=6),
        maximize="accuracy",
    )
    results = study.run(workers)
    best = results.best
    with reading(str(study.store), None) as store:
        view = find_study(store, study.name)
    return "\n".join(
        [
            f"{trials_table(view, view.trials)}\n",
            f"Best: trial {best.number}, with the fingerprint",
            f"      {best.fingerprint}",
            f"Work: {results.savings}",
            f"Store: {study.store}",
            "Run it again: it trains nothing. Show it: hoptree show demo",
        ]
    )


def _net(hp: Any) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(64, hp["width"]), nn.ReLU(), nn.Linear(hp["width"], 10))


def _loss(output: Any, target: Any) -> Any:
    from torch import nn

    return nn.functional.cross_entropy(output, target)
