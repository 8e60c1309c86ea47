"""The ticks and the unit of a time axis."""

import itertools
from collections.abc import Iterator

import msgspec


class Axis(msgspec.Struct, frozen=True):
    """Ticks from 0 to at most the makespan: their positions in `seconds`, and `labels` without the unit."""

    unit: str
    seconds: tuple[float, ...]
    labels: tuple[str, ...]


def time_axis(makespan: float, at_most: int) -> Axis:
    """Return at most ``at_most`` round steps, in a unit that suits the makespan.

    >>> time_axis(45, at_most=5).labels, time_axis(45, at_most=5).unit
    (('0', '10', '20', '30', '40'), 's')
    >>> time_axis(86400, at_most=8).labels, time_axis(86400, at_most=8).unit
    (('0', '3', '6', '9', '12', '15', '18', '21', '24'), 'h')
    """
    unit, length = _unit(makespan)
    if not makespan:
        return Axis(unit, (0.0,), ("0",))
    total = makespan / length
    step = next(step for step in _steps(unit) if step * max(1, at_most) >= total)
    # Rounding must not lose the last tick of a makespan that is a whole number of steps.
    ticks = [i * step for i in range(int(total / step + 1e-9) + 1)]
    return Axis(unit, tuple(tick * length for tick in ticks), tuple(f"{tick:.10g}" for tick in ticks))


def _unit(makespan: float) -> tuple[str, float]:
    if 0 < makespan < 1:
        return "ms", 1e-3
    if makespan < 120:
        return "s", 1.0
    return ("min", 60.0) if makespan < 7200 else ("h", 3600.0)


def _steps(unit: str) -> Iterator[float]:
    """Yield round steps in increasing order, without end; those of minutes and hours follow the clock."""
    match unit:
        case "min":
            yield from (0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120)
        case "h":
            yield from (0.25, 0.5, 1, 2, 3, 6, 12, 24)
            yield from (24.0 * digit * 10**power for power in itertools.count() for digit in (2, 5, 10))
        case _:
            yield from (digit * 10.0**power for power in itertools.count(-12) for digit in (1, 2, 5))
