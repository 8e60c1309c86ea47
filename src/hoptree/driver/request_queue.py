"""The desk: where a driver takes up what users wish for while the study runs."""

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
    wish: UserRequest | UnreadableRequest


@final
class RequestQueue:
    """Turns wishes into events for the engine; what has been done already is not done again.

    What becomes of a wish follows from the wish and from what the engine knows, so a driver that goes on after
    another one does the same: a new trial says which wish asked for it, and an extension, a stop or a retry shows
    in its trial.
    A wish about a trial that is not there, or not granted as much as when it was wished for, waits: in a group's
    journal a study may have its trials later than in its own, or others. What no driver can carry out is passed
    over, and ``warn`` is told why.
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
        self._taken = dict.fromkeys((name for name, _ in studies), 0)
        self._waiting: list[_Waiting] = []
        self._extended: dict[tuple[str, str | int], tuple[int, ExtendTrial]] = {}  # the last wish to extend a trial
        self._seen = 0  # trials that are entered below
        self._shown: dict[str, list[Trial]] = {name: [] for name, _ in studies}
        self._alike: dict[tuple[str, str], Trial] = {}  # by study and key
        self._begun: set[tuple[str, int]] = set()  # requests, by study, whose trials are there

    def take(self) -> list[Event]:
        """Return what users have wished for since this was asked last, and what has waited long enough."""
        for name, share in self._studies:
            for number, wish in self._store.wishes.after(name, self._taken[name]):
                self._taken[name] = number
                self._waiting.append(_Waiting(name, share, number, wish))
                if isinstance(wish, ExtendTrial):
                    self._extended[name, wish.key] = self._extended[name, wish.trial] = number, wish
        return list(self._due())

    def beside(self, asks: TrialAsker) -> TrialAsker:
        """Return who asks for training with what users wish for besides: no run ends before a wish that can be."""
        return _Beside(asks, self)

    def again(self) -> list[Event]:
        """Return what could not be done before and can be now."""
        return list(self._due()) if self._waiting else []

    def close(self) -> None:
        """Say what was not done, now that the run is over; the next one looks again."""
        for study, _, number, wish in self._waiting:
            if isinstance(wish, CloneTrial | ExtendTrial):
                what = "clone" if isinstance(wish, CloneTrial) else "extend"
                self._warn(
                    f"wish {number} of {study!r}, to {what} trial {wish.trial}, waits: this run has no trial like "
                    "that, or has not trained it as far"
                )

    def _due(self) -> Iterator[Event]:
        self._look_at_trials()
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            try:
                events = self._events(*entry)
            except HoptreeError as error:
                self._warn(f"wish {entry.number} of {entry.study!r} is passed over: {error}")
                continue
            if events is None:
                self._waiting.append(entry)
            else:
                yield from events

    def _events(
        self, study: str, share: bool, number: int, wish: UserRequest | UnreadableRequest
    ) -> tuple[Event, ...] | None:
        """Return what a wish comes to, nothing if it is done or too late; None: it has to wait."""
        if isinstance(wish, UnreadableRequest):
            raise WorkloadError(f"{wish.text} cannot be read ({wish.reason}); it is of another version")
        check(wish)
        if self._is_overruled(study, number, wish):
            return ()
        match wish:
            case AddTrial(config, until, every):
                if (study, number) in self._begun:
                    return ()
                new, by = self._number(study, number)
                return (TrialAsked(new, config, until, every, study, self._root, alone=not share, asked_by=by),)
            case CloneTrial():
                return () if (study, number) in self._begun else self._branched(study, wish, number)
            case ExtendTrial(until=until, granted=granted):
                trial = self._trial(study, wish)
                if trial is None or trial.until < granted:
                    return None
                done = trial.until >= until or trial.ending in ("stopped", "failed")
                return () if done else (TrialExtended(trial.number, until),)
            case StopTrial(granted=granted):
                trial = self._trial(study, wish)
                if trial is None or trial.until < granted or trial.ending == "complete":
                    return None  # a search may let a complete one go on
                return () if trial.ending is not None else (TrialStopped(trial.number, running=True),)
            case RetryTrial(retries=retries):
                trial = self._trial(study, wish)
                if trial is None or (trial.ending is None and trial.retries <= retries):
                    return None  # in this journal it has not failed so far
                failed = trial.ending == "failed" and trial.retries <= retries
                return (TrialRetried(trial.number),) if failed else ()
            case _:
                assert_never(wish)

    def _is_overruled(self, study: str, number: int, wish: UserRequest) -> bool:
        """Return whether the user has said otherwise before it was carried out: the last word counts."""
        if not isinstance(wish, ExtendTrial | StopTrial):
            return False
        later, extension = self._extended.get((study, wish.key or wish.trial), (0, None))
        if extension is None or later <= number:
            return False
        return isinstance(wish, StopTrial) or extension.granted < wish.until

    def _branched(self, study: str, wish: CloneTrial, number: int) -> tuple[Event, ...] | None:
        source = self._trial(study, wish)
        if source is None or source.until < wish.at:
            return None
        if source.ending == "failed" and source.reached < wish.at:
            raise WorkloadError(f"trial {wish.trial} failed after epoch {source.reached}, before epoch {wish.at}")
        new, by = self._number(study, number)
        return (TrialBranched(new, source.number, wish.at, wish.config, wish.until, wish.every, asked_by=by),)

    def _number(self, study: str, request: int) -> tuple[int, Asker]:
        """Return the number of the trial that a request begins, and who asks for it."""
        by = USER, request
        return self._numbers.number(study, by), by

    def _trial(self, study: str, wish: CloneTrial | ExtendTrial | StopTrial | RetryTrial) -> Trial | None:
        """Return the trial that a wish is about, if it is there.

        That is the one with its number, if it is the same; else the first that is: where several searches take
        turns, or trials were added, numbers may differ from journal to journal.
        """
        shown = self._shown[study]
        if wish.trial < len(shown) and wish.key in ("", history_key(shown[wish.trial].history)):
            return shown[wish.trial]
        return self._alike.get((study, wish.key))

    def _look_at_trials(self) -> None:
        trials = self._record.by_number
        for trial in islice(trials.values(), self._seen, None):
            if trial.study in self._shown:
                self._shown[trial.study].append(trial)
                self._alike.setdefault((trial.study, history_key(trial.history)), trial)
                if trial.asked_by is not None and trial.asked_by[0] == USER:
                    self._begun.add((trial.study, trial.asked_by[1]))
        self._seen = len(trials)


@final
class _Beside:
    def __init__(self, asks: TrialAsker, desk: RequestQueue) -> None:
        self._asks = asks
        self._desk = desk

    def start(self) -> Sequence[Event]:
        return self._asks.start()

    def tell(self, news: Report | EndTrial) -> Sequence[Event]:
        return [*self._asks.tell(news), *self._desk.again()]
