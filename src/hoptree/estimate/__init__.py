"""What units and evaluations take, learned from those that were measured."""

from hoptree.estimate.estimator import Estimate, Estimator

__all__ = ["Estimate", "Estimator"]
