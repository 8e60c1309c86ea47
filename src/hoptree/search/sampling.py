"""Samplers: sources of configs, by name, as a record that a user writes down, or the user's own.

>>> from hoptree.search.values import choice
>>> sampler = make_sampler("random", {"width": choice(8, 16)}, seed=0)
>>> [sampler.ask(), sampler.ask(), sampler.ask()]
[{'width': 8}, {'width': 16}, None]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import signature
from itertools import chain
from typing import Any, Protocol, TypeAlias, final, runtime_checkable

from hoptree.core.errors import WorkloadError
from hoptree.core.lineage import config_items
from hoptree.core.schedules import Config
from hoptree.search.optuna_sampler import OptunaSampler
from hoptree.search.parse_space import Space, read
from hoptree.search.points import LatinPoints, Points, RandomPoints, SobolPoints
from hoptree.search.protocol import Sampler
from hoptree.search.space import grid
from hoptree.search.stable_repr import lasting_text
from hoptree.search.unique_configs import UniqueConfigs

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


@runtime_checkable
class MakesSampler(Protocol):
    """A sampler of the user's own, as it is written down: its settings, before it knows the space."""

    def sampler(self, space: Space, seed: int) -> Sampler:
        """Return a new sampler; the same arguments give one that gives the same."""
        ...


AnySampler: TypeAlias = str | SamplerSpec | MakesSampler | Callable[[Space, int], Sampler]


def make_sampler(sampler: AnySampler, space: Space, seed: int, count: int | None = None) -> Sampler:
    """Return a sampler by its name, of its record, or of the user's own; it gives ``count`` configs at most.

    Ours give no config twice. A space in which there is nothing to give is refused here.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise WorkloadError(f"count: {count!r}; expected a number of configs, at least 1")
    if isinstance(sampler, type) and not hasattr(sampler, "ask"):
        raise WorkloadError(f"sampler: the class {sampler.__qualname__}; expected {sampler.__qualname__}(...)")
    if isinstance(sampler, MakesSampler) and callable(sampler.sampler):
        return _at_most(_own(sampler, sampler.sampler, space, seed), count)
    if isinstance(sampler, SamplerSpec):
        _only_a_sampler(sampler)
        return _at_most(OptunaSampler(space, seed, sampler.method, sampler.options), count)
    if callable(sampler):
        return _at_most(_own(sampler, sampler, space, seed), count)
    if sampler not in NAMES:
        raise WorkloadError(
            f"sampler: {sampler!r}; expected one of {', '.join(NAMES)}, or a record such as Optuna('tpe'), or your "
            "own: a function (space, seed) that returns something with ask() and tell(config, epoch, loss)"
        )
    if sampler == "grid":
        return _at_most(GridSampler(space), count)
    root = read(space)
    points: Points
    if sampler == "sobol":
        points = SobolPoints(root, seed)
    elif sampler == "latin-hypercube":
        points = LatinPoints(seed, count)
    else:
        points = RandomPoints(seed)
    return _at_most(PointSampler(UniqueConfigs(root, seed), points), count)


def some_configs(space: Space, seed: int, count: int) -> list[Config]:
    """Return some configs that a space allows, fewer if it has no more."""
    sampler = make_sampler("random", space, seed, count)
    return list(iter(sampler.ask, None))


def _only_a_sampler(spec: SamplerSpec) -> None:
    """Refuse the budget of a search where the record is a sampler only: nobody would keep to it."""
    for name in ("trials", "epochs"):
        if getattr(spec, name, None) is not None:
            raise WorkloadError(
                f"sampler: Optuna({spec.method!r}, ...) with {name}={getattr(spec, name)}; expected it without: "
                "trials and epochs are those of the search that it is the sampler of"
            )


def _at_most(sampler: Sampler, count: int | None) -> Sampler:
    return sampler if count is None else AtMost(sampler, count)


def _own(written: object, make: Callable[[Space, int], Sampler], space: Space, seed: int) -> Sampler:
    """Return the user's own sampler, or say what is wrong with it."""
    name = lasting_text(written)
    read(space)  # what cannot be searched is said as everywhere
    try:
        signature(make).bind(space, seed)
    except TypeError as error:
        raise WorkloadError(f"sampler: {name}: {error}; expected that it takes a space and a seed") from None
    except ValueError:
        pass  # some built-in things do not tell what they take
    made = make(space, seed)
    for method in ("ask", "tell"):
        if not callable(getattr(made, method, None)):
            raise WorkloadError(
                f"sampler: {name} made {made!r}, which has no {method}(); expected something with ask() and "
                "tell(config, epoch, loss)"
            )
    return Own(made, name)


@final
class PointSampler:
    """Gives the configs at the points, and learns nothing."""

    def __init__(self, fresh: UniqueConfigs, points: Points) -> None:
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
class Own:
    """A sampler of the user's own: what it gives is looked at before anything is trained with it."""

    def __init__(self, sampler: Sampler, name: str) -> None:
        self._sampler = sampler
        self._name = name

    def ask(self) -> Config | None:
        """Return its next config, if it is one."""
        config = self._sampler.ask()
        if config is None:
            return None
        problem = "it is no dictionary"
        if isinstance(config, Mapping):
            try:
                config_items(dict(config))
                return dict(config)
            except WorkloadError as error:
                problem = str(error)
        raise WorkloadError(
            f"sampler: {self._name} gave {config!r}: {problem}; expected names with scalars or schedules, as in "
            "{'lr': 0.1}, or None when there is none left"
        )

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Pass on what is told."""
        self._sampler.tell(config, epoch, loss)


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
