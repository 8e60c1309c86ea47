"""Runs a backend for a suite: actions in, events out, with a time limit."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, final

from hoptree.backends.protocol import Backend, Task
from hoptree.core.events import Event, UnitFailed, WorkerJoined, WorkerLost

AnEvent = TypeVar("AnEvent", bound=Event)


@final
class BackendRun:
    """Starts a backend, records its events, and stops it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._last = float("-inf")
        self.events: list[Event] = []
        self.workers: dict[str, tuple[int, ...]] = {}  # by name: the partitions that they hold

    def __enter__(self) -> BackendRun:
        self._backend.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._backend.stop(failed=kind is not None)

    def submit(self, *actions: Task) -> None:
        """Give actions to the backend."""
        for action in actions:
            self._backend.submit(action)

    def wait_shortly(self) -> None:
        """Wait briefly, whether events arrive or not."""
        self._take(*self._backend.wait(0.01))

    def wait_for(self, what: str, found: Callable[[], AnEvent | None]) -> AnEvent:
        """Wait until ``found`` returns something for the events."""
        while (event := found()) is None:
            now, events = self._backend.wait()
            assert events, f"wait() returned no events while {what} was due; so far: {self.events}"
            self._take(now, events)
        return event

    def _take(self, now: float, events: Sequence[Event]) -> None:
        assert now >= self._last, f"wait() returned the time {now} after {self._last}"
        self._last = now
        self.events += events
        for event in events:
            if isinstance(event, WorkerJoined):
                self.workers[event.worker] = event.partitions
            elif isinstance(event, WorkerLost):
                self.workers.pop(event.worker, None)

    def answer(self, run: int, *kinds: type[AnEvent]) -> AnEvent:
        """Return the first event of some kinds about a run; raise an error if the run fails unexpectedly."""

        def found() -> AnEvent | None:
            for event in self.events:
                if getattr(event, "run", None) == run:
                    if isinstance(event, kinds):
                        return event
                    assert not isinstance(event, UnitFailed), f"run {run} failed: {event.reason}"
            return None

        return self.wait_for(f"{' or '.join(kind.__name__ for kind in kinds)} of run {run}", found)

    def about(self, run: int) -> list[Event]:
        """Return the events about a run so far."""
        return [event for event in self.events if getattr(event, "run", None) == run]

    def wait_for_workers(self, partitions: int, count: int = 1) -> list[str]:
        """Wait until ``count`` workers have joined and hold all partitions; return their names."""

        def found() -> Event | None:
            held = {partition for some in self.workers.values() for partition in some}
            enough = len(self.workers) >= count and held >= set(range(partitions))
            return self.events[-1] if enough else None

        self.wait_for(f"WorkerJoined of {count} workers with all of {partitions} partitions", found)
        return list(self.workers)

    def worker(self, partition: int, other_than: str = "") -> str:
        """Return a worker that holds a partition, preferably not the given one."""
        holders = [name for name, held in self.workers.items() if partition in held]
        assert holders, f"no worker holds partition {partition}; workers: {self.workers}"
        return next((name for name in holders if name != other_than), holders[0])


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Fail a test that hangs, where signals can be used; tests that pass do not depend on it."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def fail(*_: object) -> None:
        raise AssertionError(f"the backend has not answered for {seconds:g} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
