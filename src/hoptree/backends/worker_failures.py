"""What follows from a worker's exit: who caused it, and whether to start a replacement."""

from __future__ import annotations

from collections import Counter
from typing import final

from hoptree.backends.worker_handle import WorkerExit
from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.errors import HoptreeError
from hoptree.core.events import UnitFailed

_FAILED_STARTS = 5  # workers in a row that exit before they are ready
_EXITS_AT_UNIT = 3  # workers that exited at one unit for an unknown reason: the unit is taken for the reason


@final
class WorkerFailures:
    """Counts exits by unit, and workers in a row that exit before they are ready."""

    def __init__(self) -> None:
        self._failed_starts = 0
        self._exits: Counter[tuple[int, int]] = Counter()  # by unit, for an unknown reason

    def started(self) -> None:
        """Note that a worker has started."""
        self._failed_starts = 0

    def failed_to_start(self, worker_exit: WorkerExit) -> None:
        """Raise an error if too many workers in a row exit before they are ready; lost machines do not count."""
        if worker_exit.fault is None and worker_exit.known:
            return
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS:
            raise HoptreeError(
                f"workers: {_FAILED_STARTS} in a row {worker_exit.how} before they were ready; see their output"
            )

    def failure(self, action: RunUnit | Evaluate, worker_exit: WorkerExit) -> UnitFailed | None:
        """Return the failure of the run that a worker exited at; None if neither user nor system caused it."""
        fault, reason = worker_exit.fault, f"the worker {worker_exit.how}"
        if not worker_exit.known:
            self._exits[action.node, action.unit] += 1
            if self._exits[action.node, action.unit] >= _EXITS_AT_UNIT:
                fault = "user"
                reason += f", as did {_EXITS_AT_UNIT - 1} others before it at this unit"
        return None if fault is None else UnitFailed(action.run, action.worker, reason, fault)
