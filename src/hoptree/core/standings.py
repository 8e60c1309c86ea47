"""Standings: which trials were requested together, so that the default policy may choose among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.events import TrialAsked, TrialBranched
from hoptree.core.nodes import Node
from hoptree.core.study_state import Request
from hoptree.core.trial import Trial


@final
class Standings:
    """Gives a trial its standing: the number of the first trial that was requested together with it.

    Trials are requested together if they follow each other, are granted equally many epochs, and no search was told
    anything in between. So an answer to a report stands behind all trials that were requested before the report.
    """

    def __init__(self) -> None:
        self._first = -1  # the standing of the trials that were requested last; -1: the next one has its own
        self._until = 0

    def begin(self, trial: Trial, until: int) -> None:
        """Set the standing of a new trial."""
        if self._first < 0 or until != self._until:
            self._first, self._until = trial.number, until
        trial.standing = self._first

    def end(self) -> None:
        """Let no later trial stand with the present ones, because a search was told something."""
        self._first = -1

    def resume(
        self, dialogue: Iterable[Request | Report | EndTrial], trials: Mapping[int, Trial], nodes: Iterable[Node]
    ) -> None:
        """Set the standings of folded trials, and of their nodes."""
        seen: set[int] = set()
        for part in dialogue:
            match part:
                case Report() | EndTrial():
                    self.end()
                case TrialAsked() | TrialBranched() if part.trial not in seen:
                    seen.add(part.trial)
                    self.begin(trials[part.trial], part.until)
                case _:
                    pass
        for node in nodes:
            if node.first >= 0:
                node.standing = trials[node.first].standing
