"""Mirrors show a study in other programs: in an Optuna storage for optuna-dashboard, or in Weights & Biases."""

from hoptree.mirror.live import LiveMirror
from hoptree.mirror.optuna_mirror import OptunaMirror
from hoptree.mirror.protocol import Mirror
from hoptree.mirror.trial_snapshot import TrialSnapshot, shown_trials, timed
from hoptree.mirror.wandb_mirror import WandB, WandbMirror

__all__ = ["LiveMirror", "Mirror", "OptunaMirror", "TrialSnapshot", "WandB", "WandbMirror", "shown_trials", "timed"]
