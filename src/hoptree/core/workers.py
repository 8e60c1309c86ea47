"""Workers as the engine sees them: what they hold, what they have been given, who is idle."""

from __future__ import annotations

from typing import final

from hoptree.core.nodes import ActiveLineage, Run


@final
class Worker:
    """A process that runs one unit at a time; ``queue`` holds what it runs and what comes next."""

    __slots__ = ("draining", "gone", "held", "idle", "last", "name", "partitions", "queue", "speed")

    def __init__(self, name: str, partitions: tuple[int, ...], speed: float) -> None:
        self.name = name
        self.speed = speed
        self.partitions = partitions
        self.held = frozenset(partitions)
        self.queue: list[Run] = []
        self.last: ActiveLineage | None = None
        self.idle = False
        self.draining = False
        self.gone = False


@final
class Workers:
    """The workers that are here, and for every partition those of its holders that have nothing to do."""

    def __init__(self, partitions: int) -> None:
        self.by_name: dict[str, Worker] = {}
        self.idle: list[dict[str, Worker]] = [{} for _ in range(partitions)]
        self.pace = [1.0] * partitions  # by partition, the time of a unit of cost 1 on its fastest holder
        self._equal = True
        self._idle: dict[str, Worker] = {}

    @property
    def idle_count(self) -> int:
        """How many workers have nothing to do."""
        return len(self._idle)

    def all_idle(self) -> list[Worker]:
        """Return the workers that have nothing to do, longest idle first."""
        return list(self._idle.values())

    def any_idle(self) -> Worker:
        """Return the worker that has been idle for longest."""
        return next(iter(self._idle.values()))

    def join(self, name: str, partitions: tuple[int, ...], speed: float) -> Worker:
        """Let a worker come, or learn that one holds other partitions than before."""
        worker = self.by_name.get(name)
        if worker is None:
            worker = self.by_name[name] = Worker(name, partitions, speed)
        else:
            self.set_busy(worker)
            worker.speed = speed
            worker.partitions = partitions
            worker.held = frozenset(partitions)
            worker.draining = False
        self._set_pace(partitions)
        return worker

    def leave(self, name: str) -> Worker | None:
        """Forget a worker; None when it is not known (any more)."""
        worker = self.by_name.pop(name, None)
        if worker is not None:
            self.set_busy(worker)
            worker.gone = True
            self._set_pace(worker.partitions)
        return worker

    def _set_pace(self, partitions: tuple[int, ...]) -> None:
        if self._equal and all(worker.speed == 1.0 for worker in self.by_name.values()):
            return
        self._equal = False
        for partition in partitions:
            speeds = [worker.speed for worker in self.by_name.values() if partition in worker.held]
            self.pace[partition] = 1 / max(speeds, default=1.0)

    def set_idle(self, worker: Worker) -> None:
        """Note that a worker has nothing to do."""
        if worker.idle:
            return
        worker.idle = True
        self._idle[worker.name] = worker
        for partition in worker.partitions:
            self.idle[partition][worker.name] = worker

    def set_busy(self, worker: Worker) -> None:
        """Note that a worker has something to do, or is not to be given anything."""
        if not worker.idle:
            return
        worker.idle = False
        del self._idle[worker.name]
        for partition in worker.partitions:
            del self.idle[partition][worker.name]
