"""The profiler: worker processes of this machine train a few batches, alone and together.

It gives them no run of the engine and keeps no state, so a study is not changed by it, and may be running.
"""

from __future__ import annotations

import secrets
import time
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, final

from hoptree.backends.layout_times import LayoutTimes
from hoptree.backends.local import LocalPool
from hoptree.backends.processes import ProcessOptions
from hoptree.backends.worker_handle import WorkerHandle
from hoptree.core.errors import RefusedError
from hoptree.core.layout_choice import Candidate
from hoptree.core.layouts import DATA, SINGLE, Layout
from hoptree.core.profile import ProfileEntry
from hoptree.core.schedules import Scalar
from hoptree.trainers.gang import GangMember
from hoptree.trainers.layout_options import has_parts
from hoptree.worker.messages import BatchesMeasured, MeasureBatches, SetupRefused, WorkerMessage, WorkerReady

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

_GRACE = 10.0  # seconds in which the others of a gang notice that one has failed
_LIMIT = 120.0  # seconds after which workers that do not answer are given up


@final
class Profiler:
    """Measures configs on up to ``workers`` processes; use it as a context manager."""

    def __init__(self, trainer: Trainer, data: Dataset, states: StateStore, workers: int, memory: int = 0) -> None:
        self._memory = memory
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
        """Measure a config in all layouts that may be of use; return an error if no layout could be measured.

        Copies of the model are measured on 1, 2, 4 … workers until more are not faster.
        """
        found = LayoutTimes(self._memory)
        alone = self._measure(values, 1, 0)
        found.add(Candidate(), alone)
        if alone.too_large and has_parts(self._trainer):
            offload = Candidate(Layout(SINGLE, offload=True))
            found.add(offload, self._measure(values, 1, 0, offload.layout))
        elif alone.error:
            return [], alone.error
        if found.options is None:
            return [], alone.error
        width = 2
        while width <= self._widest and found.pays(width // 2) and DATA in found.options.kinds:
            copies = Candidate(Layout(DATA), width)
            found.add(copies, self._measure(values, width, found.examples, copies.layout))
            width *= 2
        for candidate in found.options.candidates(self._widest):
            if found.is_of_use(candidate):
                found.add(candidate, self._measure(values, candidate.devices, found.examples, candidate.layout))
        return found.entries(), ""

    def _measure(
        self,
        values: dict[str, Scalar],
        width: int,
        examples: int,
        layout: Layout = Layout(),  # noqa: B008 frozen
    ) -> BatchesMeasured:
        """Let some workers train batches together, and return what the first of them has measured."""
        workers = self._start()[:width]
        members: list[GangMember | None] = [None]
        if width > 1:
            self._gangs += 1
            name = f"profile-{secrets.token_hex(4)}-{self._gangs}"
            rendezvous = workers[0].rendezvous
            members = [GangMember(rendezvous, name, rank, width, layout.name) for rank in range(width)]
        for worker, member in zip(workers, members, strict=True):
            worker.send(MeasureBatches(values, examples, member, layout.name))
        answers: dict[str, BatchesMeasured] = {}
        until = time.monotonic() + _LIMIT
        while len(answers) < width:
            for worker, message in self._messages(until):
                if message is None:
                    how = worker.reap().how if until > time.monotonic() else f"did not answer within {_LIMIT:.0f} s"
                    self._close(at_once=True)
                    short = next((answer for answer in answers.values() if answer.too_large), None)
                    return short or BatchesMeasured(error=f"a worker {how}")
                if isinstance(message, BatchesMeasured):
                    answers[worker.name] = message
                    if message.error:  # the others may wait for it
                        until = min(until, time.monotonic() + _GRACE)
        ordered = [answers[worker.name] for worker in workers]
        short = next((answer for answer in ordered if answer.too_large), None)
        return short or next((answer for answer in ordered if answer.error), ordered[0])

    def _start(self) -> list[WorkerHandle]:
        """Return the workers, started and ready."""
        if self._pool is None:
            self._folder = TemporaryDirectory(prefix="hoptree-profile-")
            slots = [Path(self._folder.name)]
            self._pool = LocalPool(
                self._trainer,
                self._data,
                self._states,
                workers=self._widest,
                slots=slots,
                token=0,
                options=ProcessOptions(memory=self._memory),
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
