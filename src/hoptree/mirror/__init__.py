"""A study in an Optuna storage, so that optuna-dashboard shows it."""

from hoptree.mirror.live import LiveMirror
from hoptree.mirror.optuna_mirror import OptunaMirror
from hoptree.mirror.shown import Shown, shown_trials

__all__ = ["LiveMirror", "OptunaMirror", "Shown", "shown_trials"]
