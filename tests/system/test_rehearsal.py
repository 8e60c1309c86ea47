"""Rehearsal refuses a study of which no config can be trained; a config that fails alone is a failed trial."""

from __future__ import annotations

from pathlib import Path

import pytest

import hoptree as ht
from hoptree.core.errors import RefusedError
from tests.system.plain import study
from tests.system.processes import units_done_twice


def states(results: ht.Results) -> list[str]:
    return [trial.state for trial in results.trials]


def test_a_first_config_that_fails_is_a_result(tmp_path: Path) -> None:
    search = ht.Optuna("tpe", trials=4, epochs=1, batch=1)
    space = {"lr": ht.uniform(0.1, 0.2), "act": ht.choice("fine", "raise")}
    found = states(study(tmp_path, search=search, space=space, seed=3).run(workers=1, quiet=True))
    assert found[0] == "failed"
    assert "complete" in found


def test_an_added_trial_may_fail(tmp_path: Path) -> None:
    job = study(tmp_path)
    job.run(workers=1, quiet=True)
    bad = {"lr": 0.1, "act": "raise", "nap": 0.0, "where": ""}
    job.add(bad, epochs=2)
    assert states(job.run(workers=1, quiet=True)) == ["complete", "failed"]
    assert states(job.run(workers=1, quiet=True)) == ["complete", "failed"]
    assert units_done_twice(tmp_path / "store", "plain") == 0  # and the clock went on where it was


def test_a_study_without_a_trainable_config_is_refused(tmp_path: Path) -> None:
    job = study(
        tmp_path, "raise", space={"lr": ht.uniform(0.1, 0.2), "act": "raise"}, search=ht.Random(3, epochs=1)
    )
    with pytest.raises(RefusedError, match=r"No config could be trained.*\n(?s:.*)other configs failed as well"):
        job.run(workers=1, quiet=True)
