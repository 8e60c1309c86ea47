"""The two loops over batches: one trains for a unit, one collects outputs for metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import nn

from hoptree.core.layouts import SINGLE
from hoptree.core.lineage import Values
from hoptree.core.schedules import Scalar
from hoptree.trainers.base import UnitSpec
from hoptree.trainers.errors import Diverged, GangError, TrainerError, user_error
from hoptree.trainers.hyper_parameters import HyperParameters, batch_size
from hoptree.trainers.torch_batches import Batches
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_gradients import GradientPass, UnitContext
from hoptree.trainers.torch_joined import JoinedOutputs
from hoptree.trainers.torch_model import TorchModel
from hoptree.trainers.torch_offload import clip_apart, step_apart
from hoptree.trainers.torch_placed_unit import prepared
from hoptree.trainers.torch_shared import check_leaves, only_own_parts

Loss = Callable[[Any, Any], Any]


class Recipe(NamedTuple):
    """The settings that turn a batch into a step."""

    loss: Loss
    clip: float | None
    accumulate: int
    autocast: torch.device | None  # where to compute in bfloat16, if at all
    transform: Callable[..., Any] | None = None  # applied to every training batch, with the current values
    shards: int = 1  # of a batch

    def precision(self) -> AbstractContextManager[Any]:
        """Return the context in which a model is called.

        Without a cache: a parameter that is used twice is cast twice, as if its uses were in different blocks.
        """
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.autocast.type, dtype=torch.bfloat16, cache_enabled=False)


class TrainingStep(NamedTuple):
    """One step of the optimizer: its values, and its examples, batch by batch."""

    values: Mapping[str, Scalar]
    batches: list[tuple[int, int]]
    size: int  # of a whole batch
    first: int  # the number of the first batch within the unit


def steps(unit: UnitSpec, examples: int, accumulate: int) -> Iterator[TrainingStep]:
    """Yield the steps of a unit; progress is counted in examples, so the batch size may change within it."""
    fixed = constant(unit.values)
    values = unit.at(0, max(examples, 1))
    start = first = 0
    while start < examples:
        if start and not fixed:
            values = unit.at(start, examples)
        size = batch_size(values)
        stops = range(start + size, start + accumulate * size + 1, size)
        batches = [(stop - size, min(stop, examples)) for stop in stops if stop - size < examples]
        yield TrainingStep(values, batches, size, first)
        start, first = batches[-1][1], first + len(batches)


def constant(values: Values) -> bool:
    """Return whether no value changes within a unit."""
    return all(len(content) == 1 and getattr(content[0], "kind", "") == "constant" for _, content in values.items)


def train(
    model: TorchModel,
    batches: Batches,
    unit: UnitSpec,
    recipe: Recipe,
    gang: Gang | None = None,
    layout: str = SINGLE,
) -> None:
    """Train for one pass over the batches, in the unit's order; a ``gang`` computes the shards of every batch."""
    order = np.random.Generator(np.random.PCG64(unit.shuffle_seed)).permutation(batches.length)
    module = model.module
    module.train()
    clear(model)
    pass_ = PartitionPass(model, batches, order, recipe)
    try:
        with prepared(pass_.context(unit.seed, gang), layout) as pass_.shared:
            for number, step in enumerate(steps(unit, batches.length, recipe.accumulate)):
                model.apply(step.values)
                pass_.take(step, number)
    except (TrainerError, GangError):
        raise
    except Exception as error:
        raise pass_.as_user_error(error) from None
    finally:
        clear(model)


def clear(model: TorchModel) -> None:
    """Drop all gradients, including those of parameters outside the optimizer."""
    model.module.zero_grad(set_to_none=True)
    model.tuned.optimizer.zero_grad()


