"""Explore: draw a config near another one, within its space."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import final

from hoptree.core.errors import WorkloadError
from hoptree.core.schedules import Config
from hoptree.search.errors import ConfigRefusedError, SpaceError
from hoptree.search.match_config import decisions_of
from hoptree.search.parse_space import Space, read
from hoptree.search.parsed_parameters import Continuous, Stepped, Whole, index_at
from hoptree.search.streams import share
from hoptree.search.tree import ChoiceNode, Decisions, Parameter, build, decide, parameters

_TRIES = 100  # after so many rejected neighbours the config is kept


@final
class Explorer:
    """Perturbs configs: each parameter is either resampled, or moved a little within its range.

    It works on decisions and not on values, so it also reaches arguments of schedules and parts of a conditional
    space. It retries configs that the space rejects. Every parameter has its own random stream.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        resample: float,
        factors: Sequence[float],
        change: Sequence[str] | None,
    ) -> None:
        self._root = read(space)
        self._seed = seed
        self._resample = resample
        self._factors = factors
        paths = [parameter.path for parameter in parameters(self._root)]
        for name in change or ():
            if not any(_within(path, name) for path in paths):
                searched = ", ".join(sorted({_plain(path) for path in paths})) or "nothing"
                raise SpaceError(f"change: {name!r} is not searched; expected some of {searched}")
        self._fixed = {path for path in paths if change is not None and not any(_within(path, n) for n in change)}

    def changed(self, config: Config, number: int, attempt: int = 0) -> Config:
        """Return a config near another one; it depends only on the seed, the number and the attempt."""
        before = decisions_of(self._root, config)
        if before is None:
            raise WorkloadError(
                f"sampler: it returned {config}, which is not in the space; expected configs of the space"
            )
        for again in range(_TRIES):
            choose = partial(self._choose, before, (number, attempt, again))
            try:
                return build(self._root, decide(self._root, choose))
            except ConfigRefusedError:
                continue
        return config

    def _choose(self, before: Decisions, draw_key: tuple[int, ...], parameter: Parameter) -> float:
        old = before.get(parameter.path)
        if old is not None and parameter.path in self._fixed:
            return old
        draw = partial(share, self._seed, "explore", parameter.path, *draw_key)
        if old is None or draw("whether") < self._resample:
            return parameter.at(draw("where"))
        return self._moved(parameter, old, draw("how"))

    def _moved(self, parameter: Parameter, old: float, at: float) -> float:
        if isinstance(parameter, ChoiceNode):
            near = [index for index in (int(old) - 1, int(old) + 1) if 0 <= index < parameter.count]
            return near[index_at(at, len(near))] if near else old
        factor = self._factors[index_at(at, len(self._factors))]
        number = parameter.value(old) * factor
        if isinstance(parameter, Continuous):
            return min(max(number, parameter.low), parameter.high)
        return _stepped(parameter, int(old), number)


def _stepped(parameter: Stepped | Whole, old: int, number: float) -> int:
    """Return the index nearest to a number; if the number has changed, an index other than the old one."""
    index = round((number - parameter.low) / parameter.step)
    if index == old and number != parameter.value(old):
        index += 1 if number > parameter.value(old) else -1
    return min(max(index, 0), parameter.count - 1)


def _plain(path: str) -> str:
    """Return a path as configs spell names: without the option indices.

    >>> _plain("optimizer[0].momentum")
    'optimizer.momentum'
    """
    return re.sub(r"\[\d+\]", "", path)


def _within(path: str, name: str) -> bool:
    return _plain(path) == name or _plain(path).startswith(f"{name}.")
