"""ASHA: asynchronous successive halving."""

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

_SIMULATED_TRIALS = 1_000  # the budget estimate simulates at most so many trials
_REPEATS = 5  # so many times, each with other losses
_SLOW_BEST = 1.25  # if better configs also train slower, the best report last and more trials are promoted


@final
class ASHA(msgspec.Struct, frozen=True):
    """Start up to ``trials`` trials and promote the best one in ``factor`` at each rung as losses are reported.

    ``mode="promote"`` is the rule of the paper: a trial pauses at every rung. Whenever a job slot is free, the best
    paused trial in the top ``1 / factor`` of its rung continues, highest rung first; otherwise a new trial starts.
    If the space has too few configs to promote any trial to the last rung, the best one continues at the end. With
    ``mode="stop"`` a trial continues at once if it is in the top ``1 / factor`` of the trials that reached the rung
    before it (the first ones if they are the best so far), otherwise it is stopped: no pauses, and more long
    trials.

    ``concurrent`` jobs run at a time. Use at least the number of workers, and twice that if trials share prefixes;
    a higher number means that decisions are based on fewer losses. Decisions depend on the order of the reports.

    With ``trials=None`` it starts new trials until the space has no more, or until ``run(time_limit=…)`` is over.
    """

    trials: int | None
    max_epochs: int
    min_epochs: int = 1
    factor: int = 3
    mode: Literal["promote", "stop"] = "promote"
    concurrent: int = 16
    every: int = 0
    sampler: Any = "random"

    def __post_init__(self) -> None:
        checks.plain_settings(self)
        if self.trials is not None:
            checks.whole("trials", self.trials, 1)
        checks.halving(self.min_epochs, self.max_epochs, self.factor)
        if self.mode not in ("promote", "stop"):
            raise WorkloadError(f"mode: {self.mode!r}; expected 'promote' or 'stop'")
        if self.mode == "promote" and self.trials is not None:
            checks.enough(self.trials, self.min_epochs, self.max_epochs, self.factor)
        checks.whole("concurrent", self.concurrent, 1)
        checks.reports(self.every)

    @property
    def endless(self) -> bool:
        """Whether only a time limit ends it."""
        return self.trials is None

    def budget_estimate(self) -> BudgetEstimate | None:
        """Estimate the total epochs: they depend on the order of the losses, so simulate a few random orders."""
        if self.trials is None:
            return None
        found = [self._simulated_epochs(self.trials, Random(order)) for order in range(_REPEATS)]
        return BudgetEstimate(min(found), sum(found) / _REPEATS, _SLOW_BEST * max(found))

    def _simulated_epochs(self, trials: int, random: Random) -> float:
        """Return the total epochs of simulated trials that finish one after the other with random losses."""
        losses = [random.random() for _ in range(min(trials, _SIMULATED_TRIALS))]
        scale, total, before = trials / len(losses), 0, 0
        for epoch in rung_epochs(self.min_epochs, self.max_epochs, self.factor):
            total += len(losses) * (epoch - before)
            losses, before = self._promoted_losses(losses, epoch), epoch
        return scale * total

    def _promoted_losses(self, losses: list[float], epoch: int) -> list[float]:
        """Return the losses of the trials that a rung promotes, in order of promotion."""
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
            raise NoExtensionError("with mode='promote' the paused trials are stopped when the search ends")
        if earlier[-1].procedure.trials is None and self.trials is not None:
            raise NoExtensionError(f"trials: was None, that is no limit, is {self.trials}")
        only_more(self, earlier, space, "trials", "max_epochs")
        drawn_one_by_one(self, earlier[-1].procedure, "trials")
        higher_rungs(self, earlier[-1].procedure)
        return self.search(space, goal, seed)


