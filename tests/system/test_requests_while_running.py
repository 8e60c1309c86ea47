"""The request queue on a real store and a real engine: when a request becomes an event, and when it waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hoptree.core.engine import Engine
from hoptree.core.events import (
    USER,
    Event,
    KnownResults,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRetried,
    TrialStopped,
    UnitFailed,
    WorkerJoined,
)
from hoptree.core.lineage import config_items
from hoptree.core.settings import Settings
from hoptree.driver.request_queue import RequestQueue
from hoptree.driver.request_validation import addition, clone, extension, retry_requests, stop_request
from hoptree.record.record import Record
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.store import Store

CONFIG = {"lr": 0.1, "width": 8}


class QueueOfDriver:
    """A driver's record of the study "a", in one of its journals, and its request queue."""

    def __init__(self, store: Store, *others: str) -> None:
        self.store = store
        self.numbers = TrialNumbers(["a", *others])
        self.record = Record(Settings(partitions=1, retries=0))
        self.engine = Engine(self.record.settings, state=self.record.state)
        self.warnings: list[str] = []
        self.requests = RequestQueue(
            store, self.record, [(name, True) for name in ("a", *others)], "", self.numbers, self.warnings.append
        )

    def step(self, *events: Event) -> None:
        for event in events:
            self.record.note(self.engine.state.note(event, 0.0, False, self.engine.step(event, 0.0)))

    def ask(self, trial: int, lr: float = 0.1, until: int = 2, *, done: bool = False) -> None:
        """Let the search request a trial; with ``done``, its results are in the store."""
        known = (
            KnownResults((until,), tuple((epoch, {"loss": 1.0}) for epoch in range(1, until + 1))) if done else None
        )
        config = config_items(CONFIG | {"lr": lr})
        self.step(TrialAsked(trial, config, until, every=1, study="a", known=known))
        self.numbers.recall(self.record.trials)

    def take_up(self) -> list[Event]:
        """Let the driver take the requests up, and return their events."""
        events = [*self.requests.take()]
        self.step(*events)
        return events


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as store:
        yield store


def test_the_next_driver_does_not_repeat_carried_out_requests(store: Store) -> None:
    first = QueueOfDriver(store)
    first.ask(0)
    first.ask(1, lr=0.2)
    store.requests.make("a", extension(first.record, "a", 0, 5))
    store.requests.make("a", clone(first.record, "a", 0, 1, {"lr": 0.3}, 4))
    store.requests.make("a", stop_request(first.record, "a", 1))
    store.requests.make("a", addition(CONFIG, 3))
    changed = config_items({"lr": 0.3, "width": 8})
    expected = [
        TrialExtended(0, 5),
        TrialBranched(2, 0, 1, changed, 4, 1, asked_by=(USER, 2)),
        TrialStopped(1, running=True),
        TrialAsked(3, config_items(CONFIG), 3, 1, "a", asked_by=(USER, 4)),
    ]
    assert first.take_up() == expected
    assert first.take_up() == first.requests.retry_waiting() == []
    again = QueueOfDriver(store)
    again.ask(0)
    again.ask(1, lr=0.2)
    again.step(*expected)
    assert again.take_up() == again.requests.retry_waiting() == []


def test_a_request_waits_for_its_trial_and_for_the_epochs_it_had(store: Store) -> None:
    first = QueueOfDriver(store)
    first.ask(0, until=4)
    for request in (extension(first.record, "a", 0, 6), stop_request(first.record, "a", 0)):
        store.requests.make("a", request)
    store.requests.make("a", clone(first.record, "a", 0, 3, {"lr": 0.3}, 5))
    other = QueueOfDriver(store)
    assert other.take_up() == []
    other.ask(0, lr=0.9)  # another trial with that number
    assert other.requests.retry_waiting() == []
    other.ask(1, until=1)
    assert other.requests.retry_waiting() == []
    other.requests.close()
    assert len(other.warnings) == 2  # nothing warns about a waiting stop
    other.step(TrialExtended(1, 3))
    (branched,) = other.requests.retry_waiting()
    assert isinstance(branched, TrialBranched)
    assert branched.source == 1
    other.step(TrialExtended(1, 4))
    assert other.requests.retry_waiting() == [TrialExtended(1, 6), TrialStopped(1, running=True)]


