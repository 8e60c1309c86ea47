"""The two loops over batches: one that trains for a unit, one that collects outputs for metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from hoptree.core.lineage import Values
from hoptree.core.schedules import Scalar
from hoptree.trainers.base import UnitSpec
from hoptree.trainers.errors import Diverged, TrainerError, user_error
from hoptree.trainers.hyper_parameters import batch_size
from hoptree.trainers.torch_batches import Batches
from hoptree.trainers.torch_joined import Joined
from hoptree.trainers.torch_model import TorchModel

Loss = Callable[[Any, Any], Any]


class Recipe(NamedTuple):
    """How a batch becomes a step."""

    loss: Loss
    clip: float | None
    accumulate: int
    autocast: torch.device | None  # where to compute in bfloat16, if at all

    def precision(self) -> AbstractContextManager[Any]:
        """Return the context in which a model is called."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.autocast.type, dtype=torch.bfloat16)


class Step(NamedTuple):
    """One step of the optimizer: the values it is made with, and the examples, batch by batch."""

    values: Mapping[str, Scalar]
    batches: list[tuple[int, int]]


def steps(unit: UnitSpec, examples: int, accumulate: int) -> Iterator[Step]:
    """Yield the steps of a unit; progress within it is counted in examples, so the batch size may change."""
    fixed = constant(unit.values)
    values = unit.at(0, max(examples, 1))
    start = 0
    while start < examples:
        if start and not fixed:
            values = unit.at(start, examples)
        size = batch_size(values)
        stops = range(start + size, start + accumulate * size + 1, size)
        batches = [(stop - size, min(stop, examples)) for stop in stops if stop - size < examples]
        yield Step(values, batches)
        start = batches[-1][1]


def constant(values: Values) -> bool:
    """Return whether no value changes within a unit."""
    return all(len(content) == 1 and getattr(content[0], "kind", "") == "constant" for _, content in values.items)


def train(model: TorchModel, batches: Batches, unit: UnitSpec, recipe: Recipe) -> None:
    """Train for one pass over the batches, in the unit's order."""
    order = np.random.Generator(np.random.PCG64(unit.shuffle_seed)).permutation(batches.length)
    module, optimizer = model.module, model.tuned.optimizer
    module.train()
    optimizer.zero_grad()
    doing, output, target = "batches", None, None
    try:
        for number, step in enumerate(steps(unit, batches.length, recipe.accumulate)):
            model.apply(step.values)
            total = step.batches[-1][1] - step.batches[0][0]
            for start, stop in step.batches:
                inputs, target = batches.take(order[start:stop])
                with recipe.precision():
                    doing, output = "model", None
                    output = module(*inputs)
                    doing = "loss"
                    loss = recipe.loss(output, target)
                _check_loss(loss, number, start, step.values)
                doing = "backward"
                (loss if len(step.batches) == 1 else loss * ((stop - start) / total)).backward()
            if recipe.clip is not None:
                nn.utils.clip_grad_norm_(module.parameters(), recipe.clip)
            doing = "optimizer"
            optimizer.step()
            optimizer.zero_grad()
            doing = "batches"
    except TrainerError:
        raise
    except Exception as error:
        raise user_error(error, explain(doing, output, target, batches)) from None
    finally:
        optimizer.zero_grad()


def outputs(model: TorchModel, batches: Batches, size: int, recipe: Recipe) -> tuple[Any, torch.Tensor]:
    """Return the model's outputs and the targets of all examples, in order, on the CPU."""
    count = -(-batches.length // size)
    collected, targets = Joined(count), Joined(count)
    for start in range(0, batches.length, size):
        inputs, target = batches.take(slice(start, min(start + size, batches.length)))
        try:
            with recipe.precision():
                collected.add(model.module(*inputs))
        except Exception as error:
            raise user_error(error, explain("model", None, target, batches)) from None
        targets.add(target)
    return collected.all(), targets.all()


def explain(doing: str, output: Any, target: Any, batches: Batches) -> str:
    """Say what was given to the user's function that raised."""
    match doing:
        case "model":
            return f"model: it raised this for a batch of {batches.describe()}"
        case "loss":
            return (
                f"loss: it raised this for model output {shape(output)} and target {shape(target)}; "
                "expected shapes and types that the loss accepts"
            )
        case "backward":
            return f"loss: its gradient raised this, for model output {shape(output)} and target {shape(target)}"
        case "optimizer":
            return "optimizer: its step raised this"
    return "batches: reading the data raised this"


def shape(value: Any) -> str:
    """Describe an output or a target.

    >>> shape(torch.zeros(2, 3))
    '(2, 3) float32'
    """
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(shape(part) for part in value)}]"
    return type(value).__name__


def _check_loss(loss: Any, step: int, start: int, values: Mapping[str, Scalar]) -> None:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        given = f"a {type(loss).__name__}"
        if isinstance(loss, torch.Tensor):
            given = f"shape {shape(loss)}" + ("" if loss.requires_grad else ", which depends on no parameter")
        raise TrainerError(
            f"loss: it returned {given}; expected one number as a tensor with a gradient, "
            "for example the mean over the batch"
        )
    if not math.isfinite(value := loss.item()):
        shown = ", ".join(f"{name}={values[name]!r}" for name in sorted(values))
        raise Diverged(
            f"loss: {value} at step {step} of the unit (example {start}), with {shown}; "
            "a smaller learning rate or clip= may help"
        )
