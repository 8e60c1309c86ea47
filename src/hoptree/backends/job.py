"""What a backend of your own gets: the job that it trains, and the record of settings that opens it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hoptree.backends.protocol import Backend
from hoptree.core.actions import RunUnit
from hoptree.core.keys import shuffle_seed

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer, UnitSpec


@dataclass(frozen=True)
class TrainingJob:
    """What a study hands to the backend that it runs on.

    ``states`` is where states are saved; ``folder`` is the store's, for files of the backend's own; ``workers`` is
    what the user asked for, None if nothing was said. ``begun`` is the study's clock when the run begins: the times
    that ``wait`` returns count on from it.
    """

    study: str
    trainer: Trainer
    dataset: Dataset
    states: StateStore
    folder: Path
    seed: int = 0
    workers: int | None = None
    begun: float = 0.0

    def unit(self, action: RunUnit) -> UnitSpec:
        """Return what the trainer trains a unit with."""
        from hoptree.trainers.base import UnitSpec

        shuffle = shuffle_seed(self.seed, action.epoch, action.partition)
        return UnitSpec(action.values, action.unit, self.dataset.partitions, action.partition, action.seed, shuffle)


class BackendSettings(Protocol):
    """A backend as a user writes it down, such as ``Mine(nodes=4)``: its settings, before it has a job."""

    def open(self, job: TrainingJob) -> Backend:
        """Return a new backend for one run of a study; nothing begins before its ``start``."""
        ...
