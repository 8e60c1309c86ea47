"""Several workers train a unit together: the bits are those of one worker, and a lost worker costs a retry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.gang_nets import FLAG, study, widths
from tests.system.processes import units_done_twice


@pytest.mark.parametrize(
    "kind", ["mlp", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("cnn", "lstm", "transformer"))]
)
def test_the_bits_do_not_depend_on_how_many_workers_train_a_unit(tmp_path: Path, kind: str) -> None:
    prints = {}
    for workers in (1, 2, 4):
        results = study(tmp_path / str(workers), kind).run(workers=workers)
        assert [trial.state for trial in results.trials] == ["complete"]
        prints[workers] = results.best.fingerprint
    assert set(prints.values()) == {prints[1]}
    assert widths(tmp_path / "1") == [1] * 6
    assert 2 in widths(tmp_path / "2")
    assert 2 in widths(tmp_path / "4")  # four are tried if two were faster, which a busy machine may not show


@pytest.mark.parametrize("kind", ["helper", "leader"])
def test_a_worker_of_a_gang_that_is_killed_costs_a_retry(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FLAG, str(tmp_path / "flag"))
    whole = study(tmp_path / "whole", kind).run(workers=1)
    results = study(tmp_path / "killed", kind).run(workers=2)
    assert (tmp_path / "flag").exists()
    assert [trial.state for trial in results.trials] == ["complete"]
    assert results.best.fingerprint == whole.best.fingerprint
    assert not units_done_twice(tmp_path / "killed" / "store", "gangs")


def test_an_error_in_a_helping_worker_fails_the_trial_with_the_users_traceback(tmp_path: Path) -> None:
    results = study(tmp_path, "raise").run(workers=2)
    (trial,) = results.trials
    assert trial.state == "failed"
    assert "ValueError: only where it helps" in trial.error
