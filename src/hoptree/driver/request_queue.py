"""The request queue: where a driver picks up what users ask for while the study runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, assert_never, final

from hoptree.backends.event_loop import TrialAsker
from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.core.events import (
    USER,
    Asker,
    Event,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRetried,
    TrialStopped,
)
from hoptree.core.keys import history_key
from hoptree.core.plan import Trial
from hoptree.driver.request_validation import check
from hoptree.record.record import Record
from hoptree.search.trial_numbers import TrialNumbers
from hoptree.store.requests import (
    AddTrial,
    CloneTrial,
    ExtendTrial,
    RetryTrial,
    StopTrial,
    UnreadableRequest,
    UserRequest,
)

if TYPE_CHECKING:
    from hoptree.store import Store

log = logging.getLogger("hoptree")


class _Waiting(NamedTuple):
    study: str
    share: bool
    number: int
    request: UserRequest | UnreadableRequest


@final
class RequestQueue:
    """Turns user requests into events for the engine, each request once.

    The outcome of a request depends only on the request and on what the engine knows, so a driver that resumes the
    study does the same: a new trial records which request asked for it, and an extension, a stop or a retry shows
    in its trial. A request about a trial that does not exist yet, or is granted fewer epochs than when the request
    was made, waits: in a group's journal a study may get its trials later than in its own, or get other ones. A
    request that no driver can carry out is skipped, and ``warn`` gets the reason.
    """

    def __init__(
        self,
        store: Store,
        record: Record,
        studies: Sequence[tuple[str, bool]],
        root: str,
        numbers: TrialNumbers,
        warn: Callable[[str], None] = log.warning,
    ) -> None:
        self._store = store
        self._record = record
        self._studies = studies  # names, and whether their trials share
        self._root = root
        self._numbers = numbers
        self._warn = warn
        self._last_read = dict.fromkeys((name for name, _ in studies), 0)
        self._waiting: list[_Waiting] = []
        self._extended: dict[tuple[str, str | int], tuple[int, ExtendTrial]] = {}  # the last extension of a trial
        self._indexed = 0  # how many trials are in the three maps below
        self._by_number: dict[str, list[Trial]] = {name: [] for name, _ in studies}
        self._by_history: dict[tuple[str, str], Trial] = {}  # by study and history key
        self._started: set[tuple[str, int]] = set()  # by study: requests whose trials exist

    def take(self) -> list[Event]:
        """Read new requests; return events for them, and for waiting ones that can be carried out now."""
        for name, share in self._studies:
            for number, request in self._store.requests.after(name, self._last_read[name]):
                self._last_read[name] = number
                self._waiting.append(_Waiting(name, share, number, request))
                if isinstance(request, ExtendTrial):
                    self._extended[name, request.key] = self._extended[name, request.trial] = number, request
        return list(self._due())

    def with_requests(self, tuner: TrialAsker) -> TrialAsker:
        """Wrap a tuner so that its answers include the waiting requests that can be carried out by then."""
        return _TunerWithRequests(tuner, self)

    def retry_waiting(self) -> list[Event]:
        """Return events for waiting requests that can be carried out now."""
        return list(self._due()) if self._waiting else []

    def close(self) -> None:
        """Warn about requests that still wait at the end of the run; the next run tries them again."""
        for study, _, number, request in self._waiting:
            if isinstance(request, CloneTrial | ExtendTrial):
                verb = "clone" if isinstance(request, CloneTrial) else "extend"
                self._warn(
                    f"request {number} of {study!r}, to {verb} trial {request.trial}, was not carried out: this "
                    "run has no such trial, or has not trained it that far; the next run tries again"
                )

    def _due(self) -> Iterator[Event]:
        self._index_new_trials()
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            try:
                events = self._events(*entry)
            except HoptreeError as error:
                self._warn(f"request {entry.number} of {entry.study!r} is skipped: {error}")
                continue
            if events is None:
                self._waiting.append(entry)
            else:
                yield from events

    def _events(
        self, study: str, share: bool, number: int, request: UserRequest | UnreadableRequest
    ) -> tuple[Event, ...] | None:
        """Return the events of a request, none if it is done or too late; None if it has to wait."""
        if isinstance(request, UnreadableRequest):
            raise WorkloadError(f"this version of Hoptree cannot read {request.text} ({request.reason})")
        check(request)
        if self._is_overruled(study, number, request):
            return ()
        match request:
            case AddTrial(config, until, every):
                if (study, number) in self._started:
                    return ()
                new, by = self._number(study, number)
                return (TrialAsked(new, config, until, every, study, self._root, alone=not share, asked_by=by),)
            case CloneTrial():
                return () if (study, number) in self._started else self._branched(study, request, number)
            case ExtendTrial(until=until, granted=granted):
                trial = self._trial(study, request)
                if trial is None or trial.until < granted:
                    return None
                done = trial.until >= until or trial.ending in ("stopped", "failed")
                return () if done else (TrialExtended(trial.number, until),)
            case StopTrial(granted=granted):
                trial = self._trial(study, request)
                if trial is None or trial.until < granted or trial.ending == "complete":
                    return None  # a search may still extend a complete trial
                return () if trial.ending is not None else (TrialStopped(trial.number, running=True),)
            case RetryTrial(retries=retries):
                trial = self._trial(study, request)
                if trial is None or (trial.ending is None and trial.retries <= retries):
                    return None  # it has not failed yet in this journal
                failed = trial.ending == "failed" and trial.retries <= retries
                return (TrialRetried(trial.number),) if failed else ()
            case _:
                assert_never(request)

    def _is_overruled(self, study: str, number: int, request: UserRequest) -> bool:
        """Return whether a later request overrules this one, which was not carried out yet: the last one counts."""
        if not isinstance(request, ExtendTrial | StopTrial):
            return False
        later, extension = self._extended.get((study, request.key or request.trial), (0, None))
        if extension is None or later <= number:
            return False
        return isinstance(request, StopTrial) or extension.granted < request.until

    def _branched(self, study: str, request: CloneTrial, number: int) -> tuple[Event, ...] | None:
        source = self._trial(study, request)
        if source is None or source.until < request.at:
            return None
        if source.ending == "failed" and source.reached < request.at:
            raise WorkloadError(
                f"trial {request.trial} failed after epoch {source.reached}, before epoch {request.at}"
            )
        new, by = self._number(study, number)
        return (
            TrialBranched(
                new, source.number, request.at, request.config, request.until, request.every, asked_by=by
            ),
        )

    def _number(self, study: str, request: int) -> tuple[int, Asker]:
        """Return the number of the trial that a request starts, and the asker to record in it."""
        by = USER, request
        return self._numbers.number(study, by), by

    def _trial(self, study: str, request: CloneTrial | ExtendTrial | StopTrial | RetryTrial) -> Trial | None:
        """Return the trial that a request is about; None if it does not exist yet.

        This is the trial with the request's number if it has the same history, else the first one that has: where
        several searches take turns, or trials were added, numbers may differ between journals.
        """
        trials = self._by_number[study]
        if request.trial < len(trials) and request.key in ("", history_key(trials[request.trial].history)):
            return trials[request.trial]
        return self._by_history.get((study, request.key))

    def _index_new_trials(self) -> None:
        trials = self._record.by_number
        for trial in islice(trials.values(), self._indexed, None):
            if trial.study in self._by_number:
                self._by_number[trial.study].append(trial)
                self._by_history.setdefault((trial.study, history_key(trial.history)), trial)
                if trial.asked_by is not None and trial.asked_by[0] == USER:
                    self._started.add((trial.study, trial.asked_by[1]))
        self._indexed = len(trials)


@final
class _TunerWithRequests:
    def __init__(self, tuner: TrialAsker, requests: RequestQueue) -> None:
        self._tuner = tuner
        self._requests = requests

    def start(self) -> Sequence[Event]:
        return self._tuner.start()

    def tell(self, news: Report | EndTrial) -> Sequence[Event]:
        return [*self._tuner.tell(news), *self._requests.retry_waiting()]
