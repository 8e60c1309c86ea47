"""Exact and approximate schedulers of one epoch: every config visits every worker, one at a time (open shop).

No study uses them: they solve one epoch whose times are known beforehand. They are there to measure the engine's
decisions, and a simulation takes their schedules as its policy.

>>> from hoptree.optimize import solve
>>> solve([[3, 1, 1], [1, 3, 1], [1, 1, 3]], method="longest-path").makespan
5.0
"""

from hoptree.optimize.solution import Solution
from hoptree.optimize.solve import lower_bound, solve

__all__ = ["Solution", "lower_bound", "solve"]
