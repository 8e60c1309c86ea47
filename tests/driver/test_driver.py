"""One driver: stopped by another process or thread, viewed while it runs, with a display of the user's choice."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import hoptree as ht
from hoptree.driver.driver import Driver
from hoptree.driver.options import RunOptions
from hoptree.driver.study_group import StudyGroup
from hoptree.progress.run_view import RunViews
from hoptree.store import StudyIdleError
from hoptree.store.logs import Logs
from hoptree.ui.cli import cli
from tests.system.plain import study
from tests.system.processes import alive, workers_of
from tests.system.test_interrupts import finish, start, wait_for

SPACE = {"lr": ht.choice(0.1, 0.2, ht.multistep(0.1, at=[2], gamma=0.5)), "nap": 0.05}


class CountingDisplay:
    """A display that counts calls, and sets an event when the first unit is done."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self.trained = threading.Event()
        self.looked: list[float] = []

    def begin(self, views: RunViews, logs: Logs) -> None:
        self.begun += 1

    def update(self, views: RunViews) -> None:
        self.looked.append(views.view().epochs_trained)
        if self.looked[-1] > 0:
            self.trained.set()

    def end(self, views: RunViews) -> None:
        self.ended += 1


def interrupt(folder: Path) -> Result:
    arguments = ["interrupt", "plain", "--store", str(folder / "store")]
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def test_a_study_is_interrupted_from_another_process(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    reference = finish(start(whole, nap=0.5))
    process = start(tmp_path, nap=0.5)
    wait_for(tmp_path, "UnitFinishedFact", 3)
    workers = workers_of(process.pid)
    told = interrupt(tmp_path)
    assert told.exit_code == 0, told.stderr
    assert f"process {process.pid}" in told.stdout
    assert "running" in finish(process)["states"]
    assert alive(workers) == []
    with pytest.raises(StudyIdleError, match="no process runs this study now"):
        interrupt(tmp_path)
    resumed = finish(start(tmp_path, nap=0.5))
    assert resumed["states"] == ["complete"] * 3
    assert resumed["fingerprints"] == reference["fingerprints"]


def test_a_study_that_does_not_run_cannot_be_interrupted(tmp_path: Path) -> None:
    mine = study(tmp_path, space={"lr": 0.1}, epochs=1)
    mine.run(workers=1, quiet=True)
    with pytest.raises(StudyIdleError, match="no process runs this study now"):
        mine.interrupt()


def test_a_driver_in_a_thread_can_be_viewed_and_stopped(tmp_path: Path) -> None:
    mine, display = study(tmp_path, space=SPACE, epochs=40), CountingDisplay()
    driver = Driver(StudyGroup([mine]), RunOptions(workers=1, display=display))
    driver.start()
    assert display.trained.wait(120)
    view = driver.view()
    assert view is not None
    assert view.studies == ("plain",)
    driver.stop()
    driver.join()
    assert driver.view() is None
    assert display.begun == display.ended == 1
    part = mine.results()
    assert {trial.state for trial in part.trials} == {"running"}
    assert part.trials[0].epochs < 40


def test_an_embedding_program_is_left_as_it_was(tmp_path: Path) -> None:
    before: dict[str, Any] = {"handler": signal.getsignal(signal.SIGINT), "hook": sys.excepthook}
    seen: list[bool] = []

    class Looking(CountingDisplay):
        def update(self, views: RunViews) -> None:
            super().update(views)
            seen.append(gc.isenabled())

    study(tmp_path, space={"lr": 0.1}, epochs=1).run(workers=1, display=Looking())
    assert all(seen)
    assert {"handler": signal.getsignal(signal.SIGINT), "hook": sys.excepthook} == before
    assert gc.isenabled()