def test_a_stop_that_comes_too_late_holds_if_the_search_lets_the_trial_continue(store: Store) -> None:
    driver = QueueOfDriver(store)
    driver.ask(0)
    store.requests.make("a", stop_request(driver.record, "a", 0))
    late = QueueOfDriver(store)
    late.ask(0, done=True)
    assert late.record.by_number[0].ending == "complete"
    assert late.take_up() == []
    late.step(TrialExtended(0, 4))
    assert late.requests.retry_waiting() == [TrialStopped(0, running=True)]


def test_the_last_request_counts(store: Store) -> None:
    driver = QueueOfDriver(store, "b")
    driver.ask(0)
    store.requests.make("a", stop_request(driver.record, "a", 0))
    store.requests.make("a", extension(driver.record, "a", 0, 5))
    assert driver.take_up() == [TrialExtended(0, 5)]
    store.requests.make("a", stop_request(driver.record, "a", 0))
    assert driver.take_up() == [TrialStopped(0, running=True)]
    store.requests.make("b", addition(CONFIG, 1))
    assert driver.take_up() == [TrialAsked(1, config_items(CONFIG), 1, 1, "b", asked_by=(USER, 4))]


def test_an_extension_is_corrected_until_it_is_carried_out(store: Store) -> None:
    driver = QueueOfDriver(store)
    driver.ask(0)
    for epochs in (500, 4, 3):
        store.requests.make("a", extension(driver.record, "a", 0, epochs))
    assert driver.take_up() == [TrialExtended(0, 3)]
    store.requests.make("a", extension(driver.record, "a", 0, 6))
    assert driver.take_up() == [TrialExtended(0, 6)]
    other = QueueOfDriver(store)  # in another journal both are carried out, one after the other
    other.ask(0)
    assert other.take_up() == [TrialExtended(0, 3)]
    assert other.requests.retry_waiting() == [TrialExtended(0, 6)]


def test_a_request_names_one_of_two_equal_trials_by_number(store: Store) -> None:
    driver = QueueOfDriver(store)
    driver.ask(0)
    driver.ask(1)
    store.requests.make("a", extension(driver.record, "a", 1, 5))
    assert driver.take_up() == [TrialExtended(1, 5)]


def test_a_clone_of_a_trial_that_failed_before_the_branch_is_skipped_with_a_warning(store: Store) -> None:
    driver = QueueOfDriver(store)
    driver.ask(0)
    store.requests.make("a", clone(driver.record, "a", 0, 2, {"lr": 0.3}, 4))
    driver.step(WorkerJoined("w", (0,)), UnitFailed(0, "w", "it broke"))
    assert driver.take_up() == []
    assert driver.warnings == ["request 1 of 'a' is skipped: trial 0 failed after epoch 0, before epoch 2"]


def fail(driver: QueueOfDriver, run: int) -> None:
    driver.step(UnitFailed(run, "w", "it broke"))


def test_a_retry_is_carried_out_once_by_whichever_driver(store: Store) -> None:
    driver = QueueOfDriver(store)
    driver.step(WorkerJoined("w", (0,)))
    driver.ask(0)
    fail(driver, 0)
    for _ in range(2):  # requested twice before the driver reads it: done once
        store.requests.make("a", *retry_requests(driver.record, "a"))
    assert set(driver.take_up()) == {TrialRetried(0)}
    assert driver.record.by_number[0].retries == 1
    fail(driver, max(driver.engine.runs))
    assert driver.record.by_number[0].ending == "failed"
    assert driver.take_up() == driver.requests.retry_waiting() == []
    next_driver = RequestQueue(store, driver.record, [("a", True)], "", driver.numbers, driver.warnings.append)
    assert next_driver.take() == []
    store.requests.make("a", *retry_requests(driver.record, "a", 0))
    assert next_driver.take() == [TrialRetried(0)]
    assert driver.warnings == []


def test_a_retry_waits_in_a_journal_where_its_trial_has_not_failed(store: Store) -> None:
    driver = QueueOfDriver(store)
    driver.step(WorkerJoined("w", (0,)))
    driver.ask(0)
    fail(driver, 0)
    store.requests.make("a", *retry_requests(driver.record, "a"))
    other = QueueOfDriver(store)
    other.step(WorkerJoined("w", (0,)))
    assert other.take_up() == []  # there is no such trial
    other.ask(0)
    assert other.requests.retry_waiting() == []
    fail(other, 0)
    assert other.requests.retry_waiting() == [TrialRetried(0)]
    lucky = QueueOfDriver(store)
    lucky.ask(0, done=True)
    assert lucky.take_up() == lucky.requests.retry_waiting() == []
    assert lucky.requests.close() is None
    assert not lucky.warnings
