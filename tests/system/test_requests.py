"""User requests: impossible ones raise an error at once, and no stored request keeps a study from running."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

import hoptree as ht
from hoptree.store import Store
from hoptree.store.requests import StopTrial
from tests.system.plain import dataset, study

CONFIG = {"lr": 0.3, "act": "fine", "nap": 0.0, "where": ""}
CHANGE = {"lr": 0.3}


def stored(folder: Path, name: str = "plain") -> int:
    with Store(folder / "store", create=False) as store:
        return len(store.requests.after(name, 0))


def change(folder: Path, statement: str, **values: Any) -> None:
    engine = create_engine(f"sqlite:///{folder / 'store' / 'journal.sqlite'}")
    with engine.begin() as connection:
        connection.execute(text(statement), values)
    engine.dispose()


def store_requests(folder: Path, *texts: str, name: str = "plain") -> None:
    """Store requests as another version may have done."""
    for request in texts:
        last = "(select coalesce(max(number), 0) + 1 from hoptree_wishes)"
        change(folder, f"insert into hoptree_wishes values ({last}, :study, :request)", study=name, request=request)


def epochs(results: ht.Results) -> list[tuple[int, str]]:
    return [(trial.epochs, trial.state) for trial in results.trials]


# --- invalid requests -------------------------------------------------------------------------------------

REFUSED: list[tuple[Callable[[Any], None], str]] = [
    (lambda s: s.extend(0, 2.5), "epochs: 2.5; expected a whole number, at least 1"),
    (lambda s: s.extend(0, "5"), "epochs: '5'; expected a whole number"),
    (lambda s: s.extend(0, True), "epochs: True; expected a whole number"),
    (lambda s: s.extend(0, 10**30), "epochs: 10+; expected at most 100,000"),
    (lambda s: s.extend(1.0, 5), "trial: 1.0; expected a whole number, at least 0"),
    (lambda s: s.extend("0", 5), "trial: '0'; expected a whole number"),
    (lambda s: s.extend(-1, 5), "trial: -1; expected a whole number"),
    (lambda s: s.stop("0"), "trial: '0'; expected a whole number"),
    (lambda s: s.stop(9), "trial 9 of 'plain': no such trial; the study has 2 trials"),
    (lambda s: s.add(CONFIG, epochs=0), "epochs: 0; expected a whole number, at least 1"),
    (lambda s: s.add(CONFIG, epochs=2, every=1.5), "every: 1.5; expected a whole number, at least 0"),
    (lambda s: s.add(CONFIG, epochs=2, every=-1), "every: -1; expected a whole number, at least 0"),
    (lambda s: s.add("lr", epochs=2), "config: 'lr'; expected"),
    (lambda s: s.add({}, epochs=2), "config: it is empty"),
    (lambda s: s.add({"lr": "\ud800"}, epochs=2), "expected text that UTF-8 can encode"),
    (lambda s: s.add({"lr": float("nan")}, epochs=2), "config.*nan"),
    (lambda s: s.add(CHANGE, epochs=2, like="0"), "trial: '0'; expected a whole number"),
    (lambda s: s.add(CHANGE, epochs=2, like=7), "trial 7 of 'plain': no such trial"),
    (
        lambda s: s.add({"rl": 0.3}, epochs=2, like=0),
        "no config of plain has the name 'rl'; expected one of act, lr, nap",
    ),
    (lambda s: s.clone(0, at=1.5, config=CHANGE, epochs=4), "at: 1.5; expected a whole number, at least 1"),
    (lambda s: s.clone(0, at=0, config=CHANGE, epochs=4), "at: 0; expected a whole number, at least 1"),
    (lambda s: s.clone(0, at=3, config=CHANGE, epochs=4), "at: epoch 3 of trial 0; expected 1 to 2"),
    (lambda s: s.clone(0, at=1, config=CHANGE, epochs=1), "epochs: 1; expected more than the 1"),
    (lambda s: s.clone(0, at=1, config=CHANGE, epochs=4.0), "epochs: 4.0; expected a whole number"),
    (lambda s: s.clone(0, at=1, config=CHANGE, epochs=4, every=-2), "every: -2; expected a whole number"),
    (lambda s: s.clone(0, at=1, config={}, epochs=4), "config: no value is changed"),
    (lambda s: s.clone(0, at=1, config="lr", epochs=4), "config: 'lr'; expected"),
    (
        lambda s: s.clone(0, at=1, config={"rl": 1}, epochs=4),
        "no config of plain has the name 'rl'; expected one of",
    ),
    (lambda s: s.evaluate("lr", epoch=1), "config: 'lr'; expected"),
]


def test_impossible_values_are_refused_and_leave_no_trace(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b", epochs=2)
    before = epochs(mine.run(workers=1))
    for request, message in REFUSED:
        with pytest.raises(ht.HoptreeError, match=message):
            request(mine)
    assert stored(tmp_path) == 0
    again = mine.run(workers=1)
    assert epochs(again) == before
    assert again.savings.epochs_trained == 0


def test_no_store_is_created_for_an_invalid_request_or_for_a_study_that_has_not_run(tmp_path: Path) -> None:
    mine = study(tmp_path, "a")
    with pytest.raises(ht.WorkloadError, match="epochs: 0"):
        mine.add(CONFIG, epochs=0)
    for request in (lambda: mine.extend(0, 5), lambda: mine.stop(0), lambda: mine.add(CHANGE, 2, like=0)):
        with pytest.raises(ht.HoptreeError):
            request()
    assert not (tmp_path / "store").exists()
    mine.add(CONFIG, epochs=1)  # possible before the first run
    assert epochs(mine.run(workers=1)) == [(2, "complete"), (1, "complete")]


def test_an_ended_trial_is_not_stopped_and_a_failed_trial_is_not_extended(tmp_path: Path) -> None:
    space = {"lr": 0.1, "act": ht.choice("a", ht.piecewise(["a", "exit"], at=[2])), "nap": 0.0, "where": ""}
    mine = study(tmp_path, space=space, epochs=4)
    first = mine.run(workers=1)
    assert epochs(first) == [(4, "complete"), (2, "failed")]
    for request, message in (
        (lambda: mine.stop(0), "trial 0: it is already complete"),
        (lambda: mine.stop(1), "trial 1: it is already failed"),
        (lambda: mine.extend(1, 9), "trial 1: it is failed; clone it from an epoch that it has reached, 1 to 2"),
        (
            lambda: mine.clone(1, at=3, config={"act": "a"}, epochs=4),
            "epoch 3 of trial 1, which is failed; .* 1 to 2",
        ),
    ):
        with pytest.raises(ht.WorkloadError, match=message):
            request()
    assert stored(tmp_path) == 0
    mine.clone(1, at=2, config={"act": "a"}, epochs=4)
    second = mine.run(workers=1)
    assert epochs(second) == [(4, "complete"), (2, "failed"), (4, "complete")]
    assert second.best.fingerprint == first.best.fingerprint


# --- what requests mean -----------------------------------------------------------------------------------


def test_a_clone_is_the_trial_with_changed_values(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b", epochs=2)
    config = dict(mine.run(workers=1).trials[1].config)
    mine.clone(1, at=1, config=CHANGE, epochs=3)
    mine.add(CHANGE, epochs=1, like=1)
    mine.add({"lr": 0.5}, epochs=1)  # the whole config
    results = mine.run(workers=1)
    assert [trial.config for trial in results.trials[2:]] == [config | CHANGE, config | CHANGE, {"lr": 0.5}]
    mine.clone(2, at=2, config={"nap": 0.001}, epochs=3)  # what was changed before stays changed
    assert mine.run(workers=1).trials[5].config == config | CHANGE | {"nap": 0.001}


def test_the_last_request_counts_and_a_stop_may_be_too_late(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b", epochs=2)
    mine.run(workers=1)
    with Store(tmp_path / "store") as store:
        store.requests.make("plain", StopTrial(0))  # requested while it ran
        store.requests.make("plain", StopTrial(1))
    results = mine.run(workers=1)
    assert epochs(results) == [(2, "complete")] * 2
    assert results.best.state == "complete"
    mine.extend(0, 3)  # after the request to stop it, which it overrules
    assert epochs(mine.run(workers=1)) == [(3, "complete"), (2, "complete")]
    assert epochs(mine.run(workers=1)) == [(3, "complete"), (2, "complete")]
    assert all(check.holds for check in mine.verify())


# --- stored by another version ----------------------------------------------------------------------------

STORED = [
    '{"type":"Prolong","trial":0,"until":2.5}',
    '{"type":"Add","config":[["lr",0.3]],"until":2,"every":1.5}',
    '{"type":"Add","config":[["lr",0.3]],"until":2,"every":-1}',
    '{"type":"Add","config":[],"until":2,"every":1}',
    '{"type":"Add","config":[["lr",{"kind":"linear","arguments":["a",1,2]}]],"until":2,"every":1}',
    '{"type":"Add","config":[["lr",{"kind":"wave","arguments":[]}]],"until":2,"every":1}',
    '{"type":"Clone","trial":0,"at":1.5,"config":[["lr",0.3]],"until":4,"every":1}',
    '{"type":"Clone","trial":0,"at":2,"config":[["lr",0.3]],"until":2,"every":1}',
    '{"type":"Clone","trial":0,"at":1,"config":[["lr",0.3]],"until":4,"every":-2}',
    '{"type":"Dream","trial":0}',
    "{",
]


def test_an_impossible_stored_request_is_skipped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = study(tmp_path, "a", epochs=2)
    mine.run(workers=1)
    store_requests(tmp_path, *STORED)
    mine.extend(0, 3)
    with caplog.at_level(logging.WARNING, "hoptree"):
        assert mine.explain().left.epochs_trained == 1
        assert not caplog.records
        assert epochs(mine.run(workers=1)) == [(3, "complete")]
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == len(STORED)
    for number, message in enumerate(warnings, start=1):
        assert message.startswith(f"request {number} of 'plain' is skipped: ")
    assert "every: -1; expected a whole number, at least 0" in warnings[2]
    assert "cannot read" in warnings[0]
    assert mine.run(workers=1).savings.epochs_trained == 0


def test_a_clone_of_an_earlier_failed_trial_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mine = study(tmp_path, "a", "exit", epochs=2)
    mine.run(workers=1)
    store_requests(
        tmp_path, '{"type":"Clone","trial":1,"at":2,"config":[["lr",0.3],["act","a"]],"until":4,"every":1}'
    )
    with caplog.at_level(logging.WARNING, "hoptree"):
        assert epochs(mine.run(workers=1)) == [(2, "complete"), (0, "failed")]
    assert "request 1 of 'plain' is skipped: trial 1 failed after epoch 0, before epoch 2" in caplog.text


# --- in several journals ----------------------------------------------------------------------------------


def test_requests_apply_alone_and_in_a_group(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    a = study(tmp_path, "x", "y", name="a", data=data)
    b = study(tmp_path, "y", "z", name="b", data=data)
    ht.run([a, b], workers=2)
    a.extend(0, 5)
    assert epochs(a.run(workers=1)) == [(5, "complete"), (2, "complete")]
    a.extend(1, 4)
    a.clone(0, at=4, config=CHANGE, epochs=5)  # of epochs that only its own journal has
    a.add(CHANGE, epochs=1, like=0)
    alone = a.run(workers=1)
    requested = [(5, "complete"), (4, "complete"), (5, "complete"), (1, "complete")]
    assert epochs(alone) == requested
    for group in ([a, b], [b, a]):
        found = ht.run(group, workers=1)
        mine = found[group.index(a)]
        assert sorted(epochs(mine)) == sorted(requested)
        assert mine.savings.epochs_trained == 0
        assert epochs(found[group.index(b)]) == [(2, "complete"), (2, "complete")]
        assert {trial.fingerprint for trial in mine.trials} == {trial.fingerprint for trial in alone.trials}
    assert a.run(workers=1).savings.epochs_trained == 0
    assert a.explain().left.units == 0


def test_results_and_requests_use_the_journal_with_the_most_entries(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    a = study(tmp_path, "x", "y", name="a", data=data)
    b = study(tmp_path, "y", "z", name="b", data=data)
    a.run(workers=1)
    a.extend(1, 4)
    ht.run([a, b], workers=1)
    assert epochs(a.results()) == [(2, "complete"), (4, "complete")]
    assert [course.epochs for course in a.study_timeline().trials] == [2, 4]
    a.clone(1, at=4, config=CHANGE, epochs=5)
    assert epochs(a.run(workers=1)) == [(2, "complete"), (4, "complete"), (5, "complete")]
    b.evaluate({"lr": 0.9, "act": "y", "nap": 0.0, "where": ""}, epoch=1, workers=1)
    assert [trial.config["act"] for trial in b.results().trials] == ["y", "z"]  # not the evaluation alone


def test_a_request_applies_to_the_same_trial_under_any_number(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    a = study(tmp_path, "x", "y", name="a", data=data)
    b = study(tmp_path, "y", "z", name="b", data=data)
    a.evaluate(CONFIG, epoch=1, workers=1)  # alone, this is trial 0
    assert [trial.config["act"] for trial in a.run(workers=1).trials] == ["fine", "x", "y"]
    a.extend(1, 3)
    assert epochs(a.run(workers=1)) == [(1, "complete"), (3, "complete"), (2, "complete")]
    together, _ = ht.run([a, b], workers=1)
    assert [(t.config["act"], t.epochs) for t in together.trials] == [("x", 3), ("y", 2), ("fine", 1)]


def test_a_request_does_not_interfere_with_a_search(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    space = {"lr": ht.log(0.01, 1.0), "act": "fine", "nap": 0.0, "where": ""}
    search = ht.SuccessiveHalving(trials=4, max_epochs=4, factor=2)
    a = study(tmp_path, name="a", data=data, space=space, search=search)
    b = study(tmp_path, "z", name="b", data=data)
    first = a.run(workers=1)
    best = first.best.number
    a.extend(best, 6)
    alone = epochs(a.run(workers=1))
    assert alone[best] == (6, "complete")
    with Store(tmp_path / "store") as store:  # the group has to train, and to decide
        for key in list(store.states.keys()):
            store.states.delete(key)
    change(tmp_path, "delete from hoptree_reports")
    together, _ = ht.run([a, b], workers=1)
    assert epochs(together) == alone


def test_a_request_for_a_trial_that_a_run_does_not_have_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = dataset(tmp_path)
    a = study(tmp_path, "x", "y", name="a", data=data)
    b = study(tmp_path, "z", name="b", data=data)
    a.run(workers=1)
    store_requests(
        tmp_path,
        '{"type":"Prolong","trial":7,"until":9}',
        '{"type":"Prolong","trial":0,"until":9,"key":"of another trial","granted":2}',
        '{"type":"Clone","trial":0,"at":7,"config":[["lr",0.3]],"until":9,"every":1}',
        '{"type":"GiveUp","trial":9}',
        name="a",
    )
    with caplog.at_level(logging.WARNING, "hoptree"):
        assert epochs(a.run(workers=1)) == [(2, "complete")] * 2
        assert epochs(ht.run([a, b], workers=1)[0]) == [(2, "complete")] * 2
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 6
    assert warnings[0].startswith("request 1 of 'a', to extend trial 7, was not carried out")
