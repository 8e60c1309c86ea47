"""What counts as a heartbeat of a worker process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import pytest

from hoptree.backends.processes import WorkerProcess, active_time, make_setup
from hoptree.worker.messages import WorkerReady
from tests.system.plain import Plain, dataset
from tests.worker.test_loop import answer, train


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    states, slots = str(tmp_path / "states"), [tmp_path / "slots"]
    setup = make_setup("w", 1, cloudpickle.dumps(Plain()), dataset(tmp_path).path, states, slots, heartbeat=0.05)
    process = WorkerProcess("w", setup)
    assert isinstance(process.receive(), WorkerReady)
    yield process
    process.kill()
    process.end()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 900
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)


def pid_of(worker: WorkerProcess) -> int:
    return worker._process.pid


def test_an_idle_worker_sends_heartbeats(worker: WorkerProcess) -> None:
    for _ in range(3):
        until(worker.has_beaten)


def test_a_stopped_worker_sends_no_heartbeats(worker: WorkerProcess) -> None:
    os.kill(pid_of(worker), signal.SIGSTOP)
    until(lambda: not worker.has_beaten() and not worker.has_beaten())
    assert not worker.has_beaten()
    os.kill(pid_of(worker), signal.SIGCONT)
    until(worker.has_beaten)
    os.kill(pid_of(worker), signal.SIGSTOP)
    worker.kill()
    worker.end()
    assert worker.ended


def test_a_worker_whose_code_holds_the_interpreter_lock_is_alive(worker: WorkerProcess, tmp_path: Path) -> None:
    held = tmp_path / "held"
    held.write_bytes(b"\0")
    worker.send(train(0, act="held", where=str(held)))
    until((tmp_path / "held-begun").exists)
    assert all(worker.has_beaten() for _ in range(200))  # more than may have come before
    with held.open("r+b") as file:  # never shorter: the worker maps it
        file.write(b"\1")
    assert answer(worker) is not None


@pytest.mark.parametrize(
    ("state", "worked", "had"),
    [("R", 0.25, 0.25), ("R", 4.0, 2.0), ("S", 0.25, 2.0), ("D", 0.0, 2.0), ("T", 0.0, 2.0)],
)
def test_a_process_has_not_had_the_time_in_which_others_had_its_processor(
    state: str, worked: float, had: float
) -> None:
    assert active_time(2.0, state, worked) == had
