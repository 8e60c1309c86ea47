"""The interface between Hoptree and a framework: build, train, evaluate, dump and load."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
import numpy as np

from hoptree.core.layouts import DATA, SINGLE
from hoptree.core.lineage import Values
from hoptree.core.schedules import Scalar
from hoptree.identity.platform import machine_platform, processor_kind
from hoptree.trainers.gang import GangMember, ModelPlacement

Columns: TypeAlias = Mapping[str, np.ndarray[Any, Any]]  # a partition, or validation data: equal lengths
Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]


class UnitSpec(msgspec.Struct, frozen=True):
    """The inputs of one unit: nothing else may affect training, so that equal units give equal bits.

    ``seed`` is derived from the lineage. ``shuffle_seed`` permutes the examples, and depends only on the study's
    seed, the epoch and the partition.
    """

    values: Values
    unit: int
    partitions: int
    partition: int
    seed: int
    shuffle_seed: int

    def progress(self, step: int, steps: int) -> float:
        """Return the progress of training, in epochs, at a step of the unit."""
        return (self.unit + step / steps) / self.partitions

    def at(self, step: int, steps: int) -> dict[str, Scalar]:
        """Return the value of every hyper-parameter at a step of the unit."""
        return self.values.at(self.progress(step, steps))


class ModelState(msgspec.Struct, frozen=True):
    """Everything needed to resume training: named arrays, and JSON (numbers, strings, lists, dictionaries)."""

    arrays: Arrays
    meta: dict[str, Any]


class Trainer(ABC):
    """Trains models of one kind. A model is whatever ``build`` returns; only the trainer looks inside it."""

    threads: int = 1  # part of the fingerprint: another number gives different bits
    device: str = ""  # "cpu", "cuda" or "auto" (resolved in workers); "": not known to Hoptree
    shards: int = 1  # how many workers can train a unit together at most; part of the fingerprint
    # How workers hold a model is not in the fingerprint, as it never changes bits. None, "auto": Hoptree chooses.
    layout: str = "auto"  # or a kind: "single", "data", "sharded", "pipeline"
    offload: bool | None = None  # whether parameters that are not in use are outside the device's memory
    checkpoint: bool | None = None  # whether activations are computed again instead of being kept

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of the user's code that ignores edits without an effect, such as comments."""

    @property
    def fingerprint_parts(self) -> dict[str, str]:
        """The parts of the fingerprint by name, to explain why it differs on another machine."""
        return {}

    def platform(self) -> dict[str, str]:
        """Return everything else that affects bits in this process, by name; it is part of the keys of states.

        It is called in workers. A trainer for a framework adds the framework's build and settings.
        """
        return {**machine_platform(), "numpy": np.__version__}

    def check_machine(self) -> None:  # noqa: B027 most trainers run anywhere
        """Raise ``RefusedError`` if this process lacks, say, a GPU; workers call it before training."""

    @abstractmethod
    def build(self, values: Mapping[str, Scalar], seed: int) -> Any:
        """Return an untrained model for the values at the start of training, initialized with the seed."""

    def build_part(self, values: Mapping[str, Scalar], seed: int, placement: ModelPlacement) -> Any:
        """Return an untrained model as one worker of a layout holds it; by default the whole model.

        A model with the layout ``single`` and its options is trained by ``train``, evaluated, dumped and loaded
        like a model of ``build``; with ``offload`` it needs little private memory.
        Before ``train_together`` returns, the worker with rank 0 has the whole model again, so that it can be
        dumped and evaluated; the others need to have only the parts that they will train.
        """
        return self.build(values, seed)

    def layout_kinds(self, model: Any) -> dict[str, str]:
        """Return each kind of layout that the trainer knows, with "" or why this model cannot use it, with the fix.

        By default a worker trains the whole model, and with shards several workers train copies of it.
        """
        return {SINGLE: "", DATA: ""} if self.shards > 1 else {SINGLE: ""}

    def can_offload(self, model: Any) -> str:
        """Return "" if ``build_part`` can keep parameters and optimizer state outside memory, else why not."""
        return f"{type(self).__name__} has no offload"

    def can_checkpoint(self, model: Any) -> str:
        """Return "" if activations can be computed again instead of being kept, else why not."""
        return f"{type(self).__name__} has no activation checkpointing"

    @abstractmethod
    def train(self, model: Any, data: Columns, unit: UnitSpec) -> None:
        """Train the model in place for one pass over a partition."""

    def device_kind(self) -> str:
        """Return the kind of device that this process computes on; times measured on one kind hold for it only."""
        return processor_kind()

    def architecture(self, model: Any, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the values that time and memory of a trained model depend on; by default all of them."""
        return dict(values)

    def open_rendezvous(self, host: str) -> str:
        """Return an address at ``host`` where the workers of a gang that this one leads find each other.

        It is called once in each worker if ``shards`` is above 1, and comes back as ``GangMember.rendezvous``.
        """
        return ""

    def leave_gang(self, name: str) -> None:  # noqa: B027 only trainers with shards need it
        """Let ``train_together`` of this gang, in another thread, raise ``GangError`` if it waits for workers."""

    def train_together(self, model: Any, data: Columns, unit: UnitSpec, gang: GangMember) -> None:
        """Train as one of several workers, which hold the model by ``gang.layout``, to the same bits as ``train``.

        Raise ``GangError`` if another worker of the gang is lost. Required only if ``shards`` is above 1.
        """
        raise NotImplementedError(f"{type(self).__name__} has {self.shards} shards, but no train_together")

    @abstractmethod
    def evaluate(self, model: Any, data: Columns, values: Mapping[str, Scalar]) -> dict[str, float]:
        """Return metrics on validation data; leave the model and all random generators unchanged."""

    @abstractmethod
    def dump(self, model: Any) -> ModelState:
        """Return the model's state; the arrays may share memory with the model until it trains again."""

    @abstractmethod
    def load(self, model: Any, state: ModelState) -> None:
        """Load a state in place into a model that was built for the same values."""

    def unread(self, model: Any, values: Mapping[str, Scalar]) -> list[str]:
        """Return the names that nothing has read since the model was built: they may be misspelt."""
        return []

    def examine(self, model: Any, data: Columns) -> None:
        """Raise an error in rehearsal for a mistake that would train without an error; by default do nothing."""
        return

    def check_values(self, model: Any, values: Mapping[str, Scalar]) -> None:  # noqa: B027 most trainers accept all
        """Raise ``TrainerError`` if a model that is already built cannot continue with these values.

        Called before training, with a temporary model, for every change of a schedule.
        """

    def hidden_state(self, model: Any) -> Mapping[str, str]:
        """Return digests of everything in a model object, by name: the hop test names what a state lacks.

        The default walks the object's attributes. Override it only for content that attributes do not reach.
        """
        from hoptree.trainers.model_contents import digest, leaves

        return {name: digest(value) for name, value in leaves(model, "model")}

    def memory(self, model: Any) -> Mapping[str, int]:
        """Return the addresses of a model's arrays, by name; the hop test uses them to find shared memory."""
        from hoptree.trainers.model_contents import address, leaves

        addresses = ((name, address(value)) for name, value in leaves(model, "model"))
        return {name: start for name, start in addresses if start is not None}

    def export(self, model: Any) -> Any:
        """Return the trained model for the user: for torch, the module."""
        return model
