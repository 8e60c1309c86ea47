"""The states of a worker as its driver sees them, and the events that move it from one to the next.

The table is all there is: an event that it does not list for a state is a bug of ours. A worker may be asked to
leave in any state; one that has not joined is dismissed, and the engine never hears of it.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import Final


class WorkerState(Enum):
    """What a worker does, as far as its driver knows."""

    STARTING = "starting"  # its process or actor starts and loads trainer and data
    REHEARSING = "rehearsing"  # it tries configs before anything is trained
    READY = "ready"  # the engine may give it runs, and it has none
    BUSY = "busy"  # it has one run or more
    HUNG = "hung"  # a run has exceeded its time limit; it was asked for its stack and is killed next
    LEAVING = "leaving"  # it gets no new runs, and exits when the store has the states that only it holds
    DISMISSED = "dismissed"  # it was asked to leave before it joined, so it is killed
    LEFT_OUT = "left out"  # its platform would train different bits, so it gets no runs
    GIVEN_UP = "given up"  # it sent no heartbeat for too long; its messages are ignored from now on
    EXITED = "exited"  # its process or actor has ended


class WorkerEvent(Enum):
    """What happens to a worker."""

    REHEARSAL_STARTED = "rehearsal started"
    JOINED = "joined"
    EXCLUDED = "excluded"
    RUN_ASSIGNED = "run assigned"
    LAST_RUN_ENDED = "last run ended"
    LEAVE_REQUESTED = "leave requested"
    TIME_LIMIT_EXCEEDED = "time limit exceeded"
    HEARTBEAT_MISSED = "heartbeat missed"
    EXITED = "exited"


_S, _E = WorkerState, WorkerEvent
_END: Final = {_E.HEARTBEAT_MISSED: _S.GIVEN_UP, _E.EXITED: _S.EXITED}

TRANSITIONS: Final = MappingProxyType(
    {
        _S.STARTING: {
            _E.REHEARSAL_STARTED: _S.REHEARSING,
            _E.JOINED: _S.READY,
            _E.EXCLUDED: _S.LEFT_OUT,
            _E.LEAVE_REQUESTED: _S.DISMISSED,
            **_END,
        },
        _S.REHEARSING: {
            _E.JOINED: _S.READY,
            _E.EXCLUDED: _S.LEFT_OUT,
            _E.LEAVE_REQUESTED: _S.DISMISSED,
            **_END,
        },
        _S.READY: {
            _E.RUN_ASSIGNED: _S.BUSY,
            _E.EXCLUDED: _S.LEFT_OUT,
            _E.LEAVE_REQUESTED: _S.LEAVING,
            **_END,
        },
        _S.BUSY: {
            _E.RUN_ASSIGNED: _S.BUSY,
            _E.LAST_RUN_ENDED: _S.READY,
            _E.LEAVE_REQUESTED: _S.LEAVING,
            _E.TIME_LIMIT_EXCEEDED: _S.HUNG,
            **_END,
        },
        _S.HUNG: {
            _E.RUN_ASSIGNED: _S.HUNG,
            _E.LAST_RUN_ENDED: _S.HUNG,
            _E.LEAVE_REQUESTED: _S.HUNG,
            **_END,
        },
        _S.LEAVING: {
            _E.RUN_ASSIGNED: _S.LEAVING,  # sent before the engine heard that the worker leaves
            _E.LAST_RUN_ENDED: _S.LEAVING,
            _E.EXCLUDED: _S.LEFT_OUT,
            _E.LEAVE_REQUESTED: _S.LEAVING,
            _E.TIME_LIMIT_EXCEEDED: _S.HUNG,
            **_END,
        },
        _S.DISMISSED: {_E.LEAVE_REQUESTED: _S.DISMISSED, **_END},
        _S.LEFT_OUT: {_E.LEAVE_REQUESTED: _S.LEFT_OUT, **_END},
        _S.GIVEN_UP: {},
        _S.EXITED: {},
    }
)

JOINED: Final = frozenset({_S.READY, _S.BUSY, _S.HUNG, _S.LEAVING})  # the engine knows these workers


def next_state(state: WorkerState, event: WorkerEvent) -> WorkerState:
    """Return the state after an event.

    >>> next_state(WorkerState.STARTING, WorkerEvent.JOINED)
    <WorkerState.READY: 'ready'>
    """
    after = TRANSITIONS[state].get(event)
    assert after is not None, f"worker: {event.value!r} in state {state.value!r} is not in the transition table"
    return after


def as_table() -> dict[str, dict[str, str]]:
    """Return the table in words, without the events that change nothing."""
    return {
        state.value: {event.value: after.value for event, after in events.items() if after is not state}
        for state, events in TRANSITIONS.items()
    }
