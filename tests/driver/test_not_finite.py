"""NaN and infinity cause a warning, and never win."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import hoptree as ht
from hoptree.record.results import NoStateError
from hoptree.ui.cli import cli
from tests.system.plain import Plain, study

BAD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Scored(Plain):
    """Reports the score that its config names, or its loss."""

    fingerprint = "scored"

    def evaluate(self, model: Any, data: Any, values: Mapping[str, Any]) -> dict[str, float]:
        found = super().evaluate(model, data, {})
        score = BAD.get(str(values["score"]))
        return {"score": found["loss"] if score is None else score, "side": math.nan, **found}


def scored(folder: Path, *scores: str, maximize: bool = False, **options: Any) -> ht.Study:
    base = study(folder)
    return ht.Study(
        "scored",
        trainer=Scored(),
        data=base.data,
        space={"lr": 0.1, "score": ht.choice(*scores), "act": "fine"},
        search=options.pop("search", ht.Grid(epochs=2)),
        store=folder / "store",
        **{"maximize" if maximize else "minimize": "score"},
    )


@pytest.mark.parametrize("maximize", [True, False])
def test_a_goal_that_is_not_finite_never_wins(tmp_path: Path, maximize: bool) -> None:
    results = scored(tmp_path, *BAD, "fine", maximize=maximize).run(workers=1, quiet=True)
    assert [trial.state for trial in results.trials] == ["complete"] * 4
    assert results.best.config["score"] == "fine"
    assert results.study_timeline().best.number == results.best.number  # plots and exports use this one


def test_without_a_finite_goal_there_is_no_best_trial(tmp_path: Path) -> None:
    job = scored(tmp_path, *BAD)
    results = job.run(workers=1, quiet=True)
    assert results.find_best() is None
    assert results.study_timeline().best is None
    with pytest.raises(NoStateError, match=r"finite 'score'.*3 trials are nan, inf, -inf"):
        results.best  # noqa: B018
    assert "nan" in results._repr_html_()
    shown = CliRunner().invoke(cli, ["best", "scored", "--store", str(tmp_path / "store")])
    assert shown.exit_code != 0
    shown = CliRunner().invoke(cli, ["show", "scored", "--store", str(tmp_path / "store"), "--json"])
    assert msgspec.json.decode(shown.output)["best"] is None


def test_a_metric_that_is_not_finite_causes_one_warning_with_its_trial(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "hoptree"):
        scored(tmp_path, "fine", "nan", "inf").run(workers=1, quiet=True)
    warnings = [message for message in caplog.messages if "after epoch" in message]
    assert [message.partition("; ")[0] for message in warnings] == [
        "trial 0 of 'scored': side is nan after epoch 1",
        "trial 1 of 'scored': score is nan after epoch 1, "
        "so the trial cannot be the best while this is its last report",
    ]


def test_columns_that_are_not_finite_cause_warnings_with_their_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = np.ones((20, 2), np.float32)
    rows[3, 1], rows[4], rows[5, 0] = math.nan, math.inf, -math.inf
    targets = np.zeros(20, np.float64)
    held_out = {"x": np.ones((5, 2), np.float32), "y": np.full(5, math.nan), "n": range(5)}
    data = ht.Dataset.from_arrays(x=rows, y=targets, n=range(20), partitions=3, valid=held_out, to=tmp_path / "d")
    assert data.manifest.not_finite == {"training": {"x": 4}, "validation": {"y": 5}}
    with caplog.at_level(logging.WARNING, "hoptree"):
        for _ in range(2):  # a finished study does not warn again
            study(tmp_path, data=data).run(workers=1, quiet=True)
    assert [message for message in caplog.messages if message.startswith("data: ")] == [
        "data: column 'x' of the training data has 4 values that are NaN or infinite",
        "data: column 'y' of the validation data has 5 values that are NaN or infinite",
    ]


def test_counts_do_not_affect_the_fingerprint_and_old_manifests_have_none(tmp_path: Path) -> None:
    data = ht.Dataset.from_arrays(x=np.array([1.0, math.nan]), partitions=1, valid=0, to=tmp_path / "d")
    path = data.path / "manifest.json"
    content = msgspec.json.decode(path.read_bytes())
    assert content.pop("not_finite") == {"training": {"x": 1}}
    path.write_bytes(msgspec.json.encode(content))
    old = ht.Dataset.open(data.path)
    assert (old.fingerprint, old.manifest.not_finite) == (data.fingerprint, None)
