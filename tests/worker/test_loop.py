"""A worker process, spoken to directly: what it is told and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from hoptree.backends.processes import Process, make_setup
from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.lineage import history, segments
from hoptree.store import FolderStates
from hoptree.worker.messages import (
    Failed,
    Forget,
    Forgotten,
    Hello,
    Here,
    Judge,
    Judged,
    Origin,
    Refused,
    Rehearse,
    Rehearsed,
    Source,
    Train,
    Trained,
    Where,
)
from hoptree.worker.slots import SlotReader
from tests.system.plain import Plain, dataset


@pytest.fixture
def states(tmp_path: Path) -> FolderStates:
    return FolderStates(tmp_path / "states")


@pytest.fixture
def worker(tmp_path: Path, states: FolderStates) -> Iterator[Process]:
    (tmp_path / "slots").mkdir()
    data = dataset(tmp_path)
    process = Process(
        "w", make_setup("w", 1, cloudpickle.dumps(Plain()), data.path, states.location, [tmp_path / "slots"])
    )
    assert isinstance(process.receive(), Hello)
    yield process
    process.ask_to_end(at_once=True)
    process.end()


def train(run: int, unit: int = 0, source: Source | None = None, evaluate: bool = False, **values: Any) -> Train:
    config = {"lr": 0.1, "nap": 0.0, "act": "fine", "where": "", **values}
    whole = segments(history(config), partitions=2, units=2)[0].values
    action = RunUnit(run, "w", 1, 1, unit, unit % 2, unit // 2, "key", whole, "w", evaluate)
    return Train(action, Origin(whole.at(0.0), 5), source, f"state-{unit + 1}", shuffle_seed=1)


def test_a_unit_is_trained_handed_on_and_evaluated(worker: Process) -> None:
    worker.send(train(0, evaluate=True))
    done = worker.receive()
    assert isinstance(done, Trained)
    header, arrays = SlotReader().read(done.slot)
    assert (header.key, header.meta, done.size) == ("state-1", {"units": 1}, arrays["w"].nbytes)
    judged = worker.receive()
    assert isinstance(judged, Judged)
    assert (judged.run, judged.metrics) == (0, {"loss": float(np.abs(arrays["w"]).mean())})
    assert done.seconds > 0
    assert judged.seconds > 0


def test_a_run_queued_behind_another_starts_from_its_state(worker: Process) -> None:
    worker.send(train(0))
    worker.send(train(1, unit=1, source=Source("state-1")))
    first, second = worker.receive(), worker.receive()
    assert isinstance(first, Trained)
    assert isinstance(second, Trained)
    assert SlotReader().read(second.slot)[0].meta == {"units": 2}


def test_a_state_is_fetched_from_the_store(worker: Process, states: FolderStates) -> None:
    states.put("stored", {"w": np.full(16, 2.0)}, {"units": 8})
    origin = train(0).origin
    worker.send(Judge(Evaluate(3, "w", 1, 8, "stored"), origin, Source("stored")))
    judged = worker.receive()
    assert isinstance(judged, Judged)
    assert (judged.run, judged.metrics) == (3, {"loss": 2.0})


def test_a_state_that_is_nowhere_or_damaged_is_told_as_lost(worker: Process, states: FolderStates) -> None:
    worker.send(train(0, unit=1, source=Source("nowhere")))
    lost = worker.receive()
    assert isinstance(lost, Failed)
    assert (lost.fault, lost.lost) == ("system", True)
    states.put("damaged", {"w": np.full(16, 2.0)}, {"units": 8})
    path = next(states.folder.rglob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-8] + bytes(8))
    worker.send(train(1, unit=1, source=Source("damaged")))
    lost = worker.receive()
    assert isinstance(lost, Failed)
    assert "was damaged" in lost.reason
    assert "damaged" not in states


def test_a_unit_is_given_up_before_it_begins_and_in_the_middle(worker: Process) -> None:
    worker.send(train(0, act="hang"))
    worker.send(train(1))
    worker.send(Forget(1))
    worker.send(Forget(0))
    assert worker.receive() == Forgotten(0)
    assert worker.receive() == Forgotten(1)
    worker.send(train(2))
    assert isinstance(worker.receive(), Trained)


def test_a_hung_unit_says_where_it_is(worker: Process) -> None:
    worker.send(train(0, act="hang"))
    here = None
    while here is None or "spin_for_ever" not in here.stack:
        worker.send(Where())
        here = worker.receive()
        assert isinstance(here, Here)
    assert "hoptree/worker" not in here.stack


def test_a_rehearsal_names_the_metrics_or_the_reasons(worker: Process) -> None:
    worker.send(Rehearse([{"lr": 0.1, "act": "raise"}, {"lr": 0.1}]))
    passed = worker.receive()
    assert isinstance(passed, Rehearsed)
    assert (passed.metrics, passed.reasons) == (["loss"], [])
    assert passed.seconds > 0
    worker.send(Rehearse([{"lr": 0.1, "act": "raise"}, {"act": "fine"}]))
    refused = worker.receive()
    assert isinstance(refused, Rehearsed)
    assert refused.reasons[0].endswith("surrogate")
    assert refused.reasons[1].endswith("KeyError: 'lr'")


def test_a_trainer_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    process = Process("w", make_setup("w", 1, b"no pickle", data.path, str(tmp_path), [tmp_path]))
    assert isinstance(process.receive(), Refused)
    assert process.receive() is None
    assert process.bury().how == "died with exit code 1"
