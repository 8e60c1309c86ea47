"""Exact and approximate schedulers of one epoch: every config visits every worker, one at a time (open shop).

`solve_joint` also decides how many devices of a node a visit uses.

No study uses them: they solve one epoch whose times are known beforehand. They are there to measure the engine's
decisions, and a simulation takes their schedules as its policy.

>>> from hoptree.optimize import solve
>>> solve([[3, 1, 1], [1, 3, 1], [1, 1, 3]], method="longest-path").makespan
5.0
"""

from hoptree.optimize.joint import JointSolution, Visit, joint_lower_bound, solve_joint, verify_joint
from hoptree.optimize.solution import Solution
from hoptree.optimize.solve import lower_bound, solve

__all__ = [
    "JointSolution",
    "Solution",
    "Visit",
    "joint_lower_bound",
    "lower_bound",
    "solve",
    "solve_joint",
    "verify_joint",
]
