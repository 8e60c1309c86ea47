"""The transition table of a worker: total over its states, every state reachable, and drawn as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoptree.backends.worker_states import JOINED, TRANSITIONS, WorkerEvent, WorkerState, as_mermaid, next_state

ENDED = {WorkerState.GIVEN_UP, WorkerState.EXITED}


def test_every_state_has_a_row_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(WorkerState)
    assert {to for events in TRANSITIONS.values() for to in events.values()} == set(WorkerState)
    assert {event for events in TRANSITIONS.values() for event in events} == set(WorkerEvent)


def test_a_worker_may_exit_or_fall_silent_in_every_state_until_it_has_ended() -> None:
    for state, events in TRANSITIONS.items():
        assert not events if state in ENDED else events[WorkerEvent.EXITED] is WorkerState.EXITED
        assert not events if state in ENDED else events[WorkerEvent.HEARTBEAT_MISSED] is WorkerState.GIVEN_UP


def test_only_workers_that_have_joined_get_runs() -> None:
    assert {state for state, events in TRANSITIONS.items() if WorkerEvent.RUN_ASSIGNED in events} == JOINED


@given(st.data())
def test_a_worker_that_has_joined_stays_joined_until_it_is_left_out_or_ends(data: st.DataObject) -> None:
    state = WorkerState.STARTING
    while TRANSITIONS[state]:
        before, event = state, data.draw(st.sampled_from(list(TRANSITIONS[state])))
        state = next_state(state, event)
        assert before not in JOINED or state in {*JOINED, *ENDED, WorkerState.LEFT_OUT}
        if state not in ENDED and data.draw(st.booleans()):
            break


def test_an_event_that_is_not_in_the_table_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="'joined' in state 'exited'"):
        next_state(WorkerState.EXITED, WorkerEvent.JOINED)


def test_the_diagram_shows_every_change() -> None:
    lines = [line.strip() for line in as_mermaid().splitlines()]
    assert lines[:2] == ["stateDiagram-v2", "[*] --> STARTING"]
    assert "BUSY --> HUNG: time limit exceeded" in lines
    assert "EXITED --> [*]" in lines
    changes = sum(to is not state for state, events in TRANSITIONS.items() for to in events.values())
    assert len(lines) == 2 + changes + len(ENDED)
