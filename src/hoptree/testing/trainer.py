"""The contract of a trainer, as tests: an implementer gets them for one fixture.

    import pytest
    from hoptree.testing import TrainerContract

    class TestMine(TrainerContract):
        config = {"lr": 0.1}

        @pytest.fixture
        def trainer(self):
            return Mine()

A unit has to be a pure function of state, data, values and seeds; each test shows one way in which it is not.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from hoptree.backends.trainer_pickle import pickle_trainer
from hoptree.core.keys import seed as seed_for
from hoptree.core.keys import shuffle_seed
from hoptree.core.lineage import beginning, history, segments
from hoptree.core.schedules import Config
from hoptree.store import FolderStates
from hoptree.trainers.base import Columns, ModelState, Trainer, UnitSpec
from hoptree.trainers.rehearsal import rehearsed

_SEED = 7
_LOAD = "import pickle, sys; sys.path = {path!r}; print(pickle.load(sys.stdin.buffer).fingerprint)"


def example_columns(rows: int, seed: int) -> Columns:
    """Return a column ``x`` of 8 numbers and a column ``y`` of classes 0 to 2 that follow from x."""
    x = np.random.default_rng(seed).normal(size=(rows, 8)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)
    return {"x": x, "y": y}


class TrainerContract:
    """The contract of every trainer; a subclass defines the fixture ``trainer`` and may set attributes below."""

    config: ClassVar[Config] = {"lr": 0.05}
    """The hyper-parameters, which may be schedules."""

    partitions: ClassVar[Sequence[Columns]] = (example_columns(40, 0), example_columns(40, 1))
    """The training data, as columns of equal length."""

    valid: ClassVar[Columns] = example_columns(24, 2)
    """The validation data."""

    units = 4
    """How many units a test trains."""

    def test_a_state_is_arrays_and_json(self, trainer: Trainer) -> None:
        """A store can write and read it exactly: it has no pickles and no types of a framework."""
        model = self._trained(trainer, self.units)
        state = trainer.dump(model)
        assert isinstance(state, ModelState), f"dump returned {type(state).__name__}, expected ModelState"
        for name, array in state.arrays.items():
            given = f"arrays[{name!r}]: {type(array).__name__}"
            assert type(array) in (np.ndarray, np.memmap), f"{given}; expected a plain numpy array"
        with tempfile.TemporaryDirectory() as folder:
            states = FolderStates(folder, durable=False)
            states.put("state", state.arrays, state.meta)
            same(ModelState(*states.get("state")), state, "the state that a store gave back")

    def test_training_changes_the_state(self, trainer: Trainer) -> None:
        """What dump leaves out is lost between two units."""
        model = self._build(trainer)
        before = copied(trainer.dump(model))
        self._train(trainer, model, range(self.units))
        assert not equal(before, trainer.dump(model)), "dump returns the same before and after training"

    def test_the_same_seeds_give_the_same_bits(self, trainer: Trainer) -> None:
        """Whatever the state of global generators, and whatever was built and trained before."""
        runs = []
        for seed in (1, 2):
            with _global_generators(seed):
                model = self._build(trainer)
                untrained = copied(trainer.dump(model))
                self._train(trainer, model, range(self.units))
                runs.append((untrained, copied(trainer.dump(model))))
        same(runs[1][0], runs[0][0], "a second model that was built from the same values and seed")
        same(runs[1][1], runs[0][1], "a second model that was trained with the same seeds")

    def test_a_loaded_state_is_dumped_again(self, trainer: Trainer) -> None:
        """Load works in place, on a model that was built with the same values, whatever its state."""
        state = copied(trainer.dump(self._trained(trainer, self.units)))
        for used in (False, True):
            model = self._build(trainer, seed=_SEED + 1)
            if used:
                self._train(trainer, model, range(1))
            assert trainer.load(model, state) is None, "load returned something; it loads in place"
            same(trainer.dump(model), state, "the state of a model that it was loaded into")

    def test_a_loaded_state_is_copied(self, trainer: Trainer) -> None:
        """The memory of a state is used again for the next one as soon as it is loaded, and cannot be written."""
        state = copied(trainer.dump(self._trained(trainer, self.units)))
        given = copied(state)
        model = self._build(trainer, seed=_SEED + 1)
        trainer.load(model, given)
        for array in given.arrays.values():
            array.flags.writeable = True
            array.view(np.uint8 if array.ndim else array.dtype)[...] = 1
        same(
            trainer.dump(model), state, "the state of a model, after the arrays that were loaded were overwritten,"
        )

    def test_a_hop_changes_no_bit(self, trainer: Trainer) -> None:
        """Train, dump, load into another model, continue: the same as training without interruption."""
        straight = copied(trainer.dump(self._trained(trainer, self.units)))
        model = self._build(trainer)
        for unit in range(self.units):
            self._train(trainer, model, [unit])
            state = copied(trainer.dump(model))
            model = self._build(trainer, seed=_SEED + 1)
            trainer.load(model, state)
        same(trainer.dump(model), straight, f"a model that hopped after each of {self.units} units")

    def test_a_state_can_be_trained_again(self, trainer: Trainer) -> None:
        """A cached model is reset to an earlier state: nothing of later training is left in it."""
        model = self._trained(trainer, 1)
        early = copied(trainer.dump(model))
        self._train(trainer, model, range(1, self.units))
        late = copied(trainer.dump(model))
        trainer.load(model, early)
        self._train(trainer, model, range(1, self.units))
        same(trainer.dump(model), late, "a model that was set back and trained again")

    def test_another_model_in_between_changes_nothing(self, trainer: Trainer) -> None:
        """A worker trains many models in turn; they share no module, optimizer or buffer."""
        straight = copied(trainer.dump(self._trained(trainer, self.units)))
        model, other = self._build(trainer), self._build(trainer, seed=_SEED + 1)
        for unit in range(self.units):
            self._train(trainer, model, [unit])
            self._train(trainer, other, [unit], seed=_SEED + 1)
            trainer.evaluate(other, self._read_only(self.valid), self._values(unit + 1))
        same(trainer.dump(model), straight, "a model that was trained in turn with another one")

    def test_it_passes_the_hop_test_of_a_rehearsal(self, trainer: Trainer) -> None:
        """The check that every run does before training: with a hop, and with another model in between."""
        values, last = beginning(self.config), self._values(self.units)
        train, valid = self._read_only(self.partitions[0]), self._read_only(self.valid)
        probes = {rehearsed(trainer, values, train, valid, last).probe for _ in range(2)}
        assert len(probes) == 1, "two rehearsals give other bits"

    def test_evaluation_changes_nothing(self, trainer: Trainer) -> None:
        """It changes neither the model, nor later training, nor a generator; and it is repeatable."""
        straight = copied(trainer.dump(self._trained(trainer, self.units)))
        model = self._trained(trainer, 1)
        before = copied(trainer.dump(model))
        generators = _generator_states()
        metrics = [trainer.evaluate(model, self._read_only(self.valid), self._values(1)) for _ in range(2)]
        assert _generator_states() == generators, "evaluate changed the state of a global generator"
        assert metrics[0] == metrics[1], f"evaluated twice: {metrics[0]}, then {metrics[1]}"
        same(trainer.dump(model), before, "a model that was evaluated")
        self._train(trainer, model, range(1, self.units))
        same(trainer.dump(model), straight, "a model that was evaluated between two units")

    def test_metrics_are_numbers_of_the_state(self, trainer: Trainer) -> None:
        """By name; a model that the state was loaded into has the same."""
        model = self._trained(trainer, self.units)
        values, valid = self._values(self.units), self._read_only(self.valid)
        metrics = trainer.evaluate(model, valid, values)
        assert metrics, "evaluate returned no metrics"
        for name, value in metrics.items():
            assert isinstance(name, str), f"metrics: the name {name!r}; expected a text"
            assert isinstance(value, int | float), f"metrics[{name!r}]: {value!r}; expected a number"
        other = self._build(trainer, seed=_SEED + 1)
        trainer.load(other, copied(trainer.dump(model)))
        found = trainer.evaluate(other, valid, values)
        assert found == metrics, f"after a hop the metrics are {found}, before it was {metrics}"

    def test_training_leaves_global_generators_alone(self, trainer: Trainer) -> None:
        """Other code of the process uses them; randomness in a unit must come from its seeds."""
        generators = _generator_states()
        self._trained(trainer, self.units)
        assert _generator_states() == generators, "build or train changed the state of a global generator"

    def test_the_fingerprint_is_the_same_in_every_process(self, trainer: Trainer) -> None:
        """It identifies the training; a worker unpickles the trainer and computes the same fingerprint."""
        command = [sys.executable, "-c", _LOAD.format(path=sys.path)]
        assert trainer.fingerprint == trainer.fingerprint, "two looks at the fingerprint differ"
        assert isinstance(trainer.fingerprint, str), f"the fingerprint is {trainer.fingerprint!r}, no text"
        assert trainer.fingerprint, "the fingerprint is empty"
        environment = os.environ | {"PYTHONHASHSEED": "1"}  # reveals a dependence on the order of sets
        sent = pickle_trainer(trainer)
        done = subprocess.run(command, input=sent, capture_output=True, env=environment, check=False)  # noqa: S603
        found = done.stdout.decode().strip()
        assert not done.returncode, f"it cannot be loaded in another process: {done.stderr.decode()[-2000:]}"
        assert found == trainer.fingerprint, f"another process has {found!r}, this one {trainer.fingerprint!r}"

    # --- inside -----------------------------------------------------------------------------------------

    def _values(self, unit: int) -> dict[str, Any]:
        count = len(self.partitions)
        return segments(history(self.config), count, unit + 1)[-1].values.at(unit / count)

    def _build(self, trainer: Trainer, seed: int = _SEED) -> Any:
        return trainer.build(beginning(self.config), seed_for("build", seed))

    def _trained(self, trainer: Trainer, units: int) -> Any:
        model = self._build(trainer)
        self._train(trainer, model, range(units))
        return model

    def _train(self, trainer: Trainer, model: Any, units: Sequence[int], seed: int = _SEED) -> None:
        for number in units:
            count = len(self.partitions)
            epoch, partition = divmod(number, count)
            values = segments(history(self.config), count, number + 1)[-1].values
            shuffle = shuffle_seed(seed, epoch, partition)
            unit = UnitSpec(values, number, count, partition, seed_for("unit", seed, number), shuffle)
            trainer.train(model, self._read_only(self.partitions[partition]), unit)

    def _read_only(self, columns: Columns) -> Columns:
        """Return columns as a memory map gives them, the same objects every time."""
        for column in columns.values():
            column.flags.writeable = False
        return columns


def copied(state: ModelState) -> ModelState:
    """Return a state as another process would get it: in other memory, read-only."""
    arrays = {name: array.copy() for name, array in state.arrays.items()}
    for array in arrays.values():
        array.flags.writeable = False
    return ModelState(arrays, dict(state.meta))


def equal(one: ModelState, two: ModelState) -> bool:
    """Return whether two states have the same bits and the same meta."""
    return not _differences(one, two)


def same(found: ModelState, expected: ModelState, what: str) -> None:
    """Fail with what differs, unless two states have the same bits and the same meta."""
    differences = _differences(found, expected)
    assert not differences, f"{what} differs in {', '.join(differences[:5])}"


def _differences(one: ModelState, two: ModelState) -> list[str]:
    names = sorted(one.arrays.keys() | two.arrays.keys())
    arrays = [name for name in names if _bits(one.arrays, name) != _bits(two.arrays, name)]
    metas = sorted(one.meta.keys() | two.meta.keys())
    return [
        *(f"arrays[{name!r}]" for name in arrays),
        *(f"meta[{name!r}]" for name in metas if one.meta.get(name) != two.meta.get(name)),
    ]


def _bits(arrays: Mapping[str, np.ndarray[Any, Any]], name: str) -> object:
    array = arrays.get(name)
    return None if array is None else (array.dtype, array.shape, array.tobytes())


class _global_generators:  # noqa: N801 it is used like a function
    """Seed the global generators within a context, and restore them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        self._before = random.getstate(), np.random.get_state(), torch and torch.get_rng_state()
        random.seed(self._seed)
        np.random.seed(self._seed)
        if torch is not None:
            torch.manual_seed(self._seed)

    def __exit__(self, *_: object) -> None:
        random.setstate(self._before[0])
        np.random.set_state(self._before[1])
        if self._before[2] is not None:
            sys.modules["torch"].set_rng_state(self._before[2])


def _generator_states() -> list[object]:
    torch = sys.modules.get("torch")
    own = [] if torch is None else [torch.get_rng_state().numpy().tobytes()]
    return [random.getstate(), repr(np.random.get_state()), *own]
