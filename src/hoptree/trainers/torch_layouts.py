"""Layouts by name: how the workers of a gang hold a model and compute its gradients.

A layout is one small class; ``register_layout`` adds one. All give the same bits: the shards of a batch, the seeds
of each and the tree that adds them are fixed. A layout decides only who computes what, and where it is meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, final

import torch

from hoptree.core.layouts import DATA, PIPELINE, SHARDED, SINGLE
from hoptree.trainers import torch_sharded, torch_stages
from hoptree.trainers.errors import TrainerError, user_error
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_gradients import GradientPass, UnitContext
from hoptree.trainers.torch_model import TorchModel
from hoptree.trainers.torch_part import EVERY
from hoptree.trainers.torch_pipeline import PipelinePass
from hoptree.trainers.torch_shard_pass import ShardPass


class TorchLayout(Protocol):
    """One way to divide the work on a model, and the model itself."""

    def refusal(self, model: TorchModel, shards: int) -> str:
        """Return "" if the model can be trained so, else why not, and what to do."""

    def owners(self, model: TorchModel, gang: Gang | None, inputs: Sequence[Any]) -> list[int]:
        """Return the rank that holds each parameter (``EVERY``: each worker), the same on all ranks.

        ``inputs`` are a few examples. It is called once for a model, by all ranks.
        """

    def gradients(self, unit: UnitContext) -> GradientPass:
        """Return what computes the gradients of a unit."""


@final
class SingleLayout:
    """One worker computes all shards."""

    def refusal(self, model: TorchModel, shards: int) -> str:
        """Return ""."""
        return ""

    def owners(self, model: TorchModel, gang: Gang | None, inputs: Sequence[Any]) -> list[int]:
        """Let each worker hold all parameters."""
        return [EVERY for _ in model.module.parameters()]

    def gradients(self, unit: UnitContext) -> GradientPass:
        """Compute all shards."""
        return ShardPass(unit)


@final
class DataLayout:
    """Each worker has a copy of the model, and computes some shards of every batch."""

    def refusal(self, model: TorchModel, shards: int) -> str:
        """Refuse a model whose batches have one shard."""
        return "" if shards > 1 else "it needs shards=2 or more, so that several workers can train a unit"

    def owners(self, model: TorchModel, gang: Gang | None, inputs: Sequence[Any]) -> list[int]:
        """Let each worker hold all parameters."""
        return [EVERY for _ in model.module.parameters()]

    def gradients(self, unit: UnitContext) -> GradientPass:
        """Compute the shards of this worker, and exchange the sums."""
        return ShardPass(unit)


@final
class ShardedLayout:
    """Large parameters and their optimizer state are divided; an operation gets the parameters that it uses."""

    def refusal(self, model: TorchModel, shards: int) -> str:
        """Refuse optimizers and layers that need all parameters at a time."""
        return torch_sharded.refusal(model, shards)

    def owners(self, model: TorchModel, gang: Gang | None, inputs: Sequence[Any]) -> list[int]:
        """Divide parameters by size."""
        assert gang is not None
        return torch_sharded.owners(list(model.module.parameters()), gang.size)

    def gradients(self, unit: UnitContext) -> GradientPass:
        """Compute a shard at the same time as the others."""
        assert unit.model.part is not None
        return torch_sharded.ShardedPass(unit, unit.model.part)


@final
class PipelineLayout:
    """Consecutive layers are on consecutive workers."""

    def refusal(self, model: TorchModel, shards: int) -> str:
        """Refuse models whose layers do not simply follow each other."""
        return torch_stages.refusal(model, shards)

    def owners(self, model: TorchModel, gang: Gang | None, inputs: Sequence[Any]) -> list[int]:
        """Let the worker that leads measure the layers, and cut the model by time and memory."""
        assert gang is not None
        found = torch_stages.layers(model.module)
        starts = torch.zeros(gang.size, dtype=torch.int64)
        failed = ""
        if gang.rank == 0:
            try:
                starts = torch.tensor(torch_stages.cut(torch_stages.measure(found, inputs), gang.size))
            except Exception as error:  # the other ranks have to know it
                known = isinstance(error, TrainerError)
                failed = str(
                    error if known else user_error(error, "layout: 'pipeline' called each layer by itself")
                )
        failed = gang.texts(failed)[0]
        if failed:
            raise TrainerError(failed)
        model.stages = gang.gather(starts)[0].tolist()
        return torch_stages.owners(model.module, model.stages)

    def gradients(self, unit: UnitContext) -> GradientPass:
        """Compute the stage of this worker."""
        assert unit.model.part is not None
        return PipelinePass(unit, unit.model.part, unit.model.stages)


_layouts: dict[str, TorchLayout] = {
    SINGLE: SingleLayout(),
    DATA: DataLayout(),
    SHARDED: ShardedLayout(),
    PIPELINE: PipelineLayout(),
}


def register_layout(name: str, layout: TorchLayout) -> None:
    """Add a layout under a name, or replace one; call it where the trainer is defined, so that workers know it."""
    _layouts[name] = layout


def find_layout(name: str) -> TorchLayout:
    """Return the layout with a name; raise an error that lists the known ones."""
    if name not in _layouts:
        raise TrainerError(f"layout: {name!r} is not registered; expected 'auto' or one of {', '.join(_layouts)}")
    return _layouts[name]


def layout_names() -> list[str]:
    """Return the names of all layouts."""
    return list(_layouts)


def check_layout(name: object, shards: int) -> str:
    """Return the name of a layout, or "auto"; raise an error for one that is not registered or needs shards."""
    if name == "auto":
        return "auto"
    if not isinstance(name, str):
        raise TrainerError(f"layout: {name!r}; expected 'auto' or one of {', '.join(_layouts)}")
    find_layout(name)
    if name != SINGLE and shards == 1:
        raise TrainerError(
            f"layout: {name!r} with shards=1; several workers train a model together by its shards, so give "
            "shards=2 or more, a power of two, or use layout='single'"
        )
    return name


def check_switch(name: str, value: object) -> bool | None:
    """Return a switch, None for "auto"; raise an error for anything else."""
    if value == "auto" or value is True or value is False:
        return None if value == "auto" else bool(value)
    raise TrainerError(f"{name}: {value!r}; expected True, False or 'auto'")
