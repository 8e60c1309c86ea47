"""The driver: runs one study, or several together, from the end of their journal until nothing is left to train.

It takes the study's lease, checks the study against the store, and starts a session that trains.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar, final

from hoptree.backends.event_loop import Observer
from hoptree.driver.elastic_settings import ElasticSettings
from hoptree.driver.event_sources import StopRequest
from hoptree.driver.opened_study import OpenedStudy
from hoptree.driver.options import RunOptions
from hoptree.driver.session import Session
from hoptree.driver.study_group import StudyGroup
from hoptree.driver.time_limit import TimeLimit
from hoptree.record.opening import last_snapshot
from hoptree.record.record import Record
from hoptree.record.results import Savings
from hoptree.record.spec import StudySpec, agree
from hoptree.search.budget_estimate import check_has_end

if TYPE_CHECKING:
    from hoptree.progress.run_view import RunView
    from hoptree.store import Lease, Status, Store, StudyRecord
    from hoptree.store.requests import UserRequest

Outcome = TypeVar("Outcome")


@final
class Driver:
    """Drives a group of studies; ``follow`` makes the observers of a run once its record is known.

    ``run`` blocks until all is done, or until ``stop`` is called, by another thread or by Ctrl-C: then running
    units finish, all states are saved, and another run can resume the study. With ``only``, just the trial of one
    user request is trained until it ends, whatever searches would ask for next. With ``elastic``, nodes come and go
    by a plan.
    """

    def __init__(
        self,
        group: StudyGroup,
        options: RunOptions,
        *,
        follow: Callable[[Record, ExitStack], Sequence[Observer]] = lambda _record, _stack: (),
        only: int | None = None,
        elastic: ElasticSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._options = options
        self._follow = follow
        self._only = only
        self._elastic = elastic
        self._stop = StopRequest()
        self._clock = clock  # of the time limit
        self._limit = TimeLimit(None)
        self._session: Session | None = None
        self.reached_limit = False  # whether the time limit has left something to train
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def run(self, conclude: Callable[[Store, Record, Savings], Outcome]) -> Outcome:
        """Train what is missing, and return the result of ``conclude``, which is called while the store is open."""
        name = self._group.name
        self._limit = TimeLimit(self._options.time_limit_seconds, self._clock)
        if self._options.time_limit is None and self._only is None:
            for study in self._group.studies:
                check_has_end(study.search, "give the run one, such as run(time_limit='30 min')")
        with ExitStack() as stack:
            store = stack.enter_context(self._group.first.open_store())
            lease = self._take_lease(store, stack)
            self._group.first.data.check()
            before = store.catalog.find(name)
            specs = self._group.specs  # once: they read all of the user's code
            self._group.policy(self._options.policy, StudySpec.together(specs))  # raises if it is invalid
            agreed = agree(store, name, specs, self._options.accept_changes, self._group.widens)
            record, seq = last_snapshot(store, name, agreed.spec.settings)
            try:
                savings = self._train(OpenedStudy(store, lease, agreed, record, seq), stack)
            except Exception:
                self._set_failed(store, before)
                raise
            store.catalog.set_status(name, self._status(record, before))
            self.reached_limit = bool(self._limit.held) or (self._limit.is_over and not _all_ended(record))
            return conclude(store, record, savings)

    def start(self) -> None:
        """Run in a new thread; ``join`` waits for it."""
        self._thread = threading.Thread(
            target=self._run_in_thread, name=f"driver of {self._group.name}", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended, and raise the exception that ended it."""
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let running units finish, save their states, and return from ``run``; may be called from any thread."""
        self._stop.asked = True
        if self._session is not None:
            self._session.wake()

    def request(self, study: str, request: UserRequest) -> int:
        """Store a user request, which the driver takes up when it next polls; return the request's number."""
        with self._group.first.open_store() as store:
            return store.requests.make(study, request)

    def view(self) -> RunView | None:
        """Return a view of the run at this moment; None before it starts and after it ends."""
        return None if self._session is None else self._session.view()

    def _run_in_thread(self) -> None:
        try:
            self.run(lambda _store, _record, _savings: None)
        except BaseException as error:  # raised again by join
            self._failure = error

    def _train(self, opened: OpenedStudy, stack: ExitStack) -> Savings:
        opened.store.states.clean()
        observers = self._follow(opened.record, stack)
        self._session = Session(
            opened, self._group, self._options, self._stop, self._limit, self._only, self._elastic
        )
        return self._session.train(observers)

    def _take_lease(self, store: Store, stack: ExitStack) -> Lease:
        """Take the leases of the group and of all its members, always in the same order to avoid deadlock."""
        names = {self._group.name, *self._group.names}
        leases = {name: stack.enter_context(store.lease(name)) for name in sorted(names)}
        own = leases.pop(self._group.name)
        own.renew_together(leases.values())
        return own

    def _set_failed(self, store: Store, before: StudyRecord | None) -> None:
        """Set the status after an error; a run that was refused leaves the catalog as it was."""
        if self._session is not None and self._session.has_begun:
            store.catalog.set_status(self._group.name, "failed")
        elif before is not None:
            store.catalog.set_status(self._group.name, before.status)
        else:
            store.catalog.withdraw(self._group.name)

    def _status(self, record: Record, before: StudyRecord | None) -> Status:
        if self._only is None:
            return "stopped" if record.live or self._limit.held else "finished"
        # The searches have not advanced, so a study that was over keeps its status.
        over = before is not None and before.status in ("finished", "failed") and not record.live
        return before.status if over and before is not None else "stopped"


def _all_ended(record: Record) -> bool:
    return bool(record.trials) and not record.live
