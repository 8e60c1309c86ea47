"""Epochs asked for are trained, shared or reused, also if some are trained again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from tests.system.plain import Plain, dataset, study


def adds_up(results: ht.Results) -> bool:
    savings = results.savings
    needed = savings.epochs_trained - savings.epochs_in_vain
    return savings.epochs_asked == needed + savings.epochs_shared + savings.epochs_reused


def test_a_prefix_that_is_trained_again_is_not_counted_as_reused(tmp_path: Path) -> None:
    job = study(tmp_path, epochs=3, keep=0)  # states that no study needs are evicted
    assert adds_up(job.run(workers=1, quiet=True))
    job.clone(0, at=2, config={"lr": 0.2, "act": "fine", "nap": 0.0, "where": ""}, epochs=4)
    results = job.run(workers=1, quiet=True)
    assert adds_up(results)
    savings = results.savings
    assert (savings.epochs_asked, savings.epochs_shared) == (7, 2)
    assert (savings.epochs_trained, savings.epochs_reused) == (4, 1)  # two of them again


def test_stopped_trials_train_no_unneeded_epochs(tmp_path: Path) -> None:
    search = ht.SuccessiveHalving(9, 9)
    results = study(tmp_path, space={"lr": ht.log(1e-3, 1.0)}, search=search).run(workers=2, quiet=True)
    assert adds_up(results)
    assert results.savings.epochs_in_vain == 0


class Diverging(Plain):
    fingerprint = "diverging"

    def evaluate(self, model: object, data: object, values: object) -> dict[str, float]:
        found = super().evaluate(model, data, values)  # type: ignore[arg-type]
        return found if model["units"] < 12 else {"loss": float("nan")}  # type: ignore[index]


def test_a_trial_that_diverged_is_not_the_best(tmp_path: Path) -> None:
    space = {"lr": ht.log(1e-3, 1.0)}
    job = study(tmp_path, trainer=Diverging(), space=space, search=ht.SuccessiveHalving(9, 9))
    results = job.run(workers=1, quiet=True)
    assert results.best.state == "stopped"
    assert results.best.metrics["loss"] > 0


@pytest.mark.parametrize("size", [{}, {"batch_size": 32}, {"batch_size": ht.linear(32.0, 64.0, over=2)}])
def test_the_traffic_of_other_methods_uses_the_actual_batches(tmp_path: Path, size: dict[str, object]) -> None:
    results = study(tmp_path, space={"lr": 0.1, **size}).run(workers=1, quiet=True)
    assert results.traffic is not None
    assert results.traffic.all_reduce == 2 * 2 * results.savings.state_bytes  # 24 rows are one batch
    assert "all-reduce" in str(results.traffic)


class Grown(Plain):
    """Has as many numbers as its config says."""

    fingerprint = "grown"

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        self.size = int(values["size"])
        return super().build(values, seed)


def test_the_traffic_of_other_methods_uses_the_actual_models(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    a, b = (
        study(
            tmp_path,
            name=name,
            trainer=Grown(),
            data=data,
            space={"lr": rate, "size": ht.choice(10, 1000), "batch_size": ht.choice(8, 24)},
        )
        for name, rate in (("a", 0.1), ("b", 0.2))
    )
    found = ht.run([a, b], workers=1, quiet=True)
    each = (10 * 8 + 1000 * 8) / 2
    for results in found:  # of both together: 8 models of 2 epochs on 2 partitions of 24 rows
        assert results.savings.state_bytes == each
        assert results.traffic is not None
        assert results.traffic.model_hopper == 8 * 2 * 2 * each + 8 * each
        assert results.traffic.bulk_synchronous == 2 * 8 * 2 * 2 * each
        assert results.traffic.all_reduce == 8 * 2 * 2 * each * (3 + 1) / 2  # batches of 8 and of 24
