"""A mirror that follows a study while it runs, and never delays it.

The driver only records what has changed; a thread writes it. If that is slower than the study, several changes of a
trial are written as one. If it fails, the first error is logged, writing is retried with the next change and at the
end, and training continues.
"""

from __future__ import annotations

import logging
from itertools import islice
from threading import Condition, Thread
from types import TracebackType
from typing import Self, final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.events import TrialAsked, TrialBranched, TrialExtended, TrialRetried
from hoptree.core.steps import Step
from hoptree.mirror.protocol import Mirror
from hoptree.mirror.trial_snapshot import TrialSnapshot, shown_trials
from hoptree.record.record import Record

log = logging.getLogger("hoptree")

_PATIENCE = 30.0  # seconds that a run waits at its end for the last changes to be written


@final
class LiveMirror:
    """Follows one study of a record: ``watch`` is an observer of the event loop, after the record's own."""

    def __init__(self, mirror: Mirror, record: Record, study: str) -> None:
        self._mirror = mirror
        self._record = record
        self._study = study
        self._numbers: dict[int, int] = {}  # the engine's numbers to those of the study
        self._seen = 0
        self._changed: dict[int, TrialSnapshot] = {}
        self._condition = Condition()
        self._closing = False
        self._complained = False
        self._thread = Thread(target=self._write, name=f"mirror of {study}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write all pending changes, within a time limit."""
        self._note(shown_trials(self._record, self._study), closing=True)
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            log.warning("mirror of study %r: writing takes too long; mirror it again", self._study)
        else:
            self._close()

    def _close(self) -> None:
        try:
            self._mirror.close()
        except Exception as error:  # as in the thread
            log.warning("mirror of study %r: %s; mirror it again", self._study, error)

    def watch(self, step: Step) -> None:
        """Record the trials that a step has changed."""
        event = step.event
        if not self._seen:  # a resumed study: all trials that exist already
            self._number()
            self._note(shown_trials(self._record, self._study))
        touched = [action.trial for action in step.actions if isinstance(action, Report | EndTrial)]
        if isinstance(event, TrialAsked | TrialBranched | TrialExtended | TrialRetried):
            touched.append(event.trial)
        if touched:
            self._number()
            trials = self._record.by_number
            own = [trial for trial in dict.fromkeys(touched) if trial in self._numbers]
            self._note([TrialSnapshot.take(self._numbers[trial], trials[trial]) for trial in own])

    def _number(self) -> None:
        trials = self._record.by_number
        for number, trial in islice(trials.items(), self._seen, None):
            if trial.study == self._study:
                self._numbers[number] = len(self._numbers)
        self._seen = len(trials)

    def _note(self, trials: list[TrialSnapshot], closing: bool = False) -> None:
        with self._condition:
            self._changed |= {trial.number: trial for trial in trials}
            self._closing |= closing
            self._condition.notify()

    # --- in the thread ----------------------------------------------------------------------------------

    def _write(self) -> None:
        waiting: dict[int, TrialSnapshot] = {}
        closing = False
        while not closing:
            with self._condition:
                self._condition.wait_for(lambda: self._changed or self._closing)
                waiting |= self._changed
                self._changed, closing = {}, self._closing
            try:
                self._mirror.show(list(waiting.values()))
                waiting.clear()
            except Exception as error:  # the other program may raise anything
                if not self._complained:
                    log.warning("mirror of study %r: %s; training continues", self._study, error)
                self._complained = True
        if waiting:
            log.warning("mirror of study %r: not all of it was written; mirror it again", self._study)
