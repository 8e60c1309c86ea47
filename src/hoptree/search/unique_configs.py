"""Fresh configs: what a space accepts and what was not given before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import NamedTuple, final

from hoptree.core.schedules import Config
from hoptree.search.errors import ConfigRefusedError, SpaceError
from hoptree.search.streams import share
from hoptree.search.tree import Choose, Decisions, Parameter, SpacePart, build, decide, identity, size

LISTED = 2**16
"""Spaces of up to so many combinations are listed when random draws find nothing new."""

_TRIES = 10_000
_TRIES_IF_LISTED = 100


class DrawnConfig(NamedTuple):
    """A config, and the decisions that led to it."""

    config: Config
    decisions: Decisions


@final
class UniqueConfigs:
    """Gives configs of a space, none of them twice.

    A draw that is refused, or equal to an earlier config, is repeated. A space of up to 65,536 combinations is
    listed after 100 vain tries, and what is left of it is given in random order to its end; a larger one counts
    as exhausted after 10,000. A space that accepts nothing is refused here, before anything runs.
    """

    def __init__(self, root: SpacePart, seed: int) -> None:
        self.root = root
        self._seed = seed
        self._seen: set[object] = set()
        total = size(root)
        self._listed = total is not None and total <= LISTED
        self._total = total
        self._rest: list[Decisions] | None = None
        self._probe()

    def accept(self, decisions: Decisions) -> DrawnConfig | None:
        """Return the config of the decisions and remember it; None if it is refused or was given before."""
        try:
            config = build(self.root, decisions)
        except ConfigRefusedError:
            return None
        mark = identity(config)
        if mark in self._seen:
            return None
        self._seen.add(mark)
        return DrawnConfig(config, decisions)

    def draw(self, points: Callable[[int], Choose]) -> DrawnConfig | None:
        """Return the first fresh config among the points by number of attempt; None if nothing is left."""
        if self._total is not None and len(self._seen) >= self._total:
            return None
        if self._rest is None:
            for attempt in range(_TRIES_IF_LISTED if self._listed else _TRIES):
                drawn = self.accept(decide(self.root, points(attempt)))
                if drawn is not None:
                    return drawn
            self._rest = self._list() if self._listed else []
        while self._rest:
            drawn = self.accept(self._rest.pop())
            if drawn is not None:
                return drawn
        return None

    def _list(self) -> list[Decisions]:
        ways = list(combinations(self.root))
        order = sorted(range(len(ways)), key=lambda way: share(self._seed, "rest", way))
        return [ways[way] for way in order]

    def _probe(self) -> None:
        ways = combinations(self.root) if self._listed else self._samples()
        refusal = ""
        tried = 0
        for tried, decisions in enumerate(ways, start=1):  # noqa: B007 counted for the message
            try:
                build(self.root, decisions)
                return
            except ConfigRefusedError as error:
                refusal = str(error)
        raise all_refused(tried, refusal)

    def _samples(self) -> Iterator[Decisions]:
        for attempt in range(_TRIES):
            yield decide(self.root, at(partial(self._anywhere, attempt)))

    def _anywhere(self, attempt: int, parameter: Parameter) -> float:
        return share(self._seed, "probe", parameter.path, attempt)


def all_refused(tried: int, refusal: str) -> SpaceError:
    """Return the error of a space in which nothing was accepted, with the last refusal as an example."""
    return SpaceError(
        f"space: all {tried:,} configs that were tried are refused, the last because {refusal}; expected that some "
        "are accepted"
    )


def at(coordinate: Callable[[Parameter], float]) -> Choose:
    """Return what decides by a number from 0 to 1 for every parameter."""
    return lambda parameter: parameter.at(coordinate(parameter))


def combinations(root: SpacePart) -> Iterator[Decisions]:
    """Yield every way to decide, the last parameter changing fastest; every count must be finite."""
    way: list[int] = []
    counts: list[int] = []

    def choose(parameter: Parameter) -> float:
        assert parameter.count is not None, f"{parameter.path} has no end of values"
        place = len(counts)
        counts.append(parameter.count)
        if place == len(way):
            way.append(0)
        return way[place]

    for _ in count():
        counts.clear()
        yield decide(root, choose)
        while way and way[-1] + 1 == counts[len(way) - 1]:
            way.pop()
        if not way:
            return
        way[-1] += 1
