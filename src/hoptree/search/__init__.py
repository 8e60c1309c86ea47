"""Searches: what to train next, decided from what was reported."""

from hoptree.search.fixed import Fixed
from hoptree.search.protocol import Branch, Decision, Extend, Goal, Procedure, Sampler, Search, Stop, Train
from hoptree.search.tuner import Tuner

__all__ = [
    "Branch",
    "Decision",
    "Extend",
    "Fixed",
    "Goal",
    "Procedure",
    "Sampler",
    "Search",
    "Stop",
    "Train",
    "Tuner",
]
