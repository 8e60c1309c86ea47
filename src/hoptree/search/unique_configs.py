"""Unique configs: draw configs that the space accepts and that were not drawn before."""

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
"""Enumerate spaces of up to so many combinations when random draws find nothing new."""

_TRIES = 10_000
_TRIES_IF_LISTED = 100


class DrawnConfig(NamedTuple):
    """A config, and the decisions that led to it."""

    config: Config
    decisions: Decisions


@final
class UniqueConfigs:
    """Draws configs of a space without repetition.

    A draw that is rejected, or equal to an earlier config, is repeated. A space of up to 65,536 combinations is
    enumerated after 100 failed tries, and its remaining configs are returned in random order; a larger one counts
    as exhausted after 10,000 tries. The constructor raises SpaceError for a space that accepts no config.
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
        """Return the config of the decisions and remember it; None if it is rejected or a repetition."""
        try:
            config = build(self.root, decisions)
        except ConfigRefusedError:
            return None
        key = identity(config)
        if key in self._seen:
            return None
        self._seen.add(key)
        return DrawnConfig(config, decisions)

    def draw(self, points: Callable[[int], Choose]) -> DrawnConfig | None:
        """Return the first new config among the points of attempts 0, 1, …; None if there is none left."""
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
        all_decisions = list(combinations(self.root))
        order = sorted(range(len(all_decisions)), key=lambda number: share(self._seed, "rest", number))
        return [all_decisions[number] for number in order]

    def _probe(self) -> None:
        all_decisions = combinations(self.root) if self._listed else self._samples()
        refusal = ""
        tried = 0
        for tried, decisions in enumerate(all_decisions, start=1):  # noqa: B007 counted for the message
            try:
                build(self.root, decisions)
                return
            except ConfigRefusedError as error:
                refusal = str(error)
        raise all_refused(tried, refusal)

    def _samples(self) -> Iterator[Decisions]:
        for attempt in range(_TRIES):
            yield decide(self.root, at(partial(self._random_coordinate, attempt)))

    def _random_coordinate(self, attempt: int, parameter: Parameter) -> float:
        return share(self._seed, "probe", parameter.path, attempt)


def all_refused(tried: int, refusal: str) -> SpaceError:
    """Return the error of a space without a valid config, with the last rejection as an example."""
    return SpaceError(
        f"space: it rejects all {tried:,} configs that were tried, the last because {refusal}; expected a space "
        "that accepts some"
    )


def at(coordinate: Callable[[Parameter], float]) -> Choose:
    """Return the function that decides each parameter by its number from 0 to 1."""
    return lambda parameter: parameter.at(coordinate(parameter))


def combinations(root: SpacePart) -> Iterator[Decisions]:
    """Yield all combinations of decisions; the last parameter changes fastest, and every count must be finite."""
    indices: list[int] = []
    counts: list[int] = []

    def choose(parameter: Parameter) -> float:
        assert parameter.count is not None, f"{parameter.path} has infinitely many values"
        position = len(counts)
        counts.append(parameter.count)
        if position == len(indices):
            indices.append(0)
        return indices[position]

    for _ in count():
        counts.clear()
        yield decide(root, choose)
        while indices and indices[-1] + 1 == counts[len(indices) - 1]:
            indices.pop()
        if not indices:
            return
        indices[-1] += 1
