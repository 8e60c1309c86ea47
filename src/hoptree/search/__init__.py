"""Search procedures: decide what to train next from what the trials reported."""

from hoptree.core.actions import EndTrial, Report
from hoptree.search.asha import ASHA
from hoptree.search.budget_estimate import BudgetEstimate
from hoptree.search.errors import NoExtensionError
from hoptree.search.fixed import Fixed
from hoptree.search.hyperband import Hyperband
from hoptree.search.jobs import EndedJob, Jobs
from hoptree.search.median_stopping import MedianStopping
from hoptree.search.optuna import Optuna
from hoptree.search.pbt import PBT
from hoptree.search.protocol import Branch, Decision, Extend, Goal, Procedure, Sampler, Search, Stop, Train
from hoptree.search.random import Random
from hoptree.search.sampling import AnySampler, MakesSampler, make_sampler
from hoptree.search.successive_halving import SuccessiveHalving
from hoptree.search.tuner import Tuner
from hoptree.search.widening import EarlierSearch

__all__ = [
    "ASHA",
    "PBT",
    "AnySampler",
    "Branch",
    "BudgetEstimate",
    "Decision",
    "EarlierSearch",
    "EndTrial",
    "EndedJob",
    "Extend",
    "Fixed",
    "Goal",
    "Hyperband",
    "Jobs",
    "MakesSampler",
    "MedianStopping",
    "NoExtensionError",
    "Optuna",
    "Procedure",
    "Random",
    "Report",
    "Sampler",
    "Search",
    "Stop",
    "SuccessiveHalving",
    "Train",
    "Tuner",
    "make_sampler",
]
