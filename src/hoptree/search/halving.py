"""Synchronous halving: the search behind successive halving and Hyperband."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.schedules import Config
from hoptree.search.jobs import EndedJob, Jobs
from hoptree.search.protocol import Decision, Extend, Goal, Sampler, Stop, Train
from hoptree.search.rungs import Bracket, bracket


@final
class _Race:
    """One bracket under way: its rungs, the one it is at, and the losses of those who have got there."""

    __slots__ = ("at", "losses", "members", "rungs")

    def __init__(self, rungs: Bracket, members: list[int]) -> None:
        self.rungs = rungs
        self.at = 0
        self.members = members
        self.losses: dict[int, float] = {}


@final
class Halving:
    """Runs brackets, together or in turn; a rung closes when the last of its trials has ended.

    What follows from a rung depends on its losses only, not on the order in which they came: the best go on,
    ties by lower trial number, and the others are stopped, which lets their states go. Trials that failed or
    reported NaN are last and never go on. The sampler learns a rung's losses when it closes, by trial number.
    """

    def __init__(
        self,
        brackets: Iterable[Bracket],
        factor: int,
        sampler: Sampler,
        goal: Goal,
        *,
        every: int = 0,
        together: bool = True,
    ) -> None:
        self._brackets = deque(brackets)
        self._factor = factor
        self._sampler = sampler
        self._every = every
        self._together = together
        self._jobs = Jobs(goal)
        self._races: list[_Race] = []  # by trial

    def start(self) -> Sequence[Decision]:
        """Start the first bracket, or all of them."""
        decisions = self._open()
        while self._together and self._brackets:
            decisions += self._open()
        return decisions

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        """Take a loss in; the last one of a rung closes it."""
        ended = self._jobs.tell(news)
        return () if ended is None else self._ended(ended)

    def _ended(self, ended: EndedJob) -> list[Decision]:
        race = self._races[ended.trial]
        race.losses[ended.trial] = ended.loss
        return [] if len(race.losses) < len(race.members) else self._close(race)

    def _open(self) -> list[Decision]:
        """Start the next bracket; a sampler with fewer configs than planned makes it a smaller one."""
        while self._brackets:
            planned = self._brackets.popleft()
            configs = self._ask(planned[0].trials)
            if configs:
                rungs = bracket(len(configs), [rung.epochs for rung in planned], self._factor)
                first = len(self._races)
                race = _Race(rungs, list(range(first, first + len(configs))))
                self._races += [race] * len(configs)
                return [self._train(race, trial, c) for trial, c in zip(race.members, configs, strict=True)]
        return []

    def _ask(self, count: int) -> list[Config]:
        configs: list[Config] = []
        while len(configs) < count and (config := self._sampler.ask()) is not None:
            configs.append(config)
        return configs

    def _train(self, race: _Race, trial: int, config: Config) -> Decision:
        self._jobs.grant(trial, race.rungs[0].epochs)
        return Train(config, race.rungs[0].epochs, self._every)

    def _close(self, race: _Race) -> list[Decision]:
        """Let the best of a rung go on; after the last rung, start the next bracket that waits."""
        for trial in race.members:
            self._sampler.tell(trial, race.rungs[race.at].epochs, race.losses[trial])
        race.at += 1
        if race.at == len(race.rungs):
            return self._open()
        gone = self._jobs.gone
        standing = [trial for trial in race.members if trial not in gone]
        ranked = sorted((race.losses[trial], trial) for trial in standing if race.losses[trial] < math.inf)
        rung = race.rungs[race.at]
        race.members = sorted(trial for _, trial in ranked[: rung.trials])
        race.losses = {}
        for trial in race.members:
            self._jobs.grant(trial, rung.epochs)
        going_on = set(race.members)
        decisions: list[Decision] = [Extend(trial, rung.epochs) for trial in race.members]
        decisions += [Stop(trial) for trial in standing if trial not in going_on]
        return decisions if race.members else decisions + self._open()
