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
class _BracketRun:
    """A running bracket: its rungs, the index of the current rung, and the losses reported at that rung."""

    __slots__ = ("at", "losses", "members", "rungs")

    def __init__(self, rungs: Bracket, members: list[int]) -> None:
        self.rungs = rungs
        self.at = 0
        self.members = members
        self.losses: dict[int, float] = {}


@final
class Halving:
    """Runs brackets in parallel or one after the other; a rung closes when the last of its trials has ended.

    The result of a rung depends only on its losses, not on their order in time: the best trials continue, ties by
    lower trial number, and the others are stopped, which frees their states. Trials that failed or reported NaN
    rank last and never continue. The sampler is told a rung's losses when the rung closes, by trial number.
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
        self._runs: list[_BracketRun] = []  # by trial

    def start(self) -> Sequence[Decision]:
        """Start the first bracket, or all of them if they run together."""
        decisions = self._open()
        while self._together and self._brackets:
            decisions += self._open()
        return decisions

    def tell(self, update: Report | EndTrial) -> Sequence[Decision]:
        """Process a report; the last loss of a rung closes the rung."""
        ended = self._jobs.tell(update)
        return () if ended is None else self._ended(ended)

    def _ended(self, ended: EndedJob) -> list[Decision]:
        run = self._runs[ended.trial]
        run.losses[ended.trial] = ended.loss
        return [] if len(run.losses) < len(run.members) else self._close(run)

    def _open(self) -> list[Decision]:
        """Start the next bracket, with fewer trials than planned if the sampler has fewer configs."""
        while self._brackets:
            planned = self._brackets.popleft()
            configs = self._ask(planned[0].trials)
            if configs:
                rungs = bracket(len(configs), [rung.epochs for rung in planned], self._factor)
                first = len(self._runs)
                run = _BracketRun(rungs, list(range(first, first + len(configs))))
                self._runs += [run] * len(configs)
                return [self._train(run, trial, c) for trial, c in zip(run.members, configs, strict=True)]
        return []

    def _ask(self, count: int) -> list[Config]:
        configs: list[Config] = []
        while len(configs) < count and (config := self._sampler.ask()) is not None:
            configs.append(config)
        return configs

    def _train(self, run: _BracketRun, trial: int, config: Config) -> Decision:
        self._jobs.grant(trial, run.rungs[0].epochs)
        return Train(config, run.rungs[0].epochs, self._every)

    def _close(self, run: _BracketRun) -> list[Decision]:
        """Extend the best trials of a rung; after the last rung, start the next waiting bracket."""
        for trial in run.members:
            self._sampler.tell(trial, run.rungs[run.at].epochs, run.losses[trial])
        run.at += 1
        if run.at == len(run.rungs):
            return self._open()
        gone = self._jobs.gone
        remaining = [trial for trial in run.members if trial not in gone]
        ranked = sorted((run.losses[trial], trial) for trial in remaining if run.losses[trial] < math.inf)
        rung = run.rungs[run.at]
        run.members = sorted(trial for _, trial in ranked[: rung.trials])
        run.losses = {}
        for trial in run.members:
            self._jobs.grant(trial, rung.epochs)
        promoted = set(run.members)
        decisions: list[Decision] = [Extend(trial, rung.epochs) for trial in run.members]
        decisions += [Stop(trial) for trial in remaining if trial not in promoted]
        return decisions if run.members else decisions + self._open()