@final
class _Rung:
    """The trials that reached a rung, best first, ties by lower trial number; no operation scans all of them.

    At most ``limit`` trials of a rung can ever be promoted, so trials ranked below that are eliminated.
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
        """Add a trial; return the trial that can no longer be promoted, if there is one."""
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
        """Return whether a trial is in the top ``1 / factor`` of the trials that are here now."""
        return loss < math.inf and bisect_left(self._ranked, (loss, trial)) < max(1, self._size // self._factor)

    def promote(self, gone: set[int], always: bool = False) -> int | None:
        """Promote and return the best paused trial if it is in the top, or in any case with ``always``."""
        paused = self._paused
        while paused and paused[0][1] in gone:
            heappop(paused)
        if paused and (always or bisect_left(self._ranked, paused[0]) < self._size // self._factor):
            _, best = heappop(paused)
            self._promoted.add(best)
            return best
        return None

    def paused(self, gone: set[int]) -> list[int]:
        """Return the trials that are still paused."""
        return sorted(trial for _, trial in self._paused if trial not in gone)


@final
class _Search:
    def __init__(self, settings: ASHA, sampler: Sampler, goal: Goal) -> None:
        self._sampler = sampler
        self._jobs = Jobs(goal)
        self._concurrent = settings.concurrent
        epochs = rung_epochs(settings.min_epochs, settings.max_epochs, settings.factor)
        self._source = TrialSource(
            sampler, self._jobs, math.inf if settings.trials is None else settings.trials, epochs[0], settings.every
        )
        self._promotes = settings.mode == "promote"
        limit = settings.trials // settings.factor if self._promotes and settings.trials is not None else None
        self._rungs = [_Rung(epoch, settings.factor) for epoch in epochs]
        self._rungs[0] = _Rung(epochs[0], settings.factor, limit)
        self._level = {epoch: level for level, epoch in enumerate(epochs)}
        self._reached_last = len(epochs) == 1  # whether any trial was promoted to the last rung

    def start(self) -> Sequence[Decision]:
        """Start as many trials as may run at a time."""
        return self._fill()

    def tell(self, update: Report | EndTrial) -> Sequence[Decision]:
        """Process the end of a job, and fill the slot that it frees."""
        ended = self._jobs.tell(update)
        if ended is None:
            return ()
        self._sampler.tell(*ended)
        decisions = self._add(ended)
        decisions += self._fill()
        if self._promotes and not len(self._jobs):
            decisions += self._finish()
        return decisions

    def _add(self, ended: EndedJob) -> list[Decision]:
        """Add a trial to its rung, and extend or stop it if that is already decided."""
        trial, epoch, loss = ended
        level = self._level[epoch]
        if level == len(self._rungs) - 1:
            return []
        rung = self._rungs[level]
        eliminated = rung.add(trial, loss)
        if not self._promotes:
            if rung.is_good(trial, loss):
                return [self._extend(trial, level + 1)]
            eliminated = trial
        return [] if eliminated is None or eliminated in self._jobs.gone else [self._stop(eliminated)]

    def _fill(self) -> list[Decision]:
        decisions: list[Decision] = []
        while len(self._jobs) < self._concurrent and (decision := self._next()) is not None:
            decisions.append(decision)
        return decisions

    def _next(self) -> Decision | None:
        """Return a promotion from the highest rung that has one, otherwise a new trial."""
        if self._promotes:
            for level in range(len(self._rungs) - 2, -1, -1):
                trial = self._rungs[level].promote(self._jobs.gone)
                if trial is not None:
                    return self._extend(trial, level + 1)
        return self._source.train()

    def _finish(self) -> list[Decision]:
        """Stop the paused trials; first promote the best one if the space has too few configs for the rungs."""
        if self._source.short and not self._reached_last:
            for level in range(len(self._rungs) - 2, -1, -1):
                trial = self._rungs[level].promote(self._jobs.gone, always=True)
                if trial is not None:
                    return [self._extend(trial, level + 1)]
        return [self._stop(trial) for rung in self._rungs[:-1] for trial in rung.paused(self._jobs.gone)]

    def _extend(self, trial: int, level: int) -> Decision:
        self._reached_last |= level == len(self._rungs) - 1
        self._jobs.grant(trial, self._rungs[level].epochs)
        return Extend(trial, self._rungs[level].epochs)

    def _stop(self, trial: int) -> Decision:
        self._jobs.gone.add(trial)
        return Stop(trial)
