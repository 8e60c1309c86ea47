"""Searches: what to train next, decided from what was reported."""

from hoptree.search.fixed import Fixed
from hoptree.search.protocol import Branch, Decision, Extend, Search, Stop, Train
from hoptree.search.tuner import Tuner

__all__ = ["Branch", "Decision", "Extend", "Fixed", "Search", "Stop", "Train", "Tuner"]
