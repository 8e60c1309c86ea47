"""ASHA: successive halving that waits for nobody."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, Literal, final

import msgspec

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.search import checks
from hoptree.search.budget_estimate import BudgetEstimate
from hoptree.search.errors import NoExtensionError
from hoptree.search.jobs import EndedJob, Jobs
from hoptree.search.parse_space import Space
from hoptree.search.protocol import Decision, Extend, Goal, Sampler, Search, Stop
from hoptree.search.rungs import rung_epochs
from hoptree.search.sampling import make_sampler
from hoptree.search.trial_source import TrialSource
from hoptree.search.widening import EarlierSearch, drawn_one_by_one, higher_rungs, only_more

_MADE_UP = 1_000  # trials at most that an outlook is made of
_ORDERS = 5  # … and how often
_LATER = 1.25  # where those that take longer are better, the best come last, and more go on


@final
class ASHA(msgspec.Struct, frozen=True):
    """Start up to ``trials`` and give the best one in ``factor`` of each rung more epochs, as losses come in.

    ``mode="promote"`` is the paper's: a trial pauses at every rung; whenever there is room, the best paused one
    that is in the top ``1 / factor`` of its rung goes on, highest rung first, else a new trial starts. If the space
    has too few configs for anyone to be in the top of all rungs, the best goes on in the end. With ``"stop"`` a
    trial goes on at once if it is in the top ``1 / factor`` of those that came before it (the first ones if they
    are the best so far), else it is stopped: no pauses, and more long trials.

    ``concurrent`` jobs are under way at a time. Take at least as many as there are workers, twice as many where
    trials share their beginnings; more of them decide on less. Decisions follow the order of the reports.
    """

    trials: int
    max_epochs: int
    min_epochs: int = 1
    factor: int = 3
    mode: Literal["promote", "stop"] = "promote"
    concurrent: int = 16
    every: int = 0
    sampler: Any = "random"

    def __post_init__(self) -> None:
        checks.plain_settings(self)
        checks.whole("trials", self.trials, 1)
        checks.halving(self.min_epochs, self.max_epochs, self.factor)
        if self.mode not in ("promote", "stop"):
            raise WorkloadError(f"mode: {self.mode!r}; expected 'promote' or 'stop'")
        if self.mode == "promote":
            checks.enough(self.trials, self.min_epochs, self.max_epochs, self.factor)
        checks.whole("concurrent", self.concurrent, 1)
        checks.reports(self.every)

    def outlook(self) -> BudgetEstimate:
        """Return the epochs that it grants in all: how many depends on the order of losses, so some are made up."""
        found = [self._made_up(Random(order)) for order in range(_ORDERS)]
        return BudgetEstimate(min(found), sum(found) / _ORDERS, _LATER * max(found))

    def _made_up(self, random: Random) -> float:
        """Return the epochs of trials that come one after the other, with losses in any order."""
        coming = [random.random() for _ in range(min(self.trials, _MADE_UP))]
        scale, total, before = self.trials / len(coming), 0, 0
        for epoch in rung_epochs(self.min_epochs, self.max_epochs, self.factor):
            total += len(coming) * (epoch - before)
            coming, before = self._going_on(coming, epoch), epoch
        return scale * total

    def _going_on(self, losses: list[float], epoch: int) -> list[float]:
        """Return who goes on from a rung, in the order in which they do."""
        rung, found = _Rung(epoch, self.factor), []
        for number, loss in enumerate(losses):
            rung.add(number, loss)
            if self.mode == "stop":
                found += [loss] if rung.is_good(number, loss) else []
            elif (best := rung.promote(set())) is not None:
                found.append(losses[best])
        return found

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space."""
        return _Search(self, make_sampler(self.sampler, space, seed, self.trials), goal)

    def widen(self, earlier: Sequence[EarlierSearch], space: Space, goal: Goal, seed: int) -> Search:
        """Return the search for more trials, or with further rungs above the last."""
        if self.mode != "stop":
            raise NoExtensionError("with mode='promote' the trials that wait are given up at the end")
        only_more(self, earlier, space, "trials", "max_epochs")
        drawn_one_by_one(self, earlier[-1].procedure, "trials")
        higher_rungs(self, earlier[-1].procedure)
        return self.search(space, goal, seed)


