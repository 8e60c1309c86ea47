"""Run a search without an engine: with a table of losses by trial and epoch, and an order in which jobs end."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from hypothesis import strategies as st

from hoptree.core.actions import EndTrial, Report
from hoptree.core.schedules import Config
from hoptree.search import Branch, Decision, Extend, Goal, Search, Stop, Train

LOSS = Goal("loss", maximize=False)

Losses = Callable[[int, int], float | None]  # trial and epoch to loss; None if the trial fails


class PlayedSearch:
    """A search that is run to its end, with a record of its grants and decisions."""

    def __init__(self, search: Search, losses: Losses, order: Random) -> None:
        self.search = search
        self.losses = losses
        self.order = order
        self.configs: list[Config] = []
        self.grants: list[list[int]] = []  # by trial: the target epochs that it was granted, in order
        self.sources: dict[int, int] = {}
        self.every: list[int] = []
        self.begun: list[int] = []
        self.done: list[int] = []  # by trial: the epoch that it has reached
        self.running: dict[int, int] = {}
        self.endings: dict[int, str] = {}
        self.reports: list[tuple[int, int, float]] = []  # in order; a failure counts as epoch -1
        self.batches: list[list[Decision]] = []  # decisions of one call, if any
        self.most_running = 0
        self.ends: list[tuple[int, int]] = []  # trials and their target epochs, in the order of their ends

    def play(self) -> PlayedSearch:
        self.take(self.search.start())
        while self.running:
            self.end_one(self.order.choice(sorted(self.running)))
        return self

    def end_one(self, trial: int) -> None:
        """Train a trial to its target epoch, with all its reports on the way."""
        until = self.running[trial]
        self.ends.append((trial, until))
        every = self.every[trial]
        for epoch in range(self.done[trial] + 1, until + 1):
            loss = self.losses(trial, epoch)
            if loss is None:
                del self.running[trial]
                self.endings[trial] = "failed"
                self.reports.append((trial, -1, math.nan))
                self.take(self.search.tell(EndTrial(trial, "failed", "it broke")))
                return
            self.done[trial] = epoch
            if epoch == until or (every and epoch % every == 0):
                self.reports.append((trial, epoch, loss))
                self.take(self.search.tell(Report(trial, epoch, {"loss": loss})))
                if trial not in self.running:  # stopped by its own report
                    return
        del self.running[trial]
        self.endings[trial] = "complete"
        self.take(self.search.tell(EndTrial(trial, "complete")))

    def take(self, decisions: object) -> None:
        batch = list(decisions)  # type: ignore[call-overload]
        if batch:
            self.batches.append(batch)
        for decision in batch:
            match decision:
                case Train(config, until, every):
                    self._begin(config, until, every, 0)
                case Branch(source, at, config, until, every):
                    assert self.done[source] == at, "the pinned state is the one at the source's last epoch"
                    assert source not in self.running, "a branch comes before the source is extended"
                    assert self.endings[source] == "complete"
                    self.sources[len(self.grants)] = source
                    self._begin(config, until, every, at)
                case Extend(trial, until):
                    assert self.endings[trial] == "complete"
                    assert until > self.grants[trial][-1]
                    self.grants[trial].append(until)
                    self.running[trial] = until
                case Stop(trial):
                    was_running = self.running.pop(trial, None) is not None
                    assert was_running or self.endings[trial] == "complete"
                    self.endings[trial] = "stopped"
                    self.take(self.search.tell(EndTrial(trial, "stopped")))
        self.most_running = max(self.most_running, len(self.running))

    def _begin(self, config: Config, until: int, every: int, at: int) -> None:
        self.configs.append(config)
        self.grants.append([until])
        self.every.append(every)
        self.begun.append(at)
        self.done.append(at)
        self.running[len(self.grants) - 1] = until

    @property
    def epochs(self) -> int:
        """Total epochs trained: those before a branch count for its source."""
        return sum(self.done) - sum(self.begun)

    def reached(self, epoch: int) -> set[int]:
        """Return the trials that were granted a target epoch."""
        return {trial for trial, grants in enumerate(self.grants) if epoch in grants}


class Table:
    """Losses that depend on a seed: ties are common, some are NaN, and some trials fail early."""

    def __init__(self, seed: int, nans: float = 0.0, failures: float = 0.0, levels: int = 6) -> None:
        self.arguments = (seed, nans, failures, levels)

    def __call__(self, trial: int, epoch: int) -> float | None:
        seed, nans, failures, levels = self.arguments
        luck = Random(f"{seed} {trial} {epoch}")
        if luck.random() < failures:
            return None
        if luck.random() < nans:
            return math.nan
        return luck.randrange(levels) / 4 - 0.5

    def rank(self, trial: int, epoch: int) -> tuple[float, int]:
        """Return the rank of a trial: by loss, then by number; NaN and failures are infinite."""
        for before in range(1, epoch + 1):
            if self(trial, before) is None:
                return math.inf, trial
        return LOSS.loss({"loss": self(trial, epoch) or 0.0}), trial

    def __repr__(self) -> str:
        return f"Table{self.arguments}"


tables = st.builds(Table, st.integers(0, 10_000), st.sampled_from([0.0, 0.2]), st.sampled_from([0.0, 0.02, 0.2]))
calm = st.builds(Table, st.integers(0, 10_000))
orders = st.integers(0, 10_000).map(Random)


def shuffled(search: Callable[[], Search], losses: Losses, seeds: int = 4) -> list[list[list[Decision]]]:
    """Return the decisions of a search under several orders of the reports."""
    return [PlayedSearch(search(), losses, Random(seed)).play().batches for seed in range(seeds)]
