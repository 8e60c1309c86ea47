"""The randomized scheduler of Cerebro's unified scheduler, and its Monte-Carlo averaging.

One config has a whole node at a time, and any idle config may take any free node that it has not visited.
"""

from collections.abc import Sequence
from random import Random
from time import monotonic

from hoptree.optimize.grid import TOLERANCE
from hoptree.optimize.joint.problem import JointGrid, JointProblem
from hoptree.optimize.joint.schedule import Start, Visits, makespan_of, place
from hoptree.optimize.joint.shop import GangShop

ROLLOUTS = 16
"""Random schedules that are tried at every decision."""


def random_order(problem: JointProblem, grid: JointGrid, seed: int) -> list[Start]:
    """Let random pairs of an idle config and a free node start, with the widest option."""
    return _continue(problem, grid, (), Random(seed))


def monte_carlo(problem: JointProblem, grid: JointGrid, bound: float, seconds: float, seed: int) -> Visits:
    """Before every start, complete the schedule at random several times, and follow the best one so far.

    The thesis calls this Monte-Carlo averaging: dry runs from the current point, of which the best is picked.
    """
    deadline, random = monotonic() + seconds, Random(seed)
    order = _continue(problem, grid, (), random)
    best = place(problem, grid, order)
    for done in range(len(order)):
        for _ in range(ROLLOUTS):
            if makespan_of(best) <= bound * (1 + TOLERANCE) or monotonic() >= deadline:
                return best
            tried = _continue(problem, grid, order[:done], random)
            visits = place(problem, grid, tried)
            if makespan_of(visits) < makespan_of(best):
                order, best = tried, visits
    return best


def _continue(problem: JointProblem, grid: JointGrid, begun: Sequence[Start], random: Random) -> list[Start]:
    """Repeat the starts of a randomized schedule, then go on at random."""
    shop = GangShop(problem, grid)
    wide = [[len(options) - 1 for options in row] for row in problem.options]
    done = 0
    while True:
        while done < len(begun) and _fits(shop, begun[done]):
            shop.start(*begun[done])
            done += 1
        while done == len(begun) and (pairs := _eligible(shop, wide)):
            config, node = random.choice(pairs)
            shop.start(config, node, wide[config][node])
        if not shop.wait():
            return shop.order


def _fits(shop: GangShop, start: Start) -> bool:
    config, node, index = start
    return shop.idle[config] and shop.widest(config, node, index) == index


def _eligible(shop: GangShop, wide: list[list[int]]) -> list[tuple[int, int]]:
    return [
        (config, node)
        for node, free in enumerate(shop.free)
        if free
        for config in shop.ready(node)
        if shop.options[config][node][wide[config][node]].width <= free
    ]
