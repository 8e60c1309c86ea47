"""The waist between Hoptree and a framework: build, train, evaluate, dump and load."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
import numpy as np

from hoptree.core.lineage import Values
from hoptree.core.schedules import Scalar
from hoptree.identity.platform import machine_platform

Columns: TypeAlias = Mapping[str, np.ndarray[Any, Any]]  # a partition, or validation data: equal lengths
Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]


class UnitSpec(msgspec.Struct, frozen=True):
    """What one unit trains with: nothing else may enter, so that equal units give equal bits.

    ``seed`` follows from the lineage; examples are permuted by ``shuffle_seed``, which depends on the study's
    seed, the epoch and the partition only.
    """

    values: Values
    unit: int
    partitions: int
    partition: int
    seed: int
    shuffle_seed: int

    def progress(self, step: int, steps: int) -> float:
        """Return how far training is, in epochs, at a step of the unit."""
        return (self.unit + step / steps) / self.partitions

    def at(self, step: int, steps: int) -> dict[str, Scalar]:
        """Return every hyper-parameter's value at a step of the unit."""
        return self.values.at(self.progress(step, steps))


class ModelState(msgspec.Struct, frozen=True):
    """All that is needed to go on: named arrays, and a little JSON (numbers, strings, lists, dictionaries)."""

    arrays: Arrays
    meta: dict[str, Any]


class Trainer(ABC):
    """Trains models of one kind. A model is whatever ``build`` returns; only this trainer looks inside it."""

    threads: int = 1  # part of the fingerprint: another number gives other bits

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """What the user's code does, as a hash that survives edits which change nothing."""

    @property
    def fingerprint_parts(self) -> dict[str, str]:
        """What of the fingerprint can be told apart, by name: why another machine has another one."""
        return {}

    def platform(self) -> dict[str, str]:
        """Return what else changes bits where this process runs, by name: it is part of the names of states.

        It is asked in workers. Whoever uses a framework adds its build and settings.
        """
        return {**machine_platform(), "numpy": np.__version__}

    @abstractmethod
    def build(self, values: Mapping[str, Scalar], seed: int) -> Any:
        """Return an untrained model for the values at the beginning of training, seeded."""

    @abstractmethod
    def train(self, model: Any, data: Columns, unit: UnitSpec) -> None:
        """Train the model in place for one pass over a partition."""

    @abstractmethod
    def evaluate(self, model: Any, data: Columns, values: Mapping[str, Scalar]) -> dict[str, float]:
        """Return metrics on validation data; the model and all generators are as before."""

    @abstractmethod
    def dump(self, model: Any) -> ModelState:
        """Return the model's state; arrays may share memory with the model until it trains again."""

    @abstractmethod
    def load(self, model: Any, state: ModelState) -> None:
        """Put a state into a model built for the same values, in place."""

    def unread(self, model: Any, values: Mapping[str, Scalar]) -> list[str]:
        """Return the names that nothing has asked for since the model was built: perhaps they are misspelt."""
        return []

    def examine(self, model: Any, data: Columns) -> None:
        """Refuse in rehearsal what would train without an error, and cannot be meant; nothing by default."""
        return

    def check_values(self, model: Any, values: Mapping[str, Scalar]) -> None:  # noqa: B027 most have nothing to say
        """Raise ``TrainerError`` if a model that is built cannot be trained on with these values.

        Called before anything is trained, with a model that is thrown away, for every change of a schedule.
        """

    def hidden_state(self, model: Any) -> Mapping[str, str]:
        """Return digests of all that a model object holds, by name; the hop test names what a state lacks with it.

        By default the object is walked; what is found by its attributes alone needs no method of its own.
        """
        from hoptree.trainers.model_contents import digest, leaves

        return {name: digest(value) for name, value in leaves(model, "model")}

    def memory(self, model: Any) -> Mapping[str, int]:
        """Return where the arrays of a model lie in memory, by name: the hop test finds what two models share."""
        from hoptree.trainers.model_contents import address, leaves

        places = ((name, address(value)) for name, value in leaves(model, "model"))
        return {name: place for name, place in places if place is not None}

    def export(self, model: Any) -> Any:
        """Return what a user gets as the trained model: for torch, the module."""
        return model
