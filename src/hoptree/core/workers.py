"""Workers as the engine sees them: their partitions, their runs, and which are idle."""

from __future__ import annotations

from typing import final

from hoptree.core.nodes import ActiveLineage, Run


@final
class Worker:
    """A process that runs one unit at a time; ``queue`` holds the current run and the next one."""

    __slots__ = ("draining", "gone", "held", "idle", "last", "machine", "name", "partitions", "queue", "speed")

    def __init__(self, name: str, partitions: tuple[int, ...], speed: float, machine: str = "") -> None:
        self.name = name
        self.machine = machine
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
    """All workers, and for every partition the idle ones that hold it."""

    def __init__(self, partitions: int) -> None:
        self.by_name: dict[str, Worker] = {}
        self.idle: list[dict[str, Worker]] = [{} for _ in range(partitions)]
        self.pace = [1.0] * partitions  # by partition: time of a unit of cost 1 on its fastest worker
        self._equal = True
        self._idle: dict[str, Worker] = {}

    @property
    def idle_count(self) -> int:
        """Number of idle workers."""
        return len(self._idle)

    def all_idle(self) -> list[Worker]:
        """Return the idle workers, longest idle first."""
        return list(self._idle.values())

    def any_idle(self) -> Worker:
        """Return the worker that has been idle for the longest time."""
        return next(iter(self._idle.values()))

    def join(self, name: str, partitions: tuple[int, ...], speed: float, machine: str = "") -> Worker:
        """Add a worker, or update the partitions and speed of a known one."""
        worker = self.by_name.get(name)
        if worker is None:
            worker = self.by_name[name] = Worker(name, partitions, speed, machine)
        else:
            self.set_busy(worker)
            worker.speed = speed
            worker.partitions = partitions
            worker.held = frozenset(partitions)
            worker.draining = False
        self._set_pace(partitions)
        return worker

    def leave(self, name: str) -> Worker | None:
        """Remove and return a worker; None if it is unknown."""
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
        """Mark a worker as idle."""
        if worker.idle:
            return
        worker.idle = True
        self._idle[worker.name] = worker
        for partition in worker.partitions:
            self.idle[partition][worker.name] = worker

    def set_busy(self, worker: Worker) -> None:
        """Mark a worker as busy, or as unavailable."""
        if not worker.idle:
            return
        worker.idle = False
        del self._idle[worker.name]
        for partition in worker.partitions:
            del self.idle[partition][worker.name]
