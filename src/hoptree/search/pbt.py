"""Population based training: replace the worst members by copies of the best with changed configs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, final

import msgspec

from hoptree.core.actions import EndTrial, Report
from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import Config
from hoptree.search import checks
from hoptree.search.budget_estimate import BudgetEstimate, exactly
from hoptree.search.errors import NoExtensionError
from hoptree.search.explore import Explorer
from hoptree.search.jobs import Jobs
from hoptree.search.parse_space import Space
from hoptree.search.parsed_parameters import index_at
from hoptree.search.protocol import Branch, Decision, Extend, Goal, Sampler, Search, Stop, Train
from hoptree.search.sampling import make_sampler
from hoptree.search.streams import share
from hoptree.search.tree import identity
from hoptree.search.widening import EarlierSearch, only_more

_TRIES = 20  # if there are so few neighbours, accept a config that was taken before


@final
class PBT(msgspec.Struct, frozen=True):
    """Train a ``population`` for ``epochs``; every ``interval`` epochs replace the worst ``quantile``.

    A member of the worst quantile is replaced: a new trial branches from the state of a random member of the best
    quantile, and continues with a changed config. Each hyper-parameter is resampled with the probability
    ``resample``; otherwise a number is multiplied by one of the ``factors``, within its range, and a choice moves
    to a neighbour. Members that failed or reported NaN are replaced too. All members wait for each other at every
    interval.

    ``change`` names the hyper-parameters that may change, by default all that are searched. Leave out those that
    determine the model's shape, such as a width, because a state keeps its shape.
    """

    population: int
    epochs: int
    interval: int
    quantile: float = 0.25
    resample: float = 0.25
    factors: Sequence[float] = (0.8, 1.2)
    change: Sequence[str] | None = None
    every: int = 0
    sampler: Any = "random"

    def __post_init__(self) -> None:
        checks.plain_settings(self)
        checks.whole("population", self.population, 2, "a single member has no other member to copy")
        checks.whole("epochs", self.epochs, 1)
        checks.whole("interval", self.interval, 1, "members are compared after whole epochs")
        if self.interval > self.epochs:
            raise WorkloadError(f"interval: {self.interval}; expected at most the {self.epochs} epochs of a member")
        checks.between("quantile", self.quantile, 0.01, 0.5, "best and worst must not overlap")
        checks.between("resample", self.resample, 0, 1)
        checks.factors("factors", self.factors)
        if self.change is not None and not isinstance(self.change, list | tuple):
            raise WorkloadError(f"change: {self.change!r}; expected a list of names, for example ['lr']")
        checks.reports(self.every)

    def budget_estimate(self) -> BudgetEstimate:
        """Return the total epochs, which are known exactly."""
        return exactly(self.population * self.epochs)

    def search(self, space: Space, goal: Goal, seed: int) -> Search:
        """Return the search over a space."""
        sampler = make_sampler(self.sampler, space, seed, self.population)
        explorer = Explorer(space, seed, self.resample, self.factors, self.change)
        found = (sampler.ask() for _ in range(self.population))
        members = [config for config in found if config is not None]
        if len(members) < 2:
            raise WorkloadError(
                f"population: {self.population}, but the space has {len(members)} configs; expected a space of at "
                "least 2 configs: a single member has no other member to copy"
            )
        return _Search(self, sampler, explorer, members, goal, seed)

    def widen(self, earlier: Sequence[EarlierSearch], space: Space, goal: Goal, seed: int) -> Search:
        """Return the search for more epochs, that is, more generations."""
        only_more(self, earlier, space, "epochs")
        before = earlier[-1].procedure
        if before.epochs % self.interval and before.epochs != self.epochs:
            raise NoExtensionError(
                f"epochs: the last generation ended after {before.epochs} epochs; a search can be extended only if "
                f"its last generation ended with a full interval of {self.interval}"
            )
        return self.search(space, goal, seed)


@final
class _Search:
    """The population over its generations. A new generation depends only on the losses of the one before."""

    def __init__(
        self,
        settings: PBT,
        sampler: Sampler,
        explorer: Explorer,
        members: Sequence[Config],
        goal: Goal,
        seed: int,
    ) -> None:
        self._settings = settings
        self._sampler = sampler
        self._explorer = explorer
        self._seed = seed
        self._jobs = Jobs(goal)
        self._epoch = settings.interval
        self._configs = dict(enumerate(members))
        self._losses: dict[int, float] = {}
        self._first = self._count = len(members)  # number of trials in the first generation, and in total

    def start(self) -> Sequence[Decision]:
        """Start the population."""
        for trial in self._configs:
            self._jobs.grant(trial, self._epoch)
        return [Train(config, self._epoch, self._settings.every) for config in self._configs.values()]

    def tell(self, update: Report | EndTrial) -> Sequence[Decision]:
        """Process a report; the last loss of a generation starts the next one."""
        ended = self._jobs.tell(update)
        if ended is None:
            return ()
        self._losses[ended.trial] = ended.loss
        return () if len(self._jobs) else self._next()

    def _next(self) -> list[Decision]:
        """Start the next generation: branch first, while the states to branch from are still pinned."""
        at, losses, gone = self._epoch, self._losses, self._jobs.gone
        for trial in sorted(losses):
            if trial < self._first:
                self._sampler.tell(trial, at, losses[trial])
        self._losses = {}
        if at == self._settings.epochs:
            return []
        best, replaced = self._rank(losses)
        self._epoch = min(at + self._settings.interval, self._settings.epochs)
        taken: set[object] = {(trial, identity(self._configs[trial])) for trial in best}
        decisions = [self._branch(best, at, taken) for _ in replaced] if best else []
        for trial in replaced:
            del self._configs[trial]
        decisions += [self._extend(trial) for trial in sorted(losses.keys() - replaced)]
        return decisions + [Stop(trial) for trial in replaced if trial not in gone]

    def _rank(self, losses: dict[int, float]) -> tuple[list[int], list[int]]:
        """Return the best, and the trials to replace: all that failed, and the worst up to the quantile."""
        gone = self._jobs.gone
        finite = [(loss, trial) for trial, loss in losses.items() if loss < math.inf and trial not in gone]
        ranked = [trial for _, trial in sorted(finite)]
        failed = losses.keys() - set(ranked)
        count = max(1, int(len(losses) * self._settings.quantile))
        best = ranked[:count]
        more = min(len(ranked) - len(best), max(0, count - len(failed)))
        return best, sorted([*failed, *ranked[len(ranked) - more :]])

    def _branch(self, best: list[int], at: int, taken: set[object]) -> Decision:
        """Branch from one of the best; retry, since the same config from the same state would be the same trial."""
        trial = self._count
        for attempt in range(_TRIES):
            source = best[index_at(share(self._seed, "source", trial, attempt), len(best))]
            config = self._explorer.changed(self._configs[source], trial, attempt)
            if (source, identity(config)) not in taken:
                break
        taken.add((source, identity(config)))
        self._configs[trial] = config
        self._jobs.grant(trial, self._epoch)
        self._count += 1
        return Branch(source, at, config, self._epoch, self._settings.every)

    def _extend(self, trial: int) -> Decision:
        self._jobs.grant(trial, self._epoch)
        return Extend(trial, self._epoch)