@final
class _Rung:
    """Who has reached a rung, best first, ties by lower trial number; never searched from end to end.

    At most ``limit`` of a rung can ever be promoted: who is behind so many has no chance.
    """

    def __init__(self, epochs: int, factor: int, limit: int | None = None) -> None:
        self.epochs = epochs
        self._factor = factor
        self._limit = limit
        self._size = 0
        self._ranked: list[tuple[float, int]] = []
        self._paused: list[tuple[float, int]] = []  # a heap
        self._promoted: set[int] = set()

    def add(self, trial: int, loss: float) -> int | None:
        """Take a trial in; return the one that has no chance any more, if any."""
        self._size += 1
        if loss == math.inf:
            return trial
        insort(self._ranked, (loss, trial))
        heappush(self._paused, (loss, trial))
        if self._limit is None or len(self._ranked) <= self._limit:
            return None
        _, last = self._ranked.pop()
        return None if last in self._promoted else last

    def is_good(self, trial: int, loss: float) -> bool:
        """Return whether a trial is in the top, now."""
        return loss < math.inf and bisect_left(self._ranked, (loss, trial)) < max(1, self._size // self._factor)

    def promote(self, gone: set[int], always: bool = False) -> int | None:
        """Return the best that is paused, if it is in the top (or ``always``), and count it as promoted."""
        paused = self._paused
        while paused and paused[0][1] in gone:
            heappop(paused)
        if paused and (always or bisect_left(self._ranked, paused[0]) < self._size // self._factor):
            _, best = heappop(paused)
            self._promoted.add(best)
            return best
        return None

    def left(self, gone: set[int]) -> list[int]:
        """Return who is still paused."""
        return sorted(trial for _, trial in self._paused if trial not in gone)


@final
class _Search:
    def __init__(self, settings: ASHA, sampler: Sampler, goal: Goal) -> None:
        self._sampler = sampler
        self._jobs = Jobs(goal)
        self._concurrent = settings.concurrent
        epochs = rung_epochs(settings.min_epochs, settings.max_epochs, settings.factor)
        self._supply = TrialSource(sampler, self._jobs, settings.trials, epochs[0], settings.every)
        self._promotes = settings.mode == "promote"
        limit = settings.trials // settings.factor if self._promotes else None
        self._rungs = [_Rung(epoch, settings.factor) for epoch in epochs]
        self._rungs[0] = _Rung(epochs[0], settings.factor, limit)
        self._level = {epoch: level for level, epoch in enumerate(epochs)}
        self._is_topped = len(epochs) == 1  # whether anyone was let go on to the last rung

    def start(self) -> Sequence[Decision]:
        """Start as many trials as may be under way."""
        return self._fill()

    def tell(self, news: Report | EndTrial) -> Sequence[Decision]:
        """Take a job's end in, and fill the room that it leaves."""
        ended = self._jobs.tell(news)
        if ended is None:
            return ()
        self._sampler.tell(*ended)
        decisions = self._arrive(ended)
        decisions += self._fill()
        if self._promotes and not len(self._jobs):
            decisions += self._finish()
        return decisions

    def _arrive(self, ended: EndedJob) -> list[Decision]:
        """Enter a trial at its rung; it goes on or is stopped if that is clear already."""
        trial, epoch, loss = ended
        level = self._level[epoch]
        if level == len(self._rungs) - 1:
            return []
        rung = self._rungs[level]
        hopeless = rung.add(trial, loss)
        if not self._promotes:
            if rung.is_good(trial, loss):
                return [self._extend(trial, level + 1)]
            hopeless = trial
        return [] if hopeless is None or hopeless in self._jobs.gone else [self._stop(hopeless)]

    def _fill(self) -> list[Decision]:
        decisions: list[Decision] = []
        while len(self._jobs) < self._concurrent and (decision := self._next()) is not None:
            decisions.append(decision)
        return decisions

    def _next(self) -> Decision | None:
        """Return a promotion from the highest rung that has one, else a new trial."""
        if self._promotes:
            for level in range(len(self._rungs) - 2, -1, -1):
                trial = self._rungs[level].promote(self._jobs.gone)
                if trial is not None:
                    return self._extend(trial, level + 1)
        return self._supply.train()

    def _finish(self) -> list[Decision]:
        """Stop who is still paused; in a space too small for the rungs, the best goes on before that."""
        if self._supply.short and not self._is_topped:
            for level in range(len(self._rungs) - 2, -1, -1):
                trial = self._rungs[level].promote(self._jobs.gone, always=True)
                if trial is not None:
                    return [self._extend(trial, level + 1)]
        return [self._stop(trial) for rung in self._rungs[:-1] for trial in rung.left(self._jobs.gone)]

    def _extend(self, trial: int, level: int) -> Decision:
        self._is_topped |= level == len(self._rungs) - 1
        self._jobs.grant(trial, self._rungs[level].epochs)
        return Extend(trial, self._rungs[level].epochs)

    def _stop(self, trial: int) -> Decision:
        self._jobs.gone.add(trial)
        return Stop(trial)
