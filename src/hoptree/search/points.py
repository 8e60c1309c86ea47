"""Points: where in a space a config is drawn, as a number from 0 to 1 for every parameter.

Three ways to spread them. In all of them a parameter's numbers follow from the seed and its own path, so that
parameters are independent, and one more changes no other. (A Sobol sequence also depends on the order of the
parameters: add new ones at the end.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, final

from hoptree.core.errors import MissingExtraError, WorkloadError
from hoptree.search.streams import share
from hoptree.search.tree import Choose, Parameter, SpacePart, parameters
from hoptree.search.unique_configs import at

if TYPE_CHECKING:
    import numpy as np

_SOBOL_BITS = 30


class Points(Protocol):
    """The points of the configs; a config whose point is refused is given further attempts."""

    def of(self, config: int, attempt: int) -> Choose:
        """Return what decides for a config at an attempt."""
        ...


@final
class RandomPoints:
    """Independent and uniform."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, config: int, attempt: int) -> Choose:
        """Return a point that depends on the arguments alone."""
        return at(lambda parameter: share(self._seed, parameter.path, config, attempt))


@final
class LatinPoints:
    """A Latin hypercube: for every parameter, each of ``count`` equal cells of its range has one config.

    It is made by hand and not by scipy, which draws all parameters from one generator. A point that is refused is
    replaced by a random one.
    """

    def __init__(self, seed: int, count: int | None) -> None:
        if count is None:
            raise WorkloadError(
                "sampler: 'latin-hypercube' without a count; expected the number of configs, as a hypercube is "
                "made for one; use 'sobol' or 'random' where it is not known"
            )
        self._seed = seed
        self._count = count
        self._cells: dict[str, list[int]] = {}
        self._random = RandomPoints(seed)

    def of(self, config: int, attempt: int) -> Choose:
        """Return the config's cells at first, and anything after that."""
        if attempt:
            return self._random.of(config, attempt)
        return at(partial(self._coordinate, config))

    def _coordinate(self, config: int, parameter: Parameter) -> float:
        path = parameter.path
        if path not in self._cells:
            self._cells[path] = sorted(range(self._count), key=lambda cell: share(self._seed, path, "cell", cell))
        return (self._cells[path][config] + share(self._seed, path, config, 0)) / self._count


@final
class SobolPoints:
    """A Sobol sequence (scipy's, unscrambled) under a digital shift: every bit flipped or not, by parameter.

    The shift keeps the evenness and comes from the parameter's own stream; scipy's scrambling would change with
    every parameter that is added. A point that is refused is passed over.
    """

    def __init__(self, root: SpacePart, seed: int) -> None:
        if find_spec("scipy") is None:
            raise MissingExtraError(
                "sampler 'sobol': needs scipy, which is not installed; pip install 'hoptree[sampling]'"
            )
        from scipy.stats import qmc

        self._places = {parameter.path: place for place, parameter in enumerate(parameters(root))}
        self._shifts = {path: int(share(seed, path, "shift") * 2**_SOBOL_BITS) for path in self._places}
        self._draw: Callable[[int], np.ndarray] = qmc.Sobol(
            max(1, len(self._places)), scramble=False, bits=_SOBOL_BITS
        ).random
        self._block = self._draw(64)
        self._before = 0
        self._next = 0

    def of(self, config: int, attempt: int) -> Choose:
        """Return the next point of the sequence."""
        if self._next - self._before == len(self._block):
            self._before = self._next
            self._block = self._draw(self._next)  # as many as before: scipy wants powers of 2
        point = self._block[self._next - self._before]
        self._next += 1
        return at(partial(self._coordinate, point))

    def _coordinate(self, point: np.ndarray, parameter: Parameter) -> float:
        cell = int(point[self._places[parameter.path]] * 2**_SOBOL_BITS)
        return float((cell ^ self._shifts[parameter.path]) / 2**_SOBOL_BITS)
