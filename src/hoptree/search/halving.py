"""Synchronous halving: the search behind successive halving and Hyperband."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence, Set
from typing import final

from hoptree.core.actions import EndTrial, Report
from hoptree.core.schedules import Config
from hoptree.search.jobs import EndedJob, Jobs
from hoptree.search.protocol import Decision, Extend, Goal, Sampler, Stop, Train
from hoptree.search.rungs import Bracket, bracket


@final
class _BracketRun:
    """A running bracket: its rungs, how many have closed, and by rung the trials and the losses reported there."""

    __slots__ = ("closed", "losses", "members", "rung_of", "rungs")

    def __init__(self, rungs: Bracket, members: list[int]) -> None:
        self.rungs = rungs
        self.closed = 0
        self.members: list[list[int]] = [members, *([] for _ in rungs[1:])]
        self.losses: list[dict[int, float]] = [{} for _ in rungs]
        self.rung_of = dict.fromkeys(members, 0)

    @property
    def is_complete(self) -> bool:
        """Whether all trials of the first open rung have ended there."""
        return len(self.losses[self.closed]) == len(self.members[self.closed])

    def ranked(self, rung: int, without: Set[int]) -> list[int]:
        """Return the trials that have reported at a rung, the best first; those promoted already stay."""
        losses = self.losses[rung]
        found = (trial for trial in losses if trial not in without or self.rung_of[trial] > rung)
        return [trial for loss, trial in sorted((losses[trial], trial) for trial in found) if loss < math.inf]


@final
class Halving:
    """Runs brackets in parallel or one after the other; a rung closes when the last of its trials has ended.

    The result of a rung depends only on its losses, not on their order in time: the best trials continue, ties by
    lower trial number, and the others are stopped, which frees their states. Trials that failed or reported NaN
    rank last and never continue. The sampler is told a rung's losses when the rung closes, by trial number.

    With ``early``, a trial continues before its rung closes, as soon as it is certain to be among the best: when it
    would be even if all that have not reported yet were better than it. The same trials continue in the end.
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
        early: bool = False,
    ) -> None:
        self._brackets = deque(brackets)
        self._factor = factor
        self._sampler = sampler
        self._every = every
        self._together = together
        self._early = early
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
        rung = run.rung_of[ended.trial]
        run.losses[rung][ended.trial] = ended.loss
        decisions: list[Decision] = []
        if self._early and not (rung == run.closed and run.is_complete):
            decisions += self._promote_certain(run, rung)
        while run.closed < len(run.rungs) and run.is_complete:
            decisions += self._close(run)
        return decisions

    def _promote_certain(self, run: _BracketRun, rung: int) -> list[Decision]:
        """Extend the trials that are among the best of a rung whatever the others report."""
        if rung + 1 == len(run.rungs):
            return []
        trials = len(run.members[rung]) if rung == run.closed else run.rungs[rung].trials
        waiting = trials - len(run.losses[rung])
        certain = run.ranked(rung, self._jobs.gone)[: max(0, run.rungs[rung + 1].trials - waiting)]
        return [self._promote(run, trial, rung + 1) for trial in sorted(certain) if run.rung_of[trial] == rung]

    def _promote(self, run: _BracketRun, trial: int, rung: int) -> Decision:
        run.rung_of[trial] = rung
        self._jobs.grant(trial, run.rungs[rung].epochs)
        return Extend(trial, run.rungs[rung].epochs)

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
                return [self._train(run, trial, c) for trial, c in zip(run.members[0], configs, strict=True)]
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
        closed, members = run.closed, run.members[run.closed]
        for trial in members:
            self._sampler.tell(trial, run.rungs[closed].epochs, run.losses[closed][trial])
        run.closed += 1
        if run.closed == len(run.rungs):
            return self._open()
        gone = self._jobs.gone
        best = sorted(run.ranked(closed, gone)[: run.rungs[run.closed].trials])
        run.members[run.closed] = best
        decisions = [self._promote(run, trial, run.closed) for trial in best if run.rung_of[trial] == closed]
        promoted = set(best)
        decisions += [Stop(trial) for trial in members if trial not in gone and trial not in promoted]
        if not best:
            run.closed = len(run.rungs)
            return decisions + self._open()
        return decisions
