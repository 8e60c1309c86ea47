"""Ends a run whose layout needs more workers than there are, instead of letting it wait for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import final

from hoptree.core.engine import Engine
from hoptree.core.errors import RefusedError
from hoptree.core.events import Event

PATIENCE = 300.0  # seconds without any change of workers: nodes of a cluster may still be starting

log = logging.getLogger("hoptree")


@final
class LayoutWatch:
    """An event source without events; ``clock`` returns seconds."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._clock = clock
        self._since = 0.0
        self._before: object = None

    def poll(self) -> Sequence[Event]:
        """Warn when nothing can be trained for lack of workers; raise an error if that lasts."""
        unmet = self._engine.unmet_layout
        if unmet is None:
            self._before = None
            return ()
        workers = [(each.name, each.machine, each.partitions) for each in self._engine.workers.by_name.values()]
        layout, devices, partition = unmet
        problem = (
            f"layout: {layout!r} needs {devices} workers of one machine that hold partition {partition}, and no "
            f"machine has so many of the {len(workers)} workers; start more workers on a machine, raise "
            "replicas of ht.Ray(…), or use layout='auto'"
        )
        if self._before != (unmet, workers):
            self._before, self._since = (unmet, workers), self._clock()
            log.warning("waiting for workers; %s", problem)
        elif self._clock() - self._since > PATIENCE:
            raise RefusedError(problem)
        return ()
