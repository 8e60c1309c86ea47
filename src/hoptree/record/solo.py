"""A trial trained alone, in this process: to verify what was stored, or to get back what was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from hoptree.core.keys import build_seed, shuffle_seed, unit_seed
from hoptree.core.plan import Trial
from hoptree.record.record import Record, Unit

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import ModelState, Trainer


@final
class Soloist:
    """Trains trials of a study unit by unit, as any worker would: the same bits come out."""

    def __init__(self, record: Record, trainer: Trainer, data: Dataset, seed: int) -> None:
        self._record = record
        self.trainer = trainer
        self._data = data
        self._seed = seed

    def untrained(self, trial: Trial) -> Any:
        """Return the model that a trial begins with."""
        origin = next(self._record.units(trial)).node.origin
        return self.trainer.build(origin.values.at(0.0), build_seed(origin.key))

    def train(self, trial: Trial, states: StateStore | None = None) -> tuple[Any, ModelState]:
        """Train a trial up to where it stands, and return its model and state.

        With ``states`` it goes on from the last of its states that is stored, without from the beginning.
        """
        from hoptree.store.errors import StateDamagedError, StateMissingError
        from hoptree.trainers.base import ModelState

        model = self.untrained(trial)
        rest: list[Unit] = []
        for unit in reversed(list(self._record.units(trial))):
            key = unit.node.state_key(unit.number + 1)
            if states is not None and key in states:
                try:
                    self.trainer.load(model, ModelState(*states.get(key)))
                    break
                except (StateDamagedError, StateMissingError):
                    states.delete(key)
            rest.append(unit)
        for unit in reversed(rest):
            self._run(model, unit)
        return model, self.trainer.dump(model)

    def _run(self, model: Any, unit: Unit) -> None:
        from hoptree.trainers.base import UnitSpec

        partitions = self._data.partitions
        spec = UnitSpec(
            unit.node.values,
            unit.number,
            partitions,
            unit.partition,
            unit_seed(unit.node.key, unit.number),
            shuffle_seed(self._seed, unit.number // partitions, unit.partition),
        )
        self.trainer.train(model, self._data.partition(unit.partition), spec)
