"""Failed trials are trained again on request, and when code or data have changed."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import hoptree as ht
from hoptree.store import Store
from tests.system.plain import Plain, study
from tests.system.processes import trained_units
from tests.system.shared_store import await_that


def endings(results: ht.Results) -> list[tuple[int, str]]:
    return [(trial.epochs, trial.state) for trial in results.trials]


def needy(folder: Path, **options: Any) -> ht.Study:
    """Return a study with a trial that fails in its third epoch unless there is a file, and one that is fine."""
    space = {
        "lr": 0.1,
        "act": ht.choice("a", ht.piecewise(["b", "needs"], at=[2])),
        "nap": 0.0,
        "where": str(folder / "flag"),
    }
    return study(folder, space=space, epochs=4, **options)


def test_a_failed_trial_is_trained_again_from_where_it_was(tmp_path: Path) -> None:
    mine = needy(tmp_path, save_every=1)
    assert endings(mine.run(workers=1)) == [(4, "complete"), (2, "failed")]
    assert "no " in (mine.results().trials[1].error or "")
    mine.retry()
    again = mine.run(workers=1)  # nothing has changed: it fails again, and is not tried for ever
    assert endings(again) == [(4, "complete"), (2, "failed")]
    entries = trained_units(tmp_path, "plain")
    assert mine.run(workers=1).savings.epochs_trained == 0
    (tmp_path / "flag").touch()
    mine.retry(1)
    results = mine.run(workers=1)
    assert endings(results) == [(4, "complete"), (4, "complete")]
    assert sorted(results.trials[1].curve) == [1, 2, 3, 4]
    assert results.trials[1].error is None or not results.trials[1].error
    assert trained_units(tmp_path, "plain") == entries + 4  # two epochs of two partitions
    assert all(check.holds for check in mine.verify())
    assert mine.run(workers=1).savings.epochs_trained == 0


def test_the_bits_are_those_of_a_trial_that_never_failed(tmp_path: Path) -> None:
    for name in ("calm", "rough"):
        (tmp_path / name).mkdir()
    space = {"lr": 0.1, "act": ht.piecewise(["b", "needs"], at=[2]), "nap": 0.0, "where": str(tmp_path / "flag")}
    rough = study(tmp_path / "rough", space=space, epochs=4)
    rough.run(workers=1)
    rough.retry()
    (tmp_path / "flag").touch()
    calm = study(tmp_path / "calm", space=space, epochs=4)
    assert rough.run(workers=1).best.fingerprint == calm.run(workers=1).best.fingerprint


def test_a_running_study_picks_up_a_retry(tmp_path: Path) -> None:
    space = {
        "lr": 0.1,
        "act": ht.choice("a", "needs"),
        "nap": 0.05,
        "where": str(tmp_path / "flag"),
    }
    mine = study(tmp_path, space=space, epochs=2000)
    found: list[ht.Results] = []
    running = Thread(target=lambda: found.append(mine.run(workers=2)))
    running.start()
    try:
        await_that(lambda: state_of(tmp_path, mine, 1) == "failed")
        (tmp_path / "flag").touch()
        mine.retry(1)
        await_that(lambda: state_of(tmp_path, mine, 1) == "running")
        await_that(lambda: mine.results().trials[1].curve)
    finally:
        mine.stop(0)
        if state_of(tmp_path, mine, 1) == "running":
            mine.stop(1)
        running.join(timeout=900)
    assert found[0].trials[1].epochs > 0


def state_of(folder: Path, mine: ht.Study, trial: int) -> str:
    try:
        return str(mine.results().trials[trial].state)
    except (ht.HoptreeError, IndexError):
        return ""


def test_a_retry_without_failed_trials_raises_an_error(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "exit", epochs=2)
    with pytest.raises(ht.HoptreeError, match="store: no folder"):
        mine.retry()
    mine.run(workers=1)
    for trial, message in (
        (0, "trial 0 of 'plain': it is complete; expected a failed trial"),
        (7, "trial 7 of 'plain': no such trial; the study has 2 trials"),
        (-1, "trial: -1; expected a whole number, at least 0"),
        ("1", "trial: '1'; expected a whole number, at least 0"),
    ):
        with pytest.raises(ht.HoptreeError, match=message):
            mine.retry(trial)  # type: ignore[arg-type]
    fine = study(tmp_path, "a", name="fine")
    with pytest.raises(ht.HoptreeError, match="fine: the store .* has nothing of it; run it first"):
        fine.retry()
    fine.run(workers=1)
    with pytest.raises(ht.WorkloadError, match="fine: none of its 1 trials failed; there is nothing to retry"):
        fine.retry()
    with Store(tmp_path / "store") as store:
        assert store.requests.after("plain", 0) == store.requests.after("fine", 0) == []


class Mended(Plain):
    """Another code, by its fingerprint."""

    fingerprint = "mended"


def test_a_run_with_other_code_retries_failed_trials_automatically(tmp_path: Path) -> None:
    assert endings(needy(tmp_path).run(workers=1)) == [(4, "complete"), (2, "failed")]
    (tmp_path / "flag").touch()
    assert endings(needy(tmp_path).run(workers=1)) == [(4, "complete"), (2, "failed")]  # nothing has changed
    with pytest.raises(ht.StudyChangedError, match="trainer changed"):
        needy(tmp_path, trainer=Mended()).run(workers=1)
    assert endings(needy(tmp_path).results()) == [(4, "complete"), (2, "failed")]
    changed = needy(tmp_path, trainer=Mended())
    left = changed.explain(workers=1, accept_changes=True).left.epochs_trained
    results = changed.run(workers=1, accept_changes=True)
    assert endings(results) == [(4, "complete"), (4, "complete")]
    assert results.savings.epochs_trained == left > 0


def test_other_code_retries_once(tmp_path: Path) -> None:
    needy(tmp_path).run(workers=1)
    changed = needy(tmp_path, trainer=Mended())
    # it begins again from another root, and what the code of before had reported is not reported again
    assert endings(changed.run(workers=1, accept_changes=True)) == [(4, "complete"), (0, "failed")]
    before = trained_units(tmp_path, "plain")
    (tmp_path / "flag").touch()
    assert endings(changed.run(workers=1)) == [(4, "complete"), (0, "failed")]
    assert trained_units(tmp_path, "plain") == before
