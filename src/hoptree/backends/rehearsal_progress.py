"""Which workers rehearse while a pool starts, and how long to wait for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import final

from hoptree.backends.rehearsals import Rehearsals
from hoptree.backends.worker_handle import WorkerHandle
from hoptree.backends.worker_states import WorkerEvent, WorkerState
from hoptree.worker.messages import RehearsalResult

_LIMIT = 60.0  # seconds in which a worker starts and tries a config; a longer rehearsal is ended
_SECOND = 20.0  # seconds in which a second worker starts that compares its bits with those of the first
_KINDS = 5.0  # further seconds in which the first worker tries configs of other kinds

log = logging.getLogger("hoptree")


@final
class RehearsalProgress:
    """Sends rehearsals to workers as they get ready; ``must_pass`` is True until a config has passed.

    The first workers rehearse at the same time. The first one that passes goes on with other kinds of configs; a
    second one on the same node shows whether its process trains the same bits.
    """

    def __init__(self, rehearsals: Rehearsals | None) -> None:
        self._rehearsals = rehearsals
        self._starting = True
        self._kinds_until: tuple[str, float] | None = None  # who tries other kinds of configs, and until when
        self.must_pass = rehearsals is not None
        self.unit_seconds = 0.0  # a first estimate, from the config that passed

    def finish_startup(self) -> None:
        """Start no more comparisons: workers that come later join at once."""
        self._starting = False

    def waits_for(self, worker: WorkerHandle) -> bool:
        """Return whether a worker rehearses, or starts just now and will be the second of its node to do so."""
        rehearsing = worker.state is WorkerState.REHEARSING
        if worker.joined or rehearsing or self._rehearsals is None:
            return rehearsing
        return self._rehearsals.wants_second(worker.node) and worker.active_seconds() < _SECOND

    def begin(self, worker: WorkerHandle) -> bool:
        """Let a worker that has just started rehearse if that is needed; return whether it does."""
        if self._rehearsals is None or not (self.must_pass or self._compares(worker)):
            return False
        worker.apply(WorkerEvent.REHEARSAL_STARTED)
        worker.send(self._rehearsals.first())
        return True

    def take(self, worker: WorkerHandle, result: RehearsalResult) -> bool:
        """Check a result; return whether the worker is done, else it goes on with other kinds of configs."""
        assert self._rehearsals is not None
        worker.warm = True
        if self.must_pass:
            self._rehearsals.check(result)
            self.unit_seconds = result.seconds
        self._rehearsals.compare(worker.node, worker.platform or {}, result)
        others = self._rehearsals.other_kinds(result) if self.must_pass else None
        self.must_pass = False
        if others is not None:
            self._kinds_until = worker.name, worker.active_seconds() + _KINDS
            worker.send(others)
        return others is None

    def end_overdue(self, workers: Iterable[WorkerHandle]) -> None:
        """Kill workers whose rehearsal takes too long; then nobody knows yet whether results are reproducible."""
        workers = list(workers)
        overdue = [worker for worker in workers if worker.active_seconds() > _LIMIT]
        if overdue and self.must_pass:
            self.must_pass = False
            log.warning(
                "the rehearsal has not ended within %g s: whether configs can be trained, and give the same bits "
                "everywhere, is found out later; hoptree verify NAME compares the bits of a trial",
                _LIMIT,
            )
        if self._kinds_until is not None:
            name, until = self._kinds_until
            others = [worker for worker in workers if worker.name == name and worker.active_seconds() > until]
            if any(worker.state is WorkerState.REHEARSING for worker in others):
                log.warning("the rehearsal of other kinds of configs has not ended within %g s", _KINDS)
            overdue += others
        for worker in overdue:
            if worker.state is WorkerState.REHEARSING:
                worker.kill()

    def _compares(self, worker: WorkerHandle) -> bool:
        return self._starting and self._rehearsals is not None and self._rehearsals.wants_second(worker.node)
