"""A unit of a worker that stops is retried elsewhere, and no trial fails; hung user code is reported as before."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.core.events import WorkerLost
from hoptree.core.facts import RunFailedFact
from hoptree.store import Store
from tests.system.plain import Plain, dataset, study
from tests.system.processes import alive, starters_of, units_done_twice, workers_of
from tests.system.sabotage import Sabotage

SPACE = {"lr": ht.choice(0.1, 0.2, ht.multistep(0.1, at=[2], gamma=0.5)), "nap": 0.05}


def job(folder: Path, happens: dict[int, Any] | None = None, **options: Any) -> ht.Study:
    return study(folder, search=Sabotage(ht.Grid(epochs=3), happens or {}), space=SPACE, **options)


def prints(results: ht.Results) -> list[str]:
    assert [trial.state for trial in results.trials] == ["complete"] * 3
    return [trial.fingerprint for trial in results.trials]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return prints(job(tmp_path_factory.mktemp("reference")).run(workers=1))


def happened(folder: Path, *kinds: type) -> list[Any]:
    with Store(folder / "store", create=False) as store:
        events = [recorded.entry.event for recorded in store.journal.read("plain")]
    return [event for event in events if isinstance(event, kinds)]


def test_a_stopped_worker_is_replaced(
    tmp_path: Path, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(workers_of(os.getpid())[0])
        os.kill(stopped[0], signal.SIGSTOP)

    def go_on() -> None:
        with suppress(ProcessLookupError):
            os.kill(stopped[0], signal.SIGCONT)

    with caplog.at_level(logging.WARNING, logger="hoptree"):
        results = job(tmp_path, {2: stop, 8: go_on}).run(workers=2, heartbeat_limit=2.0)
    assert prints(results) == expected
    assert "no heartbeat for 2 s" in caplog.text
    assert happened(tmp_path, RunFailedFact) == []  # no attempt is counted
    assert len(happened(tmp_path, WorkerLost)) == 1
    assert units_done_twice(tmp_path / "store", "plain") == 0
    assert alive(stopped) == []


def test_a_unit_that_stops_every_worker_fails_its_trial(tmp_path: Path) -> None:
    results = study(tmp_path, "fine", "stop").run(workers=2, heartbeat_limit=1.0)
    assert [trial.state for trial in results.trials] == ["complete", "failed"]
    assert "sent no heartbeat for 1 s, as did 2 others before it" in results.trials[1].error


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_a_starter_that_is_killed_or_stopped_fails_no_trial(
    tmp_path: Path, expected: list[str], number: signal.Signals
) -> None:
    starters: list[int] = []

    def act() -> None:
        starters.extend(starters_of(os.getpid()))
        for pid in starters:
            os.kill(pid, number)

    def kill_a_worker() -> None:  # which only a new starter can replace
        with suppress(ProcessLookupError, IndexError):
            os.kill(workers_of(os.getpid())[0], signal.SIGKILL)

    results = job(tmp_path, {2: act, 4: kill_a_worker}).run(workers=2, heartbeat_limit=2.0)
    assert starters
    for pid in starters:  # for the tests that come after this one
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert prints(results) == expected
    assert not units_done_twice(tmp_path / "store", "plain")


def test_code_that_holds_the_interpreter_lock_does_not_count_as_stopped(tmp_path: Path) -> None:
    results = study(tmp_path, "greedy", epochs=1).run(workers=1, heartbeat_limit=1.0)
    assert [trial.state for trial in results.trials] == ["complete"]
    assert happened(tmp_path, WorkerLost) == []


@pytest.mark.parametrize("act", ["kill", "terminate"])
def test_a_unit_that_kills_its_workers_fails_its_trial(tmp_path: Path, act: str) -> None:
    results = study(tmp_path, "fine", act).run(workers=2)
    assert [trial.state for trial in results.trials] == ["complete", "failed"]
    assert "SIG" in results.trials[1].error
    assert "as did 2 others before it at this unit" in results.trials[1].error
    failed = happened(tmp_path, RunFailedFact)
    assert [event.fault for event in failed] == ["system", "system", "user"]


class Heavy(Plain):
    """Takes long to load in every process, as frameworks do; a rehearsal has it loaded in the first one."""

    loaded = False

    def build(self, values: Any, seed: int) -> Any:
        import time

        if not Heavy.loaded:
            time.sleep(6.0)
            Heavy.loaded = True
        return super().build(values, seed)


def test_what_a_replacement_needs_to_start_is_not_counted_as_its_units_time(tmp_path: Path) -> None:
    results = study(tmp_path, "once", trainer=Heavy(), data=dataset(tmp_path)).run(workers=1, unit_limit=5.0)
    assert (tmp_path / "flag").exists()
    assert [trial.state for trial in results.trials] == ["complete"]
