"""The profiler: worker processes of this machine train a few batches, alone and together.

It gives them no run of the engine and keeps no state, so a study is not changed by it, and may be running.
"""

from __future__ import annotations

import secrets
import time
from importlib.metadata import version
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, final

from hoptree.backends.local import LocalPool
from hoptree.backends.worker_handle import WorkerHandle
from hoptree.core.errors import RefusedError
from hoptree.core.layouts import DATA, SINGLE
from hoptree.core.profile import ProfileEntry, is_faster
from hoptree.core.schedules import Scalar
from hoptree.trainers.gang import GangMember
from hoptree.worker.messages import BatchesMeasured, MeasureBatches, SetupRefused, WorkerMessage, WorkerReady

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

_LIMIT = 120.0  # seconds after which workers that do not answer are given up


@final
class Profiler:
    """Measures configs on up to ``workers`` processes; use it as a context manager."""

    def __init__(self, trainer: Trainer, data: Dataset, states: StateStore, workers: int) -> None:
        self._trainer = trainer
        self._data = data
        self._states = states
        self._widest = min(workers, trainer.shards)
        self._folder: TemporaryDirectory[str] | None = None
        self._pool: LocalPool | None = None
        self._workers: dict[str, WorkerHandle] = {}
        self._gangs = 0

    def __enter__(self) -> Profiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(at_once=error is not None)

    def measure(self, values: dict[str, Scalar]) -> tuple[list[ProfileEntry], str]:
        """Measure a config on 1, 2, 4 … workers until more are not faster; return an error if there was one."""
        entries: list[ProfileEntry] = []
        width, examples = 1, 0
        while width <= self._widest:
            found = self._measure(values, width, examples)
            if found.error:
                return entries, found.error
            examples = found.examples
            entries.append(
                ProfileEntry(
                    entries[0].values if entries else found.architecture,
                    SINGLE if width == 1 else DATA,
                    width,
                    found.kind,
                    found.seconds,
                    found.peak_bytes,
                    version("hoptree"),
                )
            )
            if width > 1 and not is_faster(found.seconds, entries[-2].seconds):
                break
            width *= 2
        return entries, ""

    def _measure(self, values: dict[str, Scalar], width: int, examples: int) -> BatchesMeasured:
        """Let some workers train batches together, and return what the first of them has measured."""
        workers = self._start()[:width]
        members: list[GangMember | None] = [None]
        if width > 1:
            self._gangs += 1
            name = f"profile-{secrets.token_hex(4)}-{self._gangs}"
            members = [GangMember(workers[0].rendezvous, name, rank, width) for rank in range(width)]
        for worker, member in zip(workers, members, strict=True):
            worker.send(MeasureBatches(values, examples, member))
        answers: dict[str, BatchesMeasured] = {}
        until = time.monotonic() + _LIMIT
        while len(answers) < width:
            for worker, message in self._messages(until):
                if message is None:
                    how = worker.reap().how if until > time.monotonic() else f"did not answer within {_LIMIT:.0f} s"
                    self._close(at_once=True)
                    return BatchesMeasured(error=f"a worker {how}")
                if isinstance(message, BatchesMeasured):
                    answers[worker.name] = message
        ordered = [answers[worker.name] for worker in workers]
        return next((answer for answer in ordered if answer.error), ordered[0])

    def _start(self) -> list[WorkerHandle]:
        """Return the workers, started and ready."""
        if self._pool is None:
            self._folder = TemporaryDirectory(prefix="hoptree-profile-")
            slots = [Path(self._folder.name)]
            self._pool = LocalPool(
                self._trainer, self._data, self._states, workers=self._widest, slots=slots, token=0
            )
            self._workers = {worker.name: worker for worker in self._pool.recruit({}, self._widest)}
            until = time.monotonic() + _LIMIT
            ready = 0
            while ready < self._widest:
                for worker, message in self._messages(until):
                    if message is None:
                        raise RefusedError("nothing was measured: a worker exited, or did not start in time")
                    if isinstance(message, WorkerReady):
                        worker.rendezvous = message.rendezvous
                        ready += 1
        return list(self._workers.values())

    def _messages(self, until: float) -> list[tuple[WorkerHandle, WorkerMessage | None]]:
        """Return the next messages; None for one that has exited, and for all when the time is over."""
        assert self._pool is not None
        ready = wait(self._pool.sources(), timeout=max(0.0, until - time.monotonic()))
        found = list(self._pool.messages(ready))
        for _, message in found:
            if isinstance(message, SetupRefused):
                raise RefusedError(message.reason)
        return found if ready else [(worker, None) for worker in self._workers.values()]

    def _close(self, *, at_once: bool) -> None:
        if self._pool is not None:
            self._pool.close(list(self._workers.values()), at_once=at_once, failed=False)
            self._pool = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
