"""Progress of a run: statistics of its events, views of its current state, and displays that draw them."""

from hoptree.progress.display import Display, NoDisplay, ProgressReporter, choose_display
from hoptree.progress.remaining import TimeLeft, TimeLeftEstimator
from hoptree.progress.remaining_budget import BudgetTracker
from hoptree.progress.run_stats import RunStats
from hoptree.progress.run_view import RunView, RunViews

__all__ = [
    "BudgetTracker",
    "Display",
    "NoDisplay",
    "ProgressReporter",
    "RunStats",
    "RunView",
    "RunViews",
    "TimeLeft",
    "TimeLeftEstimator",
    "choose_display",
]
