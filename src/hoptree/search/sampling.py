"""Samplers: sources of configs, by name or as a record that a user writes down.

>>> from hoptree.search.values import choice
>>> sampler = make_sampler("random", {"width": choice(8, 16)}, seed=0)
>>> [sampler.ask(), sampler.ask(), sampler.ask()]
[{'width': 8}, {'width': 16}, None]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Protocol, final, runtime_checkable

from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import Config
from hoptree.search.fresh import Fresh
from hoptree.search.optuna_sampler import OptunaSampler
from hoptree.search.points import LatinPoints, Points, RandomPoints, SobolPoints
from hoptree.search.protocol import Sampler
from hoptree.search.reading import Space, read
from hoptree.search.space import grid

NAMES = ("random", "grid", "sobol", "latin-hypercube")


@runtime_checkable
class SamplerSpec(Protocol):
    """One of Optuna's samplers as a user writes it down: ``ht.Optuna("tpe")``."""

    @property
    def method(self) -> str:
        """Its name."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """What it is made with."""
        ...


def make_sampler(sampler: str | SamplerSpec, space: Space, seed: int, count: int | None = None) -> Sampler:
    """Return a sampler by its name, or of its record; it gives no config twice, and ``count`` of them at most.

    A space in which there is nothing to give is refused here.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise WorkloadError(f"count: {count!r}; expected a number of configs, at least 1")
    if isinstance(sampler, SamplerSpec):
        learning = OptunaSampler(space, seed, sampler.method, sampler.options)
        return learning if count is None else AtMost(learning, count)
    if sampler not in NAMES:
        raise WorkloadError(
            f"sampler: {sampler!r}; expected one of {', '.join(NAMES)}, or a record such as Optuna('tpe')"
        )
    if sampler == "grid":
        listed = GridSampler(space)
        return listed if count is None else AtMost(listed, count)
    root = read(space)
    points: Points
    if sampler == "sobol":
        points = SobolPoints(root, seed)
    elif sampler == "latin-hypercube":
        points = LatinPoints(seed, count)
    else:
        points = RandomPoints(seed)
    drawn = PointSampler(Fresh(root, seed), points)
    return drawn if count is None else AtMost(drawn, count)


@final
class PointSampler:
    """Gives the configs at the points, and learns nothing."""

    def __init__(self, fresh: Fresh, points: Points) -> None:
        self._fresh = fresh
        self._points = points
        self._given = 0

    def ask(self) -> Config | None:
        """Return the config at the next point."""
        drawn = self._fresh.draw(partial(self._points.of, self._given))
        self._given += 1
        return None if drawn is None else drawn.config

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Change nothing."""


@final
class GridSampler:
    """Gives every combination in the order of the grid, and learns nothing."""

    def __init__(self, space: Space) -> None:
        configs = grid(space)
        self._configs: Iterator[Config] = chain([next(configs)], configs)  # refuses at once

    def ask(self) -> Config | None:
        """Return the next combination."""
        return next(self._configs, None)

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Change nothing."""


@final
class AtMost:
    """Another sampler, for so many configs."""

    def __init__(self, sampler: Sampler, count: int) -> None:
        self._sampler = sampler
        self._left = count

    def ask(self) -> Config | None:
        """Return the other's next config while some are left."""
        if not self._left:
            return None
        self._left -= 1
        return self._sampler.ask()

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Pass on what is told."""
        self._sampler.tell(config, epoch, loss)
