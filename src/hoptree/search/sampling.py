"""Samplers: sources of configs, given by name, by their settings, or as the user's own class or function.

>>> from hoptree.search.value_kinds import choice
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
from hoptree.search.stable_repr import stable_text
from hoptree.search.unique_configs import UniqueConfigs

NAMES = ("random", "grid", "sobol", "latin-hypercube")


@runtime_checkable
class SamplerSpec(Protocol):
    """The settings of one of Optuna's samplers: ``ht.Optuna("tpe")``."""

    @property
    def method(self) -> str:
        """The name of the sampler."""
        ...

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the sampler."""
        ...


@runtime_checkable
class MakesSampler(Protocol):
    """The settings of a user-defined sampler, without space and seed."""

    def sampler(self, space: Space, seed: int) -> Sampler:
        """Return a new sampler; the same arguments give a sampler with the same configs."""
        ...


AnySampler: TypeAlias = str | SamplerSpec | MakesSampler | Callable[[Space, int], Sampler]


def make_sampler(sampler: AnySampler, space: Space, seed: int, count: int | None = None) -> Sampler:
    """Return a sampler from a name, settings, or a user-defined one; it returns at most ``count`` configs.

    Built-in samplers never repeat a config. Raise SpaceError if the space has no valid config.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise WorkloadError(f"count: {count!r}; expected a number of configs, at least 1")
    if isinstance(sampler, type) and not hasattr(sampler, "ask"):
        raise WorkloadError(f"sampler: the class {sampler.__qualname__}; expected {sampler.__qualname__}(...)")
    if isinstance(sampler, MakesSampler) and callable(sampler.sampler):
        return _at_most(_user_sampler(sampler, sampler.sampler, space, seed), count)
    if isinstance(sampler, SamplerSpec):
        _only_a_sampler(sampler)
        return _at_most(OptunaSampler(space, seed, sampler.method, sampler.options), count)
    if callable(sampler):
        return _at_most(_user_sampler(sampler, sampler, space, seed), count)
    if sampler not in NAMES:
        raise WorkloadError(
            f"sampler: {sampler!r}; expected one of {', '.join(NAMES)}, settings such as Optuna('tpe'), or your "
            "own: a function (space, seed) that returns an object with ask() and tell(config, epoch, loss)"
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
    """Return up to ``count`` valid configs of a space."""
    sampler = make_sampler("random", space, seed, count)
    return list(iter(sampler.ask, None))


def _only_a_sampler(spec: SamplerSpec) -> None:
    """Raise an error if a sampler's settings contain a budget, because the search around it would ignore it."""
    for name in ("trials", "epochs"):
        if getattr(spec, name, None) is not None:
            raise WorkloadError(
                f"sampler: Optuna({spec.method!r}, ...) with {name}={getattr(spec, name)}; leave it out: the "
                "search that uses the sampler sets trials and epochs"
            )


def _at_most(sampler: Sampler, count: int | None) -> Sampler:
    return sampler if count is None else AtMost(sampler, count)


def _user_sampler(settings: object, make: Callable[[Space, int], Sampler], space: Space, seed: int) -> Sampler:
    """Return a user-defined sampler; raise an error if it lacks a method."""
    name = stable_text(settings)
    read(space)  # raises the usual SpaceError for an invalid space
    try:
        signature(make).bind(space, seed)
    except TypeError as error:
        raise WorkloadError(f"sampler: {name}: {error}; expected a callable of a space and a seed") from None
    except ValueError:
        pass  # some built-in callables have no signature
    made = make(space, seed)
    for method in ("ask", "tell"):
        if not callable(getattr(made, method, None)):
            raise WorkloadError(
                f"sampler: {name} returned {made!r}, which has no {method}(); expected an object with ask() and "
                "tell(config, epoch, loss)"
            )
    return UserSampler(made, name)


@final
class PointSampler:
    """Returns the configs at the points, and ignores losses."""

    def __init__(self, unique: UniqueConfigs, points: Points) -> None:
        self._unique = unique
        self._points = points
        self._given = 0

    def ask(self) -> Config | None:
        """Return the config at the next point."""
        drawn = self._unique.draw(partial(self._points.of, self._given))
        self._given += 1
        return None if drawn is None else drawn.config

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Ignore the loss."""


@final
class GridSampler:
    """Returns every combination in the order of the grid, and ignores losses."""

    def __init__(self, space: Space) -> None:
        configs = grid(space)
        self._configs: Iterator[Config] = chain([next(configs)], configs)  # raise errors now

    def ask(self) -> Config | None:
        """Return the next combination."""
        return next(self._configs, None)

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Ignore the loss."""


@final
class UserSampler:
    """Wraps a user-defined sampler, and checks each config before it is trained."""

    def __init__(self, sampler: Sampler, name: str) -> None:
        self._sampler = sampler
        self._name = name

    def ask(self) -> Config | None:
        """Return the next config; raise an error if it is not valid."""
        config = self._sampler.ask()
        if config is None:
            return None
        problem = "it is not a dictionary"
        if isinstance(config, Mapping):
            try:
                config_items(dict(config))
                return dict(config)
            except WorkloadError as error:
                problem = str(error)
        raise WorkloadError(
            f"sampler: {self._name} returned {config!r}: {problem}; expected names with scalars or schedules, as "
            "in {'lr': 0.1}, or None if there are no more configs"
        )

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Pass the loss on."""
        self._sampler.tell(config, epoch, loss)


@final
class AtMost:
    """Limits another sampler to a number of configs."""

    def __init__(self, sampler: Sampler, count: int) -> None:
        self._sampler = sampler
        self._left = count

    def ask(self) -> Config | None:
        """Return the next config until the limit is reached."""
        if not self._left:
            return None
        self._left -= 1
        return self._sampler.ask()

    def tell(self, config: int, epoch: int, loss: float) -> None:
        """Pass the loss on."""
        self._sampler.tell(config, epoch, loss)
