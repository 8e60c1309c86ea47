"""Import what the contestants import, so that none of them pays for reading it from disk first."""

from __future__ import annotations

import optuna
import ray.tune
import torch

import hoptree as ht

print(optuna.__version__, ray.__version__, torch.__version__, ht.Study)
