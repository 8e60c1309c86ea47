"""What a custom backend implements and receives: its settings, and the job that it trains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hoptree.backends.protocol import Backend
from hoptree.core.actions import RunUnit
from hoptree.core.keys import shuffle_seed

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.elastic.instance import Instance
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer, UnitSpec


@dataclass(frozen=True)
class TrainingJob:
    """What a study passes to the backend that it runs on.

    ``states`` is where states are saved; ``folder`` is the store's folder, for files of the backend's own;
    ``workers`` is the number that the user asked for, None if not given. ``begun`` is the study's clock when the
    run begins: the times that ``wait`` returns continue from it. ``memory_per_worker`` is the limit that the user
    asked for, in bytes; 0 if not given. ``instance`` is the type of its nodes, if those are paid for.
    """

    study: str
    trainer: Trainer
    dataset: Dataset
    states: StateStore
    folder: Path
    seed: int = 0
    workers: int | None = None
    begun: float = 0.0
    memory_per_worker: int = 0
    instance: Instance | None = None

    def unit(self, action: RunUnit) -> UnitSpec:
        """Return the arguments with which the trainer trains a unit."""
        from hoptree.trainers.base import UnitSpec

        shuffle = shuffle_seed(self.seed, action.epoch, action.partition)
        return UnitSpec(action.values, action.unit, self.dataset.partitions, action.partition, action.seed, shuffle)


class BackendSettings(Protocol):
    """The settings of a backend, such as ``Mine(nodes=4)``, before it has a job."""

    def open(self, job: TrainingJob) -> Backend:
        """Return a new backend for one run of a study; it does nothing before its ``start``."""
        ...
