"""A search whose decisions are recorded and checked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.lineage import config_items
from hoptree.search.protocol import Branch, Decision, Extend, Goal, Search, Stop, Train


@final
class SearchLog:
    """Wraps a search: records all messages and decisions, and raises an error for an invalid decision."""

    def __init__(self, search: Search, goal: Goal) -> None:
        self._search = search
        self._goal = goal
        self._until: list[int] = []
        self._last: dict[int, float] = {}
        self._ended: set[int] = set()
        self.answers: list[tuple[Report | EndTrial | None, list[Decision]]] = []
        self.epochs = 0
        self.complete: set[int] = set()

    @property
    def decisions(self) -> list[Decision]:
        """All decisions, in order."""
        return [decision for _, decisions in self.answers for decision in decisions]

    @property
    def by_trial(self) -> list[list[Decision]]:
        """The decisions about each trial, in order."""
        stories: list[list[Decision]] = []
        for decision in self.decisions:
            if isinstance(decision, Train | Branch):
                stories.append([decision])
            else:
                stories[decision.trial].append(decision)
        return stories

    @property
    def trials(self) -> int:
        """The number of started trials."""
        return len(self._until)

    @property
    def longest(self) -> int:
        """The most epochs that a trial was granted."""
        return max(self._until, default=0)

    def start(self) -> list[Decision]:
        """Return the first decisions of the search."""
        return self._note(None, self._search.start())

    def tell(self, message: Report | EndTrial) -> list[Decision]:
        """Pass a message to the search, and record its decisions."""
        match message:
            case Report(trial, _, metrics):
                self._last[trial] = self._goal.loss(metrics)
            case EndTrial(trial, ending):
                self.complete.discard(trial)
                self._ended.discard(trial)  # one that failed may have been trained again
                (self.complete if ending == "complete" else self._ended).add(trial)
        return self._note(message, self._search.tell(message))

    def _note(self, message: Report | EndTrial | None, given: Any) -> list[Decision]:
        nothing = given is None and message is not None
        assert nothing or isinstance(given, Iterable), f"start() or tell() returned {given!r}, no list of decisions"
        decisions: list[Decision] = [] if nothing else list(given)
        self.answers.append((message, decisions))
        for decision in decisions:
            match decision:
                case Train(config, until, _):
                    config_items(config)
                    self._until.append(until)
                    self.epochs += until
                case Branch(source, at, config, until, _):
                    config_items(config)
                    self._alive(source, decision)
                    self._until.append(until)
                    self.epochs += until - at
                case Extend(trial, until):
                    self._alive(trial, decision)
                    known = self._until[trial]
                    assert until > known, f"{decision}: trial {trial} was granted {known} epochs before"
                    self._until[trial] = until
                    self.epochs += until - known
                case Stop(trial):
                    self._known(trial, decision)
                case _:
                    raise AssertionError(f"{decision!r} was decided; expected Train, Extend, Branch or Stop")
        return decisions

    def _known(self, trial: int, decision: Decision) -> None:
        assert 0 <= trial < self.trials, f"{decision}: expected a trial from 0 to {self.trials - 1}"

    def _alive(self, trial: int, decision: Decision) -> None:
        self._known(trial, decision)
        assert trial not in self._ended, f"{decision}: trial {trial} failed or was stopped; it cannot go on"
        bad = self._last.get(trial) == math.inf
        assert not bad, f"{decision}: trial {trial} last reported NaN; such trials come last and never go on"
