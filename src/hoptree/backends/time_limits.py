"""When a run counts as hung."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from hoptree.backends.worker_handle import WorkerHandle
from hoptree.backends.worker_states import WorkerState
from hoptree.core.actions import Evaluate, RunUnit

_START_UP = 60.0  # seconds that a worker may need before its first unit starts, to load its code
_STACK = 3.0  # seconds in which a hung worker may report its stack
_SHORTEST = 600.0  # seconds: without a limit from the user, no run counts as hung before
_RATIO = 20.0  # … nor before it has taken this many times its upper estimate


@final
class TimeLimits:
    """Computes deadlines; ``first_estimate`` returns the seconds of a unit until ``longest`` knows better."""

    def __init__(
        self,
        unit_limit: float | None,
        longest: Callable[[RunUnit | Evaluate], float],
        first_estimate: Callable[[], float],
    ) -> None:
        self._unit_limit = unit_limit
        self._longest = longest
        self._first_estimate = first_estimate

    def limit(self, action: RunUnit | Evaluate | None) -> float:
        """Return the seconds after which a run counts as hung."""
        if self._unit_limit is not None:
            return self._unit_limit
        expected = self._longest(action) if action is not None else 0.0
        return max(_SHORTEST, _RATIO * (expected or self._first_estimate()))

    def deadline(self, worker: WorkerHandle, action: RunUnit | Evaluate | None) -> float:
        """Return the time at which a worker's current run counts as hung; if it does, when to kill the worker."""
        start_up = 0.0 if worker.warm else _START_UP
        stack = _STACK if worker.state is WorkerState.HUNG else 0.0
        return worker.run_started + start_up + self.limit(action) + stack