@final
class PartitionPass:
    """One pass over the batches; it tracks what it is doing, for the message if the user's code raises."""

    def __init__(
        self,
        model: TorchModel,
        batches: Batches,
        order: np.ndarray[Any, Any],
        recipe: Recipe,
    ) -> None:
        self._model, self.module = model, model.module
        self._batches, self._order, self._recipe = batches, order, recipe
        self._doing = "batches"
        self._output: Any = None
        self._target: Any = None
        optimized = {id(each) for group in model.tuned.optimizer.param_groups for each in group["params"]}
        self._others = [each for each in self.module.parameters() if id(each) not in optimized]
        self.shared: GradientPass | None = None  # what computes the gradients if batches are cut into shards

    def context(self, seed: int, gang: Gang | None) -> UnitContext:
        """Return the unit as a layout sees it."""
        return UnitContext(self._model, self._batches, self._recipe.shards, seed, gang, self.as_user_error)

    def take(self, step: TrainingStep, number: int) -> None:
        """Make one step."""
        optimizer, part = self._model.tuned.optimizer, self._model.part
        if self._model.tuned.needs_closure:

            def closure() -> float:
                optimizer.zero_grad()
                loss = self._gradients(step, number)
                self._doing = "optimizer"
                return loss

            self._doing = "optimizer"
            optimizer.step(closure)
        else:
            self._gradients(step, number)
            self._doing = "optimizer"
            if part is not None and part.layout.offload:
                step_apart(optimizer, part)
            else:
                optimizer.step()
        optimizer.zero_grad()
        for parameter in self._others:
            parameter.grad = None
        self._doing = "batches"

    def _gradients(self, step: TrainingStep, number: int) -> float:
        """Compute the gradients of a step's batches, and return the loss over all of them."""
        whole, examples = 0.0, ExamplesOfStep(self, step, number)
        if self.shared is None:
            for start, stop in step.batches:
                whole += examples.backward(start, stop)
        else:
            whole = self.shared.gradients(step.batches, step.size, step.first, examples)
        clip = self._recipe.clip
        if clip is not None:
            self._doing = "clip"
            part = self._model.part
            if self.shared is None and part is not None and part.layout.offload:
                clip_apart(part.parameters, clip)
            elif self.shared is None:
                nn.utils.clip_grad_norm_(self.module.parameters(), clip)
            else:
                self.shared.clip(clip)
        return whole

    def load(self, step: TrainingStep, start: int, stop: int) -> tuple[list[torch.Tensor], Any]:
        """Return the inputs and the target of some examples, transformed."""
        self._doing = "batches"
        inputs, self._target = self._batches.take(self._order[start:stop])
        if self._recipe.transform is not None:
            inputs, self._target = self._transformed(inputs, step)
        return inputs, self._target

    def call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Return the output of the module, or of a part of it."""
        with self._recipe.precision():
            self._doing, self._output = "model", None
            if self._model.inspected:
                self._output = function(*inputs)
            else:
                with only_own_parts(self.module):
                    self._output = function(*inputs)
        return self._output

    def loss(
        self, step: TrainingStep, number: int, start: int, output: Any, target: Any
    ) -> tuple[torch.Tensor, float]:
        """Return the loss of some examples as a tensor and as a number."""
        with self._recipe.precision():
            self._doing = "loss"
            loss = self._recipe.loss(output, target)
        value = _check_loss(loss, number, start, step.values)
        if not self._model.inspected:
            part = self._model.part
            if part is None or (part.layout.is_whole and not part.layout.checkpoint):  # else its graph is not whole
                check_leaves(loss, self.module)
            self._model.inspected = True
        self._doing = "backward"
        return loss, value

    def _transformed(self, inputs: list[torch.Tensor], step: TrainingStep) -> tuple[list[torch.Tensor], Any]:
        self._doing = "transform"
        assert self._recipe.transform is not None
        hp = HyperParameters(step.values, "transform")
        changed = self._recipe.transform(*inputs, self._target, hp)
        self._model.used |= hp.reads
        if not isinstance(changed, tuple | list) or len(changed) != len(inputs) + 1:
            raise TrainerError(
                f"transform: it returned {shape(changed)}; expected the {len(inputs)} inputs and the target, "
                "for example (x, y)"
            )
        return list(changed[:-1]), changed[-1]

    def as_user_error(self, error: Exception) -> TrainerError:
        """Return an error of the user's code with its traceback and an explanation."""
        return error if isinstance(error, TrainerError) else user_error(error, self.explain(error))

    def explain(self, error: Exception) -> str:
        """Return which of the user's functions raised, and what it was given."""
        return explain(self._doing, self._output, self._target, self._batches) + layer_of(error, self.module)


@final
class ExamplesOfStep:
    """The examples of one step, for what computes their gradients."""

    def __init__(self, pass_: PartitionPass, step: TrainingStep, number: int) -> None:
        self._pass, self._step, self._number = pass_, step, number
        self._total = step.batches[-1][1] - step.batches[0][0]

    def backward(self, start: int, stop: int) -> float:
        """Add the gradients of some examples, and return their part of the step's loss."""
        inputs, target = self.load(start, stop)
        part, value = self.loss(self.call(self._pass.module, inputs), target, start, stop)
        torch.autograd.backward(part)
        return value

    def load(self, start: int, stop: int) -> tuple[list[torch.Tensor], Any]:
        """Return the inputs and the target of some examples, transformed."""
        return self._pass.load(self._step, start, stop)

    def call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Return the output of the module, or of a part of it."""
        return self._pass.call(function, inputs)

    def loss(self, output: Any, target: Any, start: int, stop: int) -> tuple[torch.Tensor, float]:
        """Return the part of the step's loss to compute gradients of, and its value."""
        share = (stop - start) / self._total
        loss, value = self._pass.loss(self._step, self._number, start, output, target)
        return loss if share == 1.0 else loss * share, value * share


def layer_of(error: Exception, module: nn.Module) -> str:
    """Return the innermost named part of a module in which an error was raised; empty if there is none."""
    names = {id(part): name for name, part in module.named_modules() if name}
    found, frame = "", error.__traceback__
    while frame is not None:
        part = frame.tb_frame.f_locals.get("self")
        if id(part) in names and isinstance(part, nn.Module):
            found = f"{names[id(part)]!r} ({type(part).__name__})"
        frame = frame.tb_next
    if not found:
        return ""
    fix = ""
    if "deterministic" in str(error):
        fix = ", which has no deterministic implementation in torch, so its bits could differ; use another layer"
    return f"; the error is in its layer {found}{fix}"


def outputs(model: TorchModel, batches: Batches, size: int, recipe: Recipe) -> tuple[Any, torch.Tensor]:
    """Return the model's outputs and the targets of all examples, in order, on the CPU."""
    count = -(-batches.length // size)
    collected, targets = JoinedOutputs(count), JoinedOutputs(count)
    for start in range(0, batches.length, size):
        inputs, target = batches.take(slice(start, min(start + size, batches.length)))
        try:
            with recipe.precision():
                collected.add(model.module(*inputs))
        except Exception as error:
            explanation = explain("model", None, target, batches) + layer_of(error, model.module)
            raise user_error(error, explanation) from None
        targets.add(target)
    return collected.all(), targets.all()


def explain(doing: str, output: Any, target: Any, batches: Batches) -> str:
    """Return which of the user's functions raised, and what it was given."""
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
        case "clip":
            return "clip: clipping the gradients raised this; sparse gradients cannot be clipped"
        case "transform":
            return f"transform: it raised this for a batch of {batches.describe()}"
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


def _check_loss(loss: Any, step: int, start: int, values: Mapping[str, Scalar]) -> float:
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
    return value
