"""How short a schedule can be at best."""

from math import fsum

from hoptree.optimize.schedule import Times


def worker_loads(times: Times) -> list[float]:
    """Sum the times of each worker."""
    return [fsum(column) for column in zip(*times, strict=True)]


def config_lengths(times: Times) -> list[float]:
    """Sum the times of each config."""
    return [fsum(row) for row in times]


def load_bound(times: Times) -> float:
    """Take the longest sum of one worker or one config: each does one unit at a time, so none ends sooner."""
    return max(*worker_loads(times), *config_lengths(times))
