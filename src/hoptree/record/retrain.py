"""Retraining a trial unit by unit: to verify a stored state, or to restore a lost one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from hoptree.core.errors import StudyChangedError
from hoptree.core.keys import build_seed, shuffle_seed, study_root, unit_seed
from hoptree.core.plan import Trial
from hoptree.core.schedules import Scalar
from hoptree.record.record import Record, TrialUnit

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import ModelState, Trainer, UnitSpec


@final
class Retrainer:
    """Trains trials of a study unit by unit, as a worker would: the result has the same bits."""

    def __init__(self, record: Record, trainer: Trainer, data: Dataset, seed: int) -> None:
        self._record = record
        self.trainer = trainer
        self.data = data
        self._seed = seed

    def beginning(self, trial: Trial) -> tuple[dict[str, Scalar], int]:
        """Return the values and the seed with which a trial's model is built."""
        origin = next(self._record.units(trial)).node.origin
        return origin.values.at(0.0), build_seed(origin.key)

    def untrained(self, trial: Trial) -> Any:
        """Return the initial model of a trial."""
        return self.trainer.build(*self.beginning(trial))

    def has_trained(self, trial: Trial) -> bool:
        """Return whether this code, data and seed trained a trial."""
        return trial.root == study_root(self.trainer.fingerprint, self.data.fingerprint, self._seed)

    def units(self, trial: Trial) -> list[UnitSpec]:
        """Return the units of a trial up to its last report, in order."""
        return [self._spec(unit) for unit in self._record.units(trial)]

    def train(self, trial: Trial, states: StateStore) -> tuple[Any, ModelState]:
        """Train a trial in this process up to its last report, and return its model and state.

        It resumes from the last stored state of the trial. Raise an error if the trial has other code, data or
        seed: the result would not be the missing state.
        """
        from hoptree.store.errors import StateDamagedError, StateMissingError
        from hoptree.trainers.base import ModelState

        if not self.has_trained(trial):
            raise StudyChangedError(
                f"trial {trial.number}: its state is missing, and this program has other code, data or seed than "
                "those that trained it; restore what trained it, or train it again as a new study"
            )
        model = self.untrained(trial)
        rest: list[TrialUnit] = []
        for unit in reversed(list(self._record.units(trial))):
            key = unit.node.state_key(unit.number + 1)
            if key in states:
                try:
                    self.trainer.load(model, ModelState(*states.get(key)))
                    break
                except (StateDamagedError, StateMissingError):
                    states.delete(key)
            rest.append(unit)
        for unit in reversed(rest):
            self.trainer.train(model, self.data.partition(unit.partition), self._spec(unit))
        return model, self.trainer.dump(model)

    def _spec(self, unit: TrialUnit) -> UnitSpec:
        from hoptree.trainers.base import UnitSpec

        partitions = self.data.partitions
        return UnitSpec(
            unit.node.values,
            unit.number,
            partitions,
            unit.partition,
            unit_seed(unit.node.key, unit.number),
            shuffle_seed(self._seed, unit.number // partitions, unit.partition),
        )
