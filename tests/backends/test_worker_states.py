"""The transition table of a worker: total over its states, every state reachable, and drawn as it is."""

from __future__ import annotations

import pytest

from hoptree.backends.worker_handle import WorkerExit, WorkerHandle
from hoptree.backends.worker_states import JOINED, TRANSITIONS, WorkerEvent, WorkerState, as_table, next_state
from hoptree.worker.messages import WorkerCommand

ENDED = {WorkerState.GIVEN_UP, WorkerState.EXITED}


def test_every_state_has_a_row_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(WorkerState)
    reached = {to for events in TRANSITIONS.values() for to in events.values()}
    assert reached == set(WorkerState) - {WorkerState.STARTING}  # in which every worker begins
    assert {event for events in TRANSITIONS.values() for event in events} == set(WorkerEvent)


def test_a_worker_may_exit_or_stop_responding_in_every_state_until_it_has_ended() -> None:
    for state, events in TRANSITIONS.items():
        assert not events if state in ENDED else events[WorkerEvent.EXITED] is WorkerState.EXITED
        assert not events if state in ENDED else events[WorkerEvent.HEARTBEAT_MISSED] is WorkerState.GIVEN_UP


def test_only_workers_that_have_joined_get_runs() -> None:
    assert {state for state, events in TRANSITIONS.items() if WorkerEvent.RUN_ASSIGNED in events} == JOINED


def test_a_worker_that_has_joined_stays_joined_until_it_is_left_out_or_ends() -> None:
    for state in JOINED:
        assert set(TRANSITIONS[state].values()) <= {*JOINED, *ENDED, WorkerState.LEFT_OUT}


def test_an_event_that_is_not_in_the_table_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="'joined' in state 'exited'"):
        next_state(WorkerState.EXITED, WorkerEvent.JOINED)


def test_the_table_in_words_has_every_change() -> None:
    table = as_table()
    assert table["busy"]["time limit exceeded"] == "hung"
    assert table["exited"] == {}
    changes = sum(to is not state for state, events in TRANSITIONS.items() for to in events.values())
    assert sum(map(len, table.values())) == changes


class Silent(WorkerHandle):
    """A handle without a worker: only its state matters here."""

    killed = False

    def send(self, command: WorkerCommand) -> None: ...

    def has_beaten(self) -> bool:
        return True

    def kill(self) -> None:
        self.killed = True

    def reap(self) -> WorkerExit:
        return WorkerExit("never started", None)


def test_a_worker_is_busy_while_it_has_runs() -> None:
    worker = Silent("w")
    assert not worker.joined
    worker.join()
    worker.assign(1)
    worker.assign(2)
    assert worker.state is WorkerState.BUSY
    assert worker.finish(1)
    assert not worker.finish(1)
    assert (worker.state, list(worker.queue)) == (WorkerState.BUSY, [2])
    assert worker.finish(2)
    assert worker.state is WorkerState.READY


def test_a_worker_that_is_to_leave_before_it_has_joined_is_killed_and_never_joins() -> None:
    for events in ([], [WorkerEvent.REHEARSAL_STARTED]):
        worker = Silent("w")
        for event in events:
            worker.apply(event)
        worker.request_leave()
        worker.request_leave()  # it may be asked again before its exit is noticed
        assert (worker.state, worker.joined, worker.killed) == (WorkerState.DISMISSED, False, True)
        with pytest.raises(AssertionError, match="'joined' in state 'dismissed'"):
            worker.join()


def test_a_worker_that_has_joined_finishes_its_runs_before_it_leaves() -> None:
    worker = Silent("w")
    worker.join()
    worker.assign(1)
    worker.request_leave()
    assert (worker.state, worker.joined, worker.killed) == (WorkerState.LEAVING, True, False)


def test_a_hung_worker_stays_hung_though_its_run_ends() -> None:
    worker = Silent("w")
    worker.join()
    worker.assign(1)
    worker.apply(WorkerEvent.TIME_LIMIT_EXCEEDED)
    worker.finish(1)
    assert worker.state is WorkerState.HUNG
