"""Estimates of the times of units and evaluations, learned from measured ones."""

from hoptree.estimate.estimator import WIDE, Estimator

__all__ = ["WIDE", "Estimator"]
