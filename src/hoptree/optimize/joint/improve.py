"""Local search: change the width or the turn of one visit at a time, and keep what makes the schedule no longer."""

from collections.abc import Sequence
from random import Random
from time import monotonic

from hoptree.optimize.joint.problem import JointGrid, JointProblem
from hoptree.optimize.joint.schedule import Start

PLACED_VISITS = 30_000
"""Changes are tried until so many visits have been placed, which takes about 0.1 s."""


def improve(
    problem: JointProblem, grid: JointGrid, order: Sequence[Start], until: float, deadline: float, seed: int
) -> list[Start]:
    """Return an order at most as long as the given one; stop at `until` seconds, the deadline, or after all steps.

    Equal lengths are accepted as well, so the search moves on where many schedules are equally long. Accepting
    longer ones (annealing) gave longer schedules in the same time.
    """
    random = Random(seed)
    best, target = list(order), until / float(grid.tick)
    shortest = _starts(problem, grid, best)[1]
    for _ in range(PLACED_VISITS // len(best) if len(best) > 1 else 0):
        if shortest <= target or monotonic() >= deadline:
            break
        tried = _changed(problem, best, random)
        starts, length = _starts(problem, grid, tried)
        if length <= shortest:
            best = [tried[position] for position in sorted(range(len(tried)), key=starts.__getitem__)]
            shortest = length
    return best


def _changed(problem: JointProblem, order: list[Start], random: Random) -> list[Start]:
    """Give a random visit another option, another turn, or both."""
    tried = list(order)
    position = random.randrange(len(tried))
    config, node, index = tried.pop(position)
    options = len(problem.options[config][node])
    kind = random.random()
    if options > 1 and kind < 0.6:
        index = (index + random.randrange(1, options)) % options
    if kind > 0.3:
        position = random.randrange(len(order))
    tried.insert(position, (config, node, index))
    return tried


def _starts(problem: JointProblem, grid: JointGrid, order: Sequence[Start]) -> tuple[list[int], int]:
    """Start every visit as soon as its config and enough devices are free; return the starts and the makespan."""
    config_free = [0] * len(problem.options)
    device_free = [[0] * count for count in problem.devices]
    starts = []
    for config, node, index in order:
        width = problem.options[config][node][index].width
        free = device_free[node]
        start = max(config_free[config], free[width - 1])
        starts.append(start)
        end = config_free[config] = start + grid.ticks[config][node][index]
        free[:width] = [end] * width
        free.sort()
    return starts, max(config_free)
