"""A worker process, spoken to directly: what it is told and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from hoptree.backends.processes import WorkerProcess, make_setup
from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.lineage import history, segments
from hoptree.store import FolderStates
from hoptree.worker.messages import (
    CancelRun,
    DumpStack,
    EvaluateState,
    FirstUnitStarted,
    Origin,
    RehearsalResult,
    Rehearse,
    RunCancelled,
    RunFailed,
    SetupRefused,
    Stack,
    StateMetrics,
    StateSource,
    TrainUnit,
    UnitTrained,
    WorkerMessage,
    WorkerReady,
)
from hoptree.worker.slots import SlotReader
from tests.system.plain import Plain, dataset


@pytest.fixture
def states(tmp_path: Path) -> FolderStates:
    return FolderStates(tmp_path / "states")


@pytest.fixture
def worker(tmp_path: Path, states: FolderStates) -> Iterator[WorkerProcess]:
    (tmp_path / "slots").mkdir()
    data = dataset(tmp_path)
    process = WorkerProcess(
        "w", make_setup("w", 1, cloudpickle.dumps(Plain()), data.path, states.location, [tmp_path / "slots"])
    )
    assert isinstance(process.receive(), WorkerReady)
    yield process
    process.ask_to_end(at_once=True)
    process.end()


def answer(worker: WorkerProcess) -> WorkerMessage | None:
    """Return what comes next, but for the word that the first unit begins."""
    news = worker.receive()
    return worker.receive() if isinstance(news, FirstUnitStarted) else news


def train(
    run: int, unit: int = 0, source: StateSource | None = None, evaluate: bool = False, **values: Any
) -> TrainUnit:
    config = {"lr": 0.1, "nap": 0.0, "act": "fine", "where": "", **values}
    whole = segments(history(config), partitions=2, units=2)[0].values
    origin = Origin(whole.at(0.0), 5)
    action = RunUnit(run, "w", 1, 1, unit, unit % 2, unit // 2, "key", whole, "w", origin, "key", evaluate=evaluate)
    return TrainUnit(action, Origin(whole.at(0.0), 5), source, f"state-{unit + 1}", shuffle_seed=1)


def test_a_unit_is_trained_handed_on_and_evaluated(worker: WorkerProcess) -> None:
    worker.send(train(0, evaluate=True))
    done = answer(worker)
    assert isinstance(done, UnitTrained)
    header, arrays = SlotReader().read(done.slot)
    assert (header.key, header.meta, done.size) == ("state-1", {"units": 1}, arrays["w"].nbytes)
    judged = answer(worker)
    assert isinstance(judged, StateMetrics)
    assert (judged.run, judged.metrics) == (0, {"loss": float(np.abs(arrays["w"]).mean())})
    assert done.seconds > 0
    assert judged.seconds > 0


def test_a_worker_says_when_its_first_unit_begins(worker: WorkerProcess) -> None:
    worker.send(train(0))
    worker.send(train(1))
    assert worker.receive() == FirstUnitStarted(0)
    assert isinstance(worker.receive(), UnitTrained)
    assert isinstance(worker.receive(), UnitTrained)  # no word for every unit: that would cost time


def test_a_run_queued_behind_another_starts_from_its_state(worker: WorkerProcess) -> None:
    worker.send(train(0))
    worker.send(train(1, unit=1, source=StateSource("state-1")))
    first, second = answer(worker), answer(worker)
    assert isinstance(first, UnitTrained)
    assert isinstance(second, UnitTrained)
    assert SlotReader().read(second.slot)[0].meta == {"units": 2}


def test_a_state_is_fetched_from_the_store(worker: WorkerProcess, states: FolderStates) -> None:
    states.put("stored", {"w": np.full(16, 2.0)}, {"units": 8})
    origin = train(0).origin
    worker.send(EvaluateState(Evaluate(3, "w", 1, 8, "stored", "key", origin), origin, StateSource("stored")))
    judged = answer(worker)
    assert isinstance(judged, StateMetrics)
    assert (judged.run, judged.metrics) == (3, {"loss": 2.0})


def test_a_missing_or_damaged_state_is_reported_as_lost(worker: WorkerProcess, states: FolderStates) -> None:
    worker.send(train(0, unit=1, source=StateSource("nowhere")))
    lost = answer(worker)
    assert isinstance(lost, RunFailed)
    assert (lost.fault, lost.lost) == ("system", True)
    states.put("damaged", {"w": np.full(16, 2.0)}, {"units": 8})
    path = next(states.folder.rglob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    worker.send(train(1, unit=1, source=StateSource("damaged")))
    lost = answer(worker)
    assert isinstance(lost, RunFailed)
    assert "was damaged" in lost.reason
    assert "damaged" not in states


def test_a_unit_is_cancelled_before_it_begins_and_in_the_middle(worker: WorkerProcess) -> None:
    worker.send(train(0, act="hang"))
    worker.send(train(1))
    worker.send(CancelRun(1))
    worker.send(CancelRun(0))
    assert answer(worker) == RunCancelled(0)
    assert answer(worker) == RunCancelled(1)
    worker.send(train(2))
    assert isinstance(answer(worker), UnitTrained)


def test_a_hung_unit_says_where_it_is(worker: WorkerProcess) -> None:
    worker.send(train(0, act="hang"))
    here = None
    while here is None or "spin_for_ever" not in here.stack:
        worker.send(DumpStack())
        here = answer(worker)
        assert isinstance(here, Stack)
    assert "hoptree/worker" not in here.stack


def test_a_rehearsal_names_the_metrics_or_the_reasons(worker: WorkerProcess) -> None:
    worker.send(Rehearse([{"lr": 0.1, "act": "raise"}, {"lr": 0.1}]))
    passed = answer(worker)
    assert isinstance(passed, RehearsalResult)
    assert (passed.metrics, passed.reasons) == (["loss"], [])
    assert passed.seconds > 0
    worker.send(Rehearse([{"lr": 0.1, "act": "raise"}, {"act": "fine"}]))
    refused = answer(worker)
    assert isinstance(refused, RehearsalResult)
    assert refused.reasons[0].endswith("surrogate")
    assert refused.reasons[1].endswith("KeyError: 'lr'")


def test_a_trainer_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    process = WorkerProcess("w", make_setup("w", 1, b"no pickle", data.path, str(tmp_path), [tmp_path]))
    assert isinstance(process.receive(), SetupRefused)
    assert process.receive() is None
    assert process.reap().how == "died with exit code 1"


def test_a_fork_of_the_worker_that_returns_from_user_code_sends_nothing(worker: WorkerProcess) -> None:
    worker.send(train(0, act="fork"))
    worker.send(train(1))
    found = [answer(worker), answer(worker)]
    assert [news.run for news in found if isinstance(news, UnitTrained)] == [0, 1]
    worker.ask_to_end(at_once=False)
    assert worker.receive() is None  # no copy holds the channel open either


def test_foreign_bytes_in_the_channel_end_only_the_worker(worker: WorkerProcess) -> None:
    worker.send(train(0, act="scribble"))
    while worker.receive() is not None:
        pass
    assert worker.reap().how == "died with SIGKILL"


def test_a_long_error_report_is_truncated(worker: WorkerProcess) -> None:
    worker.send(train(0, act="long"))
    failed = answer(worker)
    assert isinstance(failed, RunFailed)
    assert len(failed.reason) < 21_000
    assert "characters left out" in failed.reason
    assert "in misbehave" in failed.reason  # the beginning
    assert failed.reason.endswith("yyy the end")


@pytest.mark.parametrize("act", ["limit", "hard limit"])
def test_a_limit_on_files_is_the_trials_own_failure(worker: WorkerProcess, act: str) -> None:
    worker.send(train(0, act=act))
    failed = answer(worker)
    assert isinstance(failed, RunFailed)
    assert failed.fault == "user"
    assert "RLIMIT_FSIZE" in failed.reason
    worker.send(train(1))
    if act == "limit":
        assert isinstance(worker.receive(), UnitTrained)  # it was put back as it was
    else:
        assert worker.receive() is None  # that cannot be: another worker is to take its place
