"""The dry run: try all rules on the problem, and take the best schedule."""

from itertools import chain
from time import monotonic

from hoptree.optimize.grid import TOLERANCE
from hoptree.optimize.joint.improve import improve
from hoptree.optimize.joint.problem import JointGrid, JointProblem
from hoptree.optimize.joint.randomized import random_order
from hoptree.optimize.joint.rules import follow, rules_of, strict_rotation
from hoptree.optimize.joint.schedule import Visits, makespan_of, order_of, place


def dry_run(problem: JointProblem, grid: JointGrid, bound: float, seconds: float, seed: int) -> Visits:
    """Return the shortest schedule of all rules, after a local search of a tenth of a second.

    No single rule is good for all problems, and all of them together take less than a tenth of a second. One is the
    randomized schedule of `seed`. It ends early when a schedule meets the bound or the time is over.
    """
    deadline = monotonic() + seconds
    best = place(problem, grid, strict_rotation(problem))
    ruled = (follow(problem, grid, rule) for rule in rules_of(problem, bound))
    for order in chain([random_order(problem, grid, seed)], ruled):
        best = min(best, place(problem, grid, order), key=makespan_of)
        if makespan_of(best) <= bound * (1 + TOLERANCE) or monotonic() >= deadline:
            return best
    order = improve(problem, grid, order_of(problem, best), bound, deadline, seed)
    return min(best, place(problem, grid, order), key=makespan_of)
