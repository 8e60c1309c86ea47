"""What was asked for is what was trained for it, shared, or found: also when something is trained again."""

from __future__ import annotations

from pathlib import Path

import pytest

import hoptree as ht
from tests.system.plain import Plain, study


def adds_up(results: ht.Results) -> bool:
    savings = results.savings
    needed = savings.epochs_trained - savings.epochs_in_vain
    return savings.epochs_asked == needed + savings.epochs_shared + savings.epochs_reused


def test_a_prefix_that_is_trained_again_is_not_counted_as_reused(tmp_path: Path) -> None:
    job = study(tmp_path, epochs=3, keep=0)  # nothing stays that nobody needs
    assert adds_up(job.run(workers=1, quiet=True))
    job.clone(0, at=2, config={"lr": 0.2, "act": "fine", "nap": 0.0, "where": ""}, epochs=4)
    results = job.run(workers=1, quiet=True)
    assert adds_up(results)
    savings = results.savings
    assert (savings.epochs_asked, savings.epochs_shared) == (7, 2)
    assert (savings.epochs_trained, savings.epochs_reused) == (4, 1)  # two of them again


def test_what_was_given_up_is_in_vain(tmp_path: Path) -> None:
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
def test_others_are_counted_with_the_batches_that_there_were(tmp_path: Path, size: dict[str, object]) -> None:
    results = study(tmp_path, space={"lr": 0.1, **size}).run(workers=1, quiet=True)
    assert results.traffic is not None
    assert results.traffic.all_reduce == 2 * 2 * results.savings.state_bytes  # 24 rows are one batch
    assert "all-reduce" in str(results.traffic)
