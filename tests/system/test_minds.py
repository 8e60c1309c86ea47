"""Users change their minds while a study runs, and afterwards."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pytest

import hoptree as ht
from hoptree.store import Store
from tests.system.plain import study

CONFIG = {"lr": 0.3, "act": "fine", "nap": 0.0, "where": ""}


def test_trials_are_added_extended_cloned_and_stopped_afterwards(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b", epochs=2)
    first = mine.run(workers=2)
    config = dict(first.trials[0].config)
    mine.add(config | {"lr": 0.3}, epochs=2)
    mine.extend(0, epochs=3)
    mine.clone(1, at=1, config=dict(first.trials[1].config) | {"lr": 0.01}, epochs=3)
    mine.stop(1)
    second = mine.run(workers=2)
    assert [trial.state for trial in second.trials] == ["complete", "stopped", "complete", "complete"]
    assert [trial.epochs for trial in second.trials] == [3, 2, 2, 3]
    assert second.savings.epochs_trained in (1 + 2 + 2, 1 + 2 + 3)  # the first epoch of the clone may be stored
    assert second.trials[3].curve[1] == first.trials[1].curve[1]
    assert all(check.holds for check in mine.verify())
    assert mine.run(workers=2).savings.epochs_trained == 0
    assert [trial.state for trial in mine.results().trials] == [trial.state for trial in second.trials]


def test_what_cannot_be_is_refused_at_once(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", epochs=2)
    mine.run(workers=1)
    for wish, message in (
        (lambda: mine.extend(7, epochs=3), r"trial 7 of 'plain': not known; it has 1 trials"),
        (lambda: mine.clone(0, at=3, config=CONFIG, epochs=4), r"at: epoch 3 of trial 0; expected 1 to 2"),
        (lambda: mine.clone(0, at=1, config=CONFIG, epochs=1), r"epochs: 1; expected more than the 1"),
        (lambda: mine.add({}, epochs=1), "config: it is empty"),
        (lambda: mine.add(CONFIG, epochs=0), "epochs: 0; expected at least 1"),
    ):
        with pytest.raises(ht.HoptreeError, match=message):
            wish()
    mine.stop(0)
    mine.run(workers=1)
    with pytest.raises(ht.HoptreeError, match="trial 0: it is stopped; clone it"):
        mine.extend(0, epochs=5)


def test_a_running_study_takes_wishes_up(tmp_path: Path) -> None:
    mine = study(tmp_path, "a", "b", epochs=20, nap=0.1)
    found: list[Any] = []
    running = Thread(target=lambda: found.append(mine.run(workers=2)))
    running.start()
    end = monotonic() + 60
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
    running.join(timeout=90)
    (results,) = found
    assert [trial.state for trial in results.trials] == ["complete", "stopped", "complete"]
    assert results.trials[1].epochs < 20
