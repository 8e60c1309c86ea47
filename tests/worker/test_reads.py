"""A worker process tells what the user's code has read, before it tells what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hoptree.backends.local import LocalPool
from hoptree.backends.pool_backend import PoolBackend
from hoptree.backends.pool_options import PoolHooks
from hoptree.backends.processes import WorkerProcess, make_setup
from hoptree.backends.rehearsals import RehearsalConfig, Rehearsals
from hoptree.backends.trainer_pickle import pickle_trainer
from hoptree.core.errors import HoptreeError
from hoptree.core.events import WorkerJoined
from hoptree.identity.observation import Observations, present
from hoptree.store import FolderStates
from hoptree.worker.messages import (
    FirstUnitStarted,
    InputsObserved,
    RehearsalResult,
    Rehearse,
    RunFailed,
    StateMetrics,
    UnitTrained,
    WorkerMessage,
    WorkerReady,
)
from tests.system.plain import dataset
from tests.testing.test_backends import NoLedger
from tests.worker.readers import SUBJECTS, Reads, fill
from tests.worker.test_loop import train


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("READERS_MODE", "fast")
    return tmp_path


@pytest.fixture
def worker(folder: Path) -> Iterator[WorkerProcess]:
    (folder / "slots").mkdir()
    data, states = dataset(folder), str(folder / "states")
    process = WorkerProcess("w", make_setup("w", 1, pickle_trainer(Reads()), data.path, states, [folder / "slots"]))
    assert isinstance(process.receive(), WorkerReady)
    yield process
    process.ask_to_end(at_once=True)
    process.end()


def heard(worker: WorkerProcess, last: type[WorkerMessage]) -> tuple[Observations, WorkerMessage]:  # type: ignore[valid-type]
    """Return what a worker says it has read until it says something else."""
    found: Observations = {}
    while isinstance(news := worker.receive(), InputsObserved | FirstUnitStarted):
        if isinstance(news, InputsObserved):
            found.update(news.observations)
    assert isinstance(news, last), news
    return found, news


def test_every_reader_is_seen_in_a_real_process(worker: WorkerProcess, folder: Path) -> None:
    for reader, subject in SUBJECTS.items():
        if reader == "memory_map":  # the same file as another
            continue
        worker.send(Rehearse([{"lr": 0.1, "build": reader}]))
        found, _ = heard(worker, RehearsalResult)
        assert set(found) == {subject.format(folder)}, reader
        assert all(found.values())
        assert present(found) == found  # this process finds the same


@pytest.mark.parametrize("reader", ["memory_map"])
def test_a_named_file_is_seen(worker: WorkerProcess, folder: Path, reader: str) -> None:
    worker.send(Rehearse([{"lr": 0.1, "build": reader}]))
    assert set(heard(worker, RehearsalResult)[0]) == {SUBJECTS[reader].format(folder)}


def test_reads_come_before_the_outcome_of_what_read_them(worker: WorkerProcess, folder: Path) -> None:
    worker.send(train(0, evaluate=True, build="json", train="numpy", evaluate_reads=""))
    assert set(heard(worker, UnitTrained)[0]) == {f"file:{folder}/rates.json", f"file:{folder}/weights.npy"}
    assert heard(worker, StateMetrics)[0] == {}
    worker.send(train(1, build="json", train="variable", act="raise"))
    assert set(heard(worker, RunFailed)[0]) == {"environment:READERS_MODE"}  # the file is known


def test_a_file_that_changes_between_two_units_is_reported_again(worker: WorkerProcess, folder: Path) -> None:
    worker.send(train(0, train="json"))
    before, _ = heard(worker, UnitTrained)
    worker.send(train(1, train="json"))
    assert heard(worker, UnitTrained)[0] == {}
    (folder / "rates.json").write_text("[2.0]")
    worker.send(train(2, train="json"))
    after, _ = heard(worker, UnitTrained)
    assert set(after) == set(before) == {f"file:{folder}/rates.json"}
    assert after != before


def test_states_slots_and_data_are_not_what_the_user_reads(worker: WorkerProcess) -> None:
    for run in range(3):
        worker.send(train(run, evaluate=True))
        assert heard(worker, UnitTrained)[0] == {}
        assert heard(worker, StateMetrics)[0] == {}


def test_the_driver_receives_observations_before_the_rehearsal_ends(folder: Path) -> None:
    found: list[Observations] = []
    backend = pool(folder, found.append)
    try:
        backend.start()
        assert found == [present([f"file:{folder}/rates.json"])]
        assert any(isinstance(event, WorkerJoined) for event in backend.wait()[1])
    finally:
        backend.stop(failed=False)


def test_an_exception_of_the_driver_ends_the_run(folder: Path) -> None:
    def refuse(observations: Observations) -> None:
        raise HoptreeError(f"changed: {', '.join(observations)}")

    backend = pool(folder, refuse)
    with pytest.raises(HoptreeError, match="changed: file:.*rates.json"):
        backend.start()
    backend.stop(failed=True)


def pool(folder: Path, observed: Callable[[Observations], None]) -> PoolBackend:
    states = FolderStates(folder / "states")
    local = LocalPool(Reads(), dataset(folder), states, workers=1, slots=[folder / "slots"], token=1)
    configs = [RehearsalConfig({"lr": 0.1, "build": "json"})]
    return PoolBackend(
        local,
        states,
        seed=0,
        ledger=NoLedger(),
        rehearsals=Rehearsals(configs, ["loss"]),
        hooks=PoolHooks(observed=observed),
    )


def test_a_reader_leaves_the_environment_as_it_was() -> None:
    assert type(os.environ).__name__ == "_Environ"
