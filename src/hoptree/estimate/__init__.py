"""What units and evaluations take, learned from those that were measured."""

from hoptree.estimate.estimator import WIDE, Estimator

__all__ = ["WIDE", "Estimator"]
