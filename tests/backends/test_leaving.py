"""Workers that a pool lets go before they are ready: the engine never hears of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from hoptree.backends.local import LocalPool
from hoptree.backends.pool_backend import PoolBackend
from hoptree.backends.rehearsals import RehearsalConfig, Rehearsals
from hoptree.backends.worker_handle import WorkerHandle, WorkerMessages
from hoptree.backends.worker_states import WorkerState
from hoptree.core.events import Event, WorkerJoined
from hoptree.testing.training import make_job
from hoptree.worker.messages import WorkerLeaving, WorkerMessage, WorkerReady
from tests.testing.test_backends import NoLedger


class Shrinking:
    """A pool of processes that lets its first worker go, just before or just after that worker is ready."""

    def __init__(self, pool: LocalPool, *, rehearsing: bool) -> None:
        self._pool = pool
        self._rehearsing = rehearsing
        self.one_machine = pool.one_machine
        self.transport = pool.transport
        self.first: WorkerHandle | None = None

    def recruit(self, workers: Mapping[str, WorkerHandle], lineages: int) -> Sequence[WorkerHandle]:
        return self._pool.recruit(workers, lineages)

    def sources(self) -> Sequence[Any]:
        return self._pool.sources()

    def messages(self, ready: Sequence[Any]) -> WorkerMessages:
        found: list[tuple[WorkerHandle, WorkerMessage | None]] = []
        for worker, message in self._pool.messages(ready):
            both = [(worker, message)]
            if self.first is None and isinstance(message, WorkerReady):
                self.first = worker
                both.insert(int(self._rehearsing), (worker, WorkerLeaving()))
            found += both
        return found

    def close(self, workers: Sequence[WorkerHandle], *, at_once: bool, failed: bool) -> None:
        self._pool.close(workers, at_once=at_once, failed=failed)


@pytest.mark.parametrize("rehearsing", [False, True])
def test_a_worker_that_is_to_leave_before_it_has_joined_gets_no_runs(tmp_path: Path, rehearsing: bool) -> None:
    job = make_job(tmp_path, workers=1)
    local = LocalPool(job.trainer, job.dataset, job.states, workers=1, slots=[tmp_path / "slots"], token=1)
    pool = Shrinking(local, rehearsing=rehearsing)
    rehearsals = Rehearsals([RehearsalConfig({"lr": 0.1})], ["loss"])
    backend = PoolBackend(pool, job.states, seed=0, ledger=NoLedger(), rehearsals=rehearsals)
    events: list[Event] = []
    try:
        backend.start()  # another worker takes its place and rehearses
        while not events:
            events += backend.wait()[1]
        assert pool.first is not None
        assert pool.first.state is WorkerState.EXITED
        assert [type(event) for event in events] == [WorkerJoined]
        assert all(isinstance(event, WorkerJoined) and event.worker != pool.first.name for event in events)
    finally:
        backend.stop(failed=False)
