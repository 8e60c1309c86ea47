"""The joint problem: which config visits which node when, and with how many of the node's devices.

Every node holds one partition, so every config visits every node once, in any order and one visit at a time. A
visit holds its devices until it ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any, NamedTuple

from hoptree.core.errors import WorkloadError
from hoptree.optimize.grid import round_down
from hoptree.optimize.parsing import iterate


class Option(NamedTuple):
    """A visit with this many devices takes so long."""

    width: int
    seconds: float


Options = tuple[tuple[tuple[Option, ...], ...], ...]
"""By config and node, from narrow to wide. A wider option is always faster."""


@dataclass(frozen=True, slots=True)
class JointProblem:
    """The devices of every node, and the options of every visit."""

    devices: tuple[int, ...]
    options: Options


@dataclass(frozen=True, slots=True)
class JointGrid:
    """The seconds of all options, rounded down to whole ticks, in the shape of the options."""

    ticks: tuple[tuple[tuple[int, ...], ...], ...]
    tick: Fraction
    error: int
    """A sum of distinct visits is never more than this many ticks longer than their rounded sum."""


def grid_of(problem: JointProblem, bound: float) -> JointGrid:
    """Round all seconds down to ticks that are small compared with the lower bound."""
    flat = [option.seconds for row in problem.options for options in row for option in options]
    rounded, tick, error = round_down(flat, bound)
    values = iter(rounded)
    ticks = tuple(tuple(tuple(next(values) for _ in options) for options in row) for row in problem.options)
    return JointGrid(ticks, tick, error)


def parse_joint(times: Any, devices: Any) -> JointProblem:
    """Parse the arguments of `solve_joint`, and keep the options that an optimal schedule may need."""
    counts = parse_devices(devices)
    rows = [_parse_row(f"times[{index}]", row, counts) for index, row in enumerate(iterate("times", times))]
    if not rows:
        raise WorkloadError("times: no rows; expected one row for each config")
    fastest = sum(min(option.seconds for option in options) for row in rows for options in row)
    if not isfinite(fastest * len(rows) * max(counts)):
        raise WorkloadError("times: their sum is not finite; expected smaller times, in a larger unit")
    return JointProblem(counts, tuple(tuple(_useful(options, fastest) for options in row) for row in rows))


def parse_devices(devices: Any) -> tuple[int, ...]:
    """Parse the number of devices of every node."""
    counts = [_parse_count(f"devices[{index}]", count) for index, count in enumerate(iterate("devices", devices))]
    if not counts:
        raise WorkloadError("devices: no nodes; expected the number of devices of each node, for example [4, 2, 2]")
    return tuple(counts)


def _parse_count(name: str, count: Any) -> int:
    if _whole(count) >= 1:
        return _whole(count)
    raise WorkloadError(f"{name}: {count!r}; expected a whole number of devices, at least 1; leave empty nodes out")


def _whole(value: Any) -> int:
    """Return a whole number, of numpy too, as an integer; 0 for everything else."""
    return int(value) if not isinstance(value, bool) and isinstance(value, Integral) else 0


def _parse_row(name: str, row: Any, devices: tuple[int, ...]) -> list[list[Option]]:
    values = list(iterate(name, row))
    if len(values) != len(devices):
        raise WorkloadError(f"{name}: {len(values)} nodes; expected {len(devices)}, as in devices")
    return [_parse_options(f"{name}[{node}]", value, devices[node]) for node, value in enumerate(values)]


def _parse_options(name: str, value: Any, devices: int) -> list[Option]:
    if not isinstance(value, Mapping):
        raise WorkloadError(
            f"{name}: {value!r}; expected a mapping from width to seconds, such as {{1: 20.0, 2: 11.0}}"
        )
    options = [_parse_option(name, width, seconds, devices) for width, seconds in value.items()]
    fitting = sorted(option for option in options if option.seconds < inf)
    if not fitting:
        raise WorkloadError(
            f"{name}: the config fits with no number of devices; expected finite seconds for a width of 1 to "
            f"{devices}; give the node more devices, or leave the config out"
        )
    return fitting


def _parse_option(name: str, width: Any, seconds: Any, devices: int) -> Option:
    count = _whole(width)
    if not 1 <= count <= devices:
        raise WorkloadError(f"{name}: width {width!r}; expected 1 to {devices}, the devices of the node")
    if isinstance(seconds, Real):
        try:
            value = float(seconds)
        except OverflowError:
            value = inf
        if value >= 0:
            return Option(count, value)
    raise WorkloadError(
        f"{name}[{width}]: {seconds!r}; expected seconds >= 0, or infinity if the config does not fit"
    )


def _useful(options: Iterable[Option], fastest: float) -> tuple[Option, ...]:
    """Drop what no optimal schedule needs: options not faster than a narrower one, and those longer than all visits
    one after another. A visit without time holds no device, so its one option is the narrowest of those.
    """
    kept: list[Option] = []
    for option in options:
        if option.seconds <= fastest and (not kept or option.seconds < kept[-1].seconds):
            kept.append(option)
    return tuple(kept) if kept[-1].seconds > 0 else (kept[-1],)
