"""The only loop: events in, actions out, against any backend."""

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
    """Who asks for training: a tuner, or several."""

    def start(self) -> Sequence[Event]:
        """Return what is asked for first."""
        ...

    def tell(self, news: Report | EndTrial) -> Sequence[Event]:
        """Take news in and return what is asked for then."""
        ...


class EventSource(Protocol):
    """Where events come from besides the backend: users, other drivers, what was learned about costs."""

    def pause(self) -> float:
        """Return for how many seconds it need not be asked; infinite if it wakes the backend itself."""
        ...

    def poll(self) -> Sequence[Event]:
        """Return what has come."""
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
    """Run until no trial is left, or it is ``enough``, and return the time of the last event.

    ``first`` replaces what the tuner asks for at the start, for a study that goes on from where it was at the time
    ``begun``; a function is called when the backend has started. ``look_up`` may add to an event what is known
    elsewhere, before the engine sees it. ``sources`` are asked when they are due. If it is enough while trials are
    left, all states are saved: others go on from them.

    Every event passes through here once, so this is where a journal or a checker listens: a watch gets the whole
    step, with the run that its event is about, before what was decided is carried out.
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
                    elif not isinstance(action, AdoptState):  # nothing is to be done about that one
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
    """Keep the cycle collector out of the loop: units make millions of small records and no cycles.

    With thousands of trials one of its rounds takes longer than any decision. Who runs for long looks through what
    is young (``gc.collect(1)``) when there is time.
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
        return WorkloadError(f"workers: none is left and none will come, with {engine.live} trials to train")
    missing = engine.waiting_partitions()
    if not missing:
        return WorkloadError(f"policy: it lets nothing run, with {engine.live} trials to train")
    return WorkloadError(
        f"partitions: nobody holds {missing} and nobody will, with {engine.live} trials to train; "
        "place them on a worker or raise replicas"
    )
