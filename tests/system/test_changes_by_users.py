"""Users change a study while it runs, and afterwards: requests, evaluations and disk usage."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

import hoptree as ht
from hoptree.record.disk_usage import disk_usage
from hoptree.store import Store
from tests.system.plain import study
from tests.system.processes import trained_units
from tests.system.shared_store import await_that

CONFIG = {"lr": 0.3, "act": "fine", "nap": 0.0, "where": ""}


@pytest.mark.slow
def test_trials_are_added_extended_and_cloned_afterwards(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b", epochs=2)
    first = mine.run(workers=2)
    config = dict(first.trials[0].config)
    mine.add(config | {"lr": 0.3}, epochs=2)
    mine.extend(0, epochs=3)
    mine.clone(1, at=1, config={"lr": 0.01}, epochs=3)
    second = mine.run(workers=2)
    assert [trial.state for trial in second.trials] == ["complete"] * 4
    assert [trial.epochs for trial in second.trials] == [3, 2, 2, 3]
    assert second.savings.epochs_trained in (1 + 2 + 2, 1 + 2 + 3)  # the first epoch of the clone may be stored
    assert second.trials[3].curve[1] == first.trials[1].curve[1]
    assert all(check.holds for check in mine.verify())
    assert mine.run(workers=2).savings.epochs_trained == 0
    assert [trial.state for trial in mine.results().trials] == [trial.state for trial in second.trials]


def test_a_running_study_picks_up_requests(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b", epochs=20, nap=0.1)
    found: list[Any] = []
    running = Thread(target=lambda: found.append(mine.run(workers=2)))
    running.start()
    end = monotonic() + 900
    while monotonic() < end:
        sleep(0.1)
        try:
            with Store(tmp_path / "store", create=False) as store:
                if store.journal.last("plain") > 8:
                    break
        except ht.HoptreeError:
            continue
    mine.stop(1)
    mine.add(CONFIG, epochs=1)
    running.join(timeout=900)
    (results,) = found
    assert [trial.state for trial in results.trials] == ["complete", "stopped", "complete"]
    assert results.trials[1].epochs < 20
    with pytest.raises(ht.HoptreeError, match="trial 1: it is already stopped; expected a running trial"):
        mine.stop(1)
    with pytest.raises(ht.HoptreeError, match="trial 1: it is stopped; clone it from an epoch that it has reached"):
        mine.extend(1, epochs=30)
    with pytest.raises(ht.HoptreeError, match="which is stopped; expected an epoch that it has reached"):
        mine.clone(1, at=20, config={"lr": 0.3}, epochs=30)


def test_a_config_is_evaluated_on_demand(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", epochs=2)
    config = {"lr": 0.3, "act": "a", "nap": 0.0, "where": str(tmp_path / "flag")}
    before = mine.evaluate(config, epoch=2, workers=1)  # nobody has run the study yet
    assert [trial.epochs for trial in mine.results().trials] == [2]
    with Store(tmp_path / "store") as store:
        entries = store.journal.last("plain")
    assert mine.evaluate(config, epoch=2) == before  # known: nothing is driven
    results = mine.run(workers=1)
    assert [trial.state for trial in results.trials] == ["complete", "complete"]
    assert results.trials[0].metrics == before
    own = dict(results.trials[1].config)
    assert mine.evaluate(own, epoch=1) == results.trials[1].curve[1]
    other = study(tmp_path, "b", name="other", epochs=3)
    assert other.evaluate(own, epoch=2) == results.trials[1].curve[2]  # another study has got there
    with Store(tmp_path / "store") as store:
        assert store.journal.last("other") == 0
        assert store.journal.last("plain") > entries
    further = other.evaluate(own, epoch=3, workers=1)  # goes on from what the other study has stored
    assert other.results().trials[0].metrics == further
    assert trained_units(tmp_path, "other") == 2


def test_an_evaluation_on_demand_says_why_it_failed(tmp_path: Path) -> None:
    mine = study(tmp_path, "a")
    mine.run(workers=1)
    config = {"lr": 0.3, "act": "exit", "nap": 0.0, "where": ""}
    with pytest.raises(ht.HoptreeError, match="it failed; the worker died with exit code 3"):
        mine.evaluate(config, epoch=1, workers=1)
    for epoch in (0, 1.5, True):
        with pytest.raises(ht.WorkloadError, match="expected a whole number, at least 1"):
            mine.evaluate(config, epoch)  # type: ignore[arg-type]


def test_a_running_study_evaluates_on_demand(tmp_path: Path) -> None:
    """The study would take minutes; a third worker has time for the evaluation."""
    mine = study(tmp_path, "a", "b", epochs=2000, nap=0.05)
    running = Thread(target=lambda: mine.run(workers=3))
    running.start()
    try:
        await_that(lambda: (tmp_path / "store" / "journal.sqlite").exists() and is_driven(tmp_path))
        metrics = study(tmp_path, "a", "b", epochs=2000, nap=0.05).evaluate(CONFIG, epoch=1)
        assert running.is_alive()
        mine.stop(0)
        mine.stop(1)
    finally:
        running.join(timeout=900)
    assert mine.results().trials[2].metrics == metrics


def is_driven(folder: Path) -> bool:
    with Store(folder / "store") as store:
        return store.holder("plain") is not None and store.journal.last("plain") > 8


@pytest.mark.slow
def test_states_stay_every_so_many_epochs(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", epochs=7, save_every=2)
    mine.run(workers=1)
    assert {2, 4, 6, 7} <= {held.epoch for held in mine.ledger()}
    for at in (4, 6, 2):
        mine.clone(0, at=at, config={"lr": 0.01}, epochs=8)
        again = study(tmp_path, "a", epochs=7, save_every=2).run(workers=1)
        assert again.savings.epochs_trained == 8 - at  # nothing before it
    assert all(check.holds for check in mine.verify())
    with pytest.raises(ht.WorkloadError, match="save_every: -1; expected a number of epochs"):
        study(tmp_path, save_every=-1)


def test_the_ledger_says_what_the_disk_holds_and_why(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b", epochs=2, keep=0)
    mine.run(workers=1)
    study(tmp_path, "b", name="other", epochs=3).run(workers=1)
    books = mine.ledger()
    assert [
        (held.study, held.trials, held.epoch, held.held_by) for held in sorted(books, key=lambda h: h.trials)
    ] == [
        ("plain", (("plain", 0),), 2.0, ("plain",)),
        ("plain", (("plain", 1), ("other", 0)), 2.0, ("plain",)),  # the other one has gone on from there
    ]
    assert books.size == books.held == sum(held.size for held in books) > 0
    assert "2 states" in str(books)
    assert "plain 1, other 0" in str(books)
    with Store(tmp_path / "store") as store:
        everything = disk_usage(store)
        assert len(everything) == len(store.states.keys()) == 3
        assert [held.trials for held in disk_usage(store, trials=False)] == [(), (), ()]
        store.states.put("0abc", {"w": np.zeros(3)}, {})  # no ledger entry
        (orphan,) = [held for held in disk_usage(store) if held.key == "0abc"]
        assert (orphan.study, orphan.trials, orphan.held_by, orphan.epoch) == ("", (), (), None)
