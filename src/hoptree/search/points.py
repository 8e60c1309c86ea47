"""Points: the position of a config in its space, as a number from 0 to 1 for every parameter.

There are three ways to spread the points. In each, the numbers of a parameter depend only on the seed and its own
path, so parameters are independent and adding one changes no other. (A Sobol sequence also depends on the order of
the parameters: add new ones at the end.)
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
    """The points of the configs; a config whose point the space rejects gets further attempts."""

    def of(self, config: int, attempt: int) -> Choose:
        """Return the function that chooses the decisions of a config at an attempt."""
        ...


@final
class RandomPoints:
    """Independent, uniformly distributed points."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, config: int, attempt: int) -> Choose:
        """Return a point that depends only on the arguments."""
        return at(lambda parameter: share(self._seed, parameter.path, config, attempt))


@final
class LatinPoints:
    """A Latin hypercube: for every parameter, each of ``count`` equal cells of its range has one config.

    It does not use scipy's, which draws all parameters from one generator. A rejected point is replaced by a random
    one.
    """

    def __init__(self, seed: int, count: int | None) -> None:
        if count is None:
            raise WorkloadError(
                "sampler: 'latin-hypercube' without a count; expected the number of configs, because a hypercube "
                "is built for a fixed number; use 'sobol' or 'random' if it is not known"
            )
        self._seed = seed
        self._count = count
        self._cells: dict[str, list[int]] = {}
        self._random = RandomPoints(seed)

    def of(self, config: int, attempt: int) -> Choose:
        """Return the config's cells at the first attempt, and a random point after that."""
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
    """A Sobol sequence (scipy's, unscrambled) with a digital shift: each parameter flips its own set of bits.

    The shift keeps the even distribution and comes from the parameter's own stream, while scipy's scrambling would
    change with every added parameter. A rejected point is skipped.
    """

    def __init__(self, root: SpacePart, seed: int) -> None:
        if find_spec("scipy") is None:
            raise MissingExtraError(
                "sampler 'sobol': needs scipy, which is not installed; pip install 'hoptree[sampling]'"
            )
        from scipy.stats import qmc

        self._indices = {parameter.path: index for index, parameter in enumerate(parameters(root))}
        self._shifts = {path: int(share(seed, path, "shift") * 2**_SOBOL_BITS) for path in self._indices}
        self._draw: Callable[[int], np.ndarray] = qmc.Sobol(
            max(1, len(self._indices)), scramble=False, bits=_SOBOL_BITS
        ).random
        self._block = self._draw(64)
        self._before = 0
        self._next = 0

    def of(self, config: int, attempt: int) -> Choose:
        """Return the next point of the sequence."""
        if self._next - self._before == len(self._block):
            self._before = self._next
            self._block = self._draw(self._next)  # double the sequence: scipy requires powers of 2
        point = self._block[self._next - self._before]
        self._next += 1
        return at(partial(self._coordinate, point))

    def _coordinate(self, point: np.ndarray, parameter: Parameter) -> float:
        cell = int(point[self._indices[parameter.path]] * 2**_SOBOL_BITS)
        return float((cell ^ self._shifts[parameter.path]) / 2**_SOBOL_BITS)
