"""Lower bounds on the length of a schedule."""

from math import fsum

from hoptree.optimize.schedule import Times


def worker_loads(times: Times) -> list[float]:
    """Sum the times of each worker."""
    return [fsum(column) for column in zip(*times, strict=True)]


def config_lengths(times: Times) -> list[float]:
    """Sum the times of each config."""
    return [fsum(row) for row in times]


def load_bound(times: Times) -> float:
    """Return the largest sum of a worker or a config: each runs one unit at a time, so no schedule is shorter."""
    return max(*worker_loads(times), *config_lengths(times))
