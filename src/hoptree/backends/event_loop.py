"""The event loop of a run: events in, actions out, with any backend."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from hoptree.backends.protocol import Backend
from hoptree.core.actions import AdoptState, EndTrial, Report, SaveState
from hoptree.core.engine import Engine
from hoptree.core.errors import WorkloadError
from hoptree.core.events import Event
from hoptree.core.steps import Step

Observer: TypeAlias = Callable[[Step], None]


class TrialAsker(Protocol):
    """Requests trials: a tuner, or several."""

    def start(self) -> Sequence[Event]:
        """Return the first requests."""
        ...

    def tell(self, news: Report | EndTrial) -> Sequence[Event]:
        """Take in a result of a trial, and return the requests that follow from it."""
        ...


class EventSource(Protocol):
    """A source of events besides the backend: users, other drivers, updated cost estimates."""

    def pause(self) -> float:
        """Return for how many seconds it need not be polled; infinite if it wakes the backend itself."""
        ...

    def poll(self) -> Sequence[Event]:
        """Return the events that have arrived."""
        ...


def drive(
    engine: Engine,
    backend: Backend,
    tuner: TrialAsker,
    watches: Sequence[Observer] = (),
    first: Sequence[Event] | Callable[[], Sequence[Event]] | None = None,
    look_up: Callable[[Event], Event] | None = None,
    enough: Callable[[], bool] = lambda: False,
    begun: float = 0.0,
    sources: Sequence[EventSource] = (),
) -> float:
    """Run until no trial is left, or ``enough`` returns True, and return the time of the last event.

    ``first`` replaces the tuner's first requests when a study resumes at the time ``begun``; a function is called
    after the backend has started. ``look_up`` may add known results to an event before the engine sees it.
    ``sources`` are polled when they are due. If the run ends while trials are left, all states are saved, so that
    another run can resume from them.

    Every event passes through here once, so a journal or an invariant checker observes here: each of ``watches``
    gets the whole step, with the run that its event is about, before its actions are carried out.
    """
    now, failed = begun, True
    try:
        backend.start()
        begin = tuner.start if first is None else first
        inbox: deque[Event] = deque(begin() if callable(begin) else begin)
        while True:
            while inbox:
                event = inbox.popleft()
                if look_up is not None:
                    event = look_up(event)
                more = bool(inbox)
                actions = engine.step(event, now, more=more)
                step = engine.state.note(event, now, more, actions)
                for watch in watches:
                    watch(step)
                for action in actions:
                    if isinstance(action, (Report, EndTrial)):  # a tuple: this is the hot loop
                        inbox.extend(tuner.tell(action))
                    elif not isinstance(action, AdoptState):  # it needs no work by the backend
                        backend.submit(action)
            if engine.finished or enough():
                for state in () if engine.finished else engine.stored():
                    backend.submit(SaveState(state.node.id, state.unit, state.key))
                failed = False
                return now
            pause = min((source.pause() for source in sources), default=None)
            now, events = backend.wait(pause)
            inbox.extend(events)
            for source in sources:
                if source.pause() <= 0:
                    inbox.extend(source.poll())
            if not inbox and pause is None:
                raise _stuck(engine)
    finally:
        backend.stop(failed=failed)


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable the garbage collector in the loop: units create millions of small records and no cycles.

    With thousands of trials, one full collection takes longer than any decision. A long run collects the young
    generations (``gc.collect(1)``) when it is idle.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _stuck(engine: Engine) -> WorkloadError:
    if not engine.workers.by_name:
        return WorkloadError(f"workers: none is left and none will join, with {engine.live} trials to train")
    missing = engine.waiting_partitions()
    if not missing:
        return WorkloadError(f"policy: it starts no unit, with {engine.live} trials to train")
    return WorkloadError(
        f"partitions: no worker holds {missing} and none will, with {engine.live} trials to train; "
        "place them on a worker or raise replicas"
    )
