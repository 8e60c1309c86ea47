"""What explain returns before a run, and after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.forecast import explanation
from hoptree.study import explain_studies
from tests.study.test_study import tiny_study
from tests.system.plain import Plain, dataset, study
from tests.system.test_commands import PROGRAM, hoptree

FIGURES = {"trials", "epochs_asked", "epochs_trained", "epochs_reused", "merge_rate", "units", "workers", "seconds",
           "cpu_seconds", "memory", "disk", "least", "most"}  # fmt: skip


def model(hp: dict[str, Any]) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(4, hp["width"]), nn.Linear(hp["width"], 3))


def test_before_during_and_after(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, model)
    before = study.explain(workers=2)
    assert not (tmp_path / "store").exists()
    assert (before.trials, before.epochs_asked, before.epochs_trained, before.epochs_reused) == (2, 4.0, 4.0, 0.0)
    assert (before.left.units, before.workers, before.exact) == (8, 2, True)
    assert 0 < before.least < before.seconds < before.most
    assert before.basis == "a timing run of 2 configs"
    assert before.left.disk
    assert before.left.memory
    assert [each.workers for each in before.by_workers][:2] == [1, 2]
    assert before.by_workers[0].seconds >= before.by_workers[1].seconds
    assert before.happened is None
    assert "What trials share:" in str(before)
    assert "Expected on 2 workers:" in str(before)
    assert "chosen" in before.workers_table()

    results = study.run(workers=2)
    after = study.explain(workers=2)
    assert after.basis == "8 measured units"
    assert (after.epochs_trained, after.seconds, after.by_workers) == (0.0, 0.0, [])
    assert after.happened is not None
    assert after.whole is not None
    assert after.happened.epochs_trained == results.savings.epochs_trained == after.whole.epochs_trained == 4.0
    assert after.happened.cpu_seconds > 0
    assert after.happened.disk
    assert after.left.disk == 0  # all states are stored
    assert "happened" in after.table()

    another = tiny_study(tmp_path, model, name="another", space={"width": ht.choice(8, 16, 24), "lr": 0.1})
    third = another.explain(workers=1)
    assert (third.trials, third.epochs_reused, third.epochs_trained) == (3, 4.0, 2.0)
    assert "measured units and a timing run of 1 config" in third.basis


def test_the_remaining_work_is_counted_from_the_current_state(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, model, share=False)
    study.run(workers=1)
    assert study.explain(workers=1).epochs_trained == 0.0
    study.extend(0, epochs=4)
    assert study.explain(workers=1).epochs_trained == 2.0
    longer = tiny_study(tmp_path, model, name="longer", search=ht.Grid(epochs=3))
    assert longer.explain(workers=1).epochs_trained == 6.0  # unshared trials are not reused by others


def test_pending_requests_are_part_of_the_forecast(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b", epochs=3)
    mine.run(workers=1)
    mine.extend(0, epochs=5)
    mine.clone(1, at=3, config={"lr": 0.7}, epochs=5)
    mine.add({"lr": 0.9}, epochs=2, like=0)
    before = mine.explain(workers=1)
    assert before.happened is not None
    assert before.whole is not None
    assert before.whole.epochs_trained == before.happened.epochs_trained  # no request was carried out yet
    assert (before.left.epochs_trained, before.sessions) == (6.0, 1)
    mine.run(workers=1)
    after = mine.explain(workers=1)
    assert after.happened is not None
    assert after.whole is not None
    for field in ("trials", "epochs_asked", "epochs_trained", "merge_rate", "units", "workers"):
        assert getattr(after.whole, field) == getattr(after.happened, field), field
    assert after.sessions == 2
    assert "It was run in 2 sessions" in str(after)


@pytest.mark.parametrize(
    ("search", "slack"),  # a trial that is stopped while it trains may have trained an epoch more or less
    [
        (ht.ASHA(trials=9, max_epochs=9), 0),
        (ht.ASHA(trials=6, max_epochs=9, mode="stop"), 6),
        (ht.SuccessiveHalving(trials=9, max_epochs=9), 0),
        (ht.PBT(population=4, epochs=4, interval=2, change=["lr"]), 0),
        (ht.MedianStopping(trials=6, epochs=4), 6),
    ],
    ids=["asha", "asha-stop", "halving", "pbt", "median"],
)
@pytest.mark.slow
def test_the_requested_work_equals_the_forecast(tmp_path: Path, search: Any, slack: int) -> None:
    space = {"lr": ht.log(1e-3, 1.0)}
    first = study(tmp_path, space=space, search=ht.Random(2, epochs=2))
    first.run(workers=1)  # so that the store is not empty
    asked = study(tmp_path, name="asked", space=space, search=search)
    asked.run(workers=2)
    after = asked.explain(workers=2)
    assert after.happened is not None
    assert after.whole is not None
    assert (after.whole.trials, after.whole.workers) == (after.happened.trials, after.happened.workers)
    for field in ("epochs_asked", "epochs_trained", "epochs_reused"):
        assert abs(getattr(after.whole, field) - getattr(after.happened, field)) <= slack, field


def test_carried_out_requests_are_part_of_the_forecast(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b")
    mine.run(workers=1, quiet=True)
    mine.extend(0, 5)
    mine.add({"lr": 0.3, "act": "c", "nap": 0.0, "where": ""}, epochs=3)
    mine.run(workers=1, quiet=True)
    forecast = mine.explain(workers=1)
    assert forecast.whole is not None
    assert forecast.happened is not None
    for account in (forecast.whole, forecast.happened):
        assert (account.trials, account.epochs_asked, account.epochs_trained) == (3, 10.0, 10.0)


def test_a_long_journal_of_its_own_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_studies, "_MAX_ENTRIES", 1)  # longer journals of other studies are not read
    mine = study(tmp_path, "a", "b", share=False)
    mine.run(workers=1, quiet=True)
    forecast = mine.explain(workers=1)
    assert (forecast.epochs_trained, forecast.happened is not None) == (0.0, True)


@pytest.mark.parametrize("units", [explanation._SIMULATED, 1])  # 1: too large to simulate several examples
def test_the_forecast_of_a_search_that_decides_by_results_is_an_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: int
) -> None:
    monkeypatch.setattr(explanation, "_SIMULATED", units)
    study = tiny_study(
        tmp_path,
        model,
        space={"width": ht.integer(4, 64), "lr": ht.log(1e-3, 1e-1)},
        search=ht.ASHA(trials=12, max_epochs=9),
    )
    forecast = study.explain(workers=2)
    assert forecast.trials == 12
    assert not forecast.exact
    assert "this is an example" in str(forecast)
    assert tiny_study(tmp_path, model).explain(workers=2).exact


def test_configs_that_cannot_be_trained_are_left_out_of_the_timing_run_or_refused(tmp_path: Path) -> None:
    def picky(hp: dict[str, Any]) -> Any:
        if hp["width"] == 8:
            raise ValueError("eight is not enough")
        return model(hp)

    def never(hp: dict[str, Any]) -> Any:
        raise ValueError("not today")

    assert tiny_study(tmp_path / "a", picky).explain(workers=1).basis == "a timing run of 1 config"
    with pytest.raises(ht.HoptreeError, match="No config could be trained. First error:\n(.|\n)*not today"):
        tiny_study(tmp_path / "b", never).explain(workers=1)


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_are_refused(tmp_path: Path, workers: int) -> None:
    with pytest.raises(ht.HoptreeError, match="workers: .*expected at least (one|1)"):
        tiny_study(tmp_path, model).explain(workers=workers)


@pytest.mark.slow
def test_the_command_prints_text_and_json(tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(PROGRAM.read_text())
    forecast = json.loads(hoptree(tmp_path, "explain", "tiny.py", "--workers", "3", "--json"))
    facts = {"basis", "exact", "cores", "sessions", "platform", "profile", "nodes", "cost", "pilot_seconds"}
    assert set(forecast) == {"study", "left", "by_workers", "whole", "happened", *facts}
    assert set(forecast["left"]) == FIGURES
    assert (forecast["study"], forecast["left"]["workers"], forecast["happened"]) == ("tiny", 3, None)
    text = hoptree(tmp_path, "explain", "tiny.py")
    assert "epochs to train" in text
    assert "├─ epochs 0 to 2, 2 trials share 0 to 1: width=8" in text


def test_a_changed_study_is_not_explained(tmp_path: Path) -> None:
    study(tmp_path, "a", epochs=1).run(workers=1)
    with pytest.raises(ht.StudyChangedError, match="study 'plain' differs"):
        study(tmp_path, "b", epochs=2).explain(workers=1)
    assert study(tmp_path, "a", "b", epochs=2).explain(workers=1).left.epochs_trained == 3  # an extension


class Other(Plain):
    """The same, by other code."""

    @property
    def fingerprint(self) -> str:
        return "other"


def test_a_study_that_run_refuses_is_not_explained(tmp_path: Path) -> None:
    wrong = ht.Study(
        "wrong", trainer=Plain(), data=dataset(tmp_path), space={"lr": 0.1}, search=ht.Grid(epochs=1),
        maximize="los", store=tmp_path / "store",
    )  # fmt: skip
    with pytest.raises(ht.RefusedError, match="reports only loss .did you mean 'loss'"):
        wrong.explain(workers=1)
    study(tmp_path, "a", epochs=1).run(workers=1)
    with pytest.raises(ht.StudyChangedError, match="trainer changed since it was started"):
        study(tmp_path, "a", epochs=1, trainer=Other()).explain(workers=1)
    accepted = study(tmp_path, "a", epochs=1, trainer=Other()).explain(workers=1, accept_changes=True)
    assert accepted.epochs_trained == 0.0  # it would resume, as run does
