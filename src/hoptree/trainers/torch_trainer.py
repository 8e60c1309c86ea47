"""``Torch``: the trainer for a model function, with the usual training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, final

import torch
from torch import nn

from hoptree.core.schedules import Scalar
from hoptree.identity.fingerprints import code_alone, fingerprint
from hoptree.trainers import torch_contents, torch_loop
from hoptree.trainers.base import Columns, ModelState, Trainer, UnitSpec
from hoptree.trainers.errors import TrainerError, user_error
from hoptree.trainers.gang import GangMember, ModelPlacement
from hoptree.trainers.hyper_parameters import HyperParameters, batch_size
from hoptree.trainers.loss_mean import check_mean
from hoptree.trainers.loss_shapes import check_pairing
from hoptree.trainers.plain_numbers import as_number
from hoptree.trainers.torch_batches import Batches
from hoptree.trainers.torch_build import device_kind, torch_platform
from hoptree.trainers.torch_device import check_device, find_device
from hoptree.trainers.torch_gang import Gang, disconnect, open_rendezvous, stop_waiting
from hoptree.trainers.torch_groups import gpu_refusal
from hoptree.trainers.torch_layouts import check_layout, check_switch, find_layout, layout_names
from hoptree.trainers.torch_mapped import mapped_parameters
from hoptree.trainers.torch_model import TorchModel, build_module, check_module
from hoptree.trainers.torch_offload import pages_given_back, separable
from hoptree.trainers.torch_optimizers import OptimizerChoice, check_choice, make
from hoptree.trainers.torch_recompute import ambiguous, blocks, is_sequence
from hoptree.trainers.torch_session import session
from hoptree.trainers.torch_shards import check_batch_size, check_shards

_PRECISIONS = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
_EXAMINED = 64  # number of examples for the check of shapes
_EVALUATED = 256  # examples at a time; the same for all values, so that metrics depend only on the state


@final
class Torch(Trainer):
    """Trains ``model(hp)``, a new ``nn.Module`` for the values ``hp``, on one target column.

    Values apply at every step: options of the optimizer by name (``lr``, ``weight_decay``, ``momentum``, ``beta1``
    …), ``optimizer`` itself, ``batch_size`` and ``dropout``; all other names are for your functions.
    ``on_values(module, hp)`` is called when a value changes, ``transform(x, y, hp)`` for every training batch.
    Values that the model function reads cannot change later, unless ``on_values`` reads them too. A step uses
    ``accumulate`` batches, and cuts each into ``shards`` whose gradients are added by a fixed tree. Workers find
    the ``device``: "cpu", "cuda" (a GPU), or "auto" (a GPU where there is one). How they hold a model (``layout``:
    "single", "data", "sharded", "pipeline"), whether its parameters are outside memory (``offload``) and whether
    activations are computed again (``checkpoint``) never changes bits; by default Hoptree chooses.
    """

    def __init__(
        self,
        model: Callable[[HyperParameters], nn.Module],
        *,
        loss: Callable[[Any, Any], Any],
        optimizer: OptimizerChoice = "adam",
        metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
        on_values: Callable[[nn.Module, HyperParameters], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        inputs: str | Sequence[str] | None = None,
        target: str = "y",
        clip: float | None = None,
        accumulate: int = 1,
        shards: int = 1,
        layout: str = "auto",
        offload: bool | str = "auto",
        checkpoint: bool | str = "auto",
        precision: str = "float32",
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        self._model = _function("model", model, "for example lambda hp: nn.Linear(64, hp['width'])")
        self._loss = _function("loss", loss, "for example nn.functional.cross_entropy")
        self._optimizer = check_choice(optimizer)
        self._metrics = _metrics(metrics or {})
        self._inputs = (inputs,) if isinstance(inputs, str) else None if inputs is None else tuple(inputs)
        self._target = target
        self._on_values = on_values and _function("on_values", on_values, "a function (module, hp)")
        self._transform = transform and _function("transform", transform, "a function (x, y, hp) -> (x, y)")
        self._clip = _positive("clip", clip) if clip is not None else None
        self._accumulate = _whole("accumulate", accumulate)
        self.shards = check_shards(shards)
        self.layout = check_layout(layout, self.shards)
        self.offload, self.checkpoint = check_switch("offload", offload), check_switch("checkpoint", checkpoint)
        self.threads = _whole("threads", threads)
        if precision not in _PRECISIONS:
            raise TrainerError(f"precision: {precision!r}; expected one of {', '.join(_PRECISIONS)}")
        self._precision = precision
        self.device = check_device(device)

    @property
    def fingerprint(self) -> str:
        """A hash of the user's functions as they are now (runs may differ), the settings, and torch's version."""
        device = "cpu" if self.device == "auto" else self.device  # the platform tells what "auto" has found
        settings = (self._clip, self._accumulate, self._precision, device, self.threads, *self._sharding)
        return fingerprint({**self._code, "settings": settings, "torch": version("torch")})

    @property
    def fingerprint_parts(self) -> dict[str, str]:
        """The code alone, the libraries that it uses, and the device as it was given."""
        settings = (self._clip, self._accumulate, self._precision, *self._sharding)
        code, libraries = code_alone({**self._code, "settings": settings})
        return {"code": code, "libraries": " ".join(libraries), "device": self.device}

    def platform(self) -> dict[str, str]:
        """Return the machine's platform, torch's build and kernels, and the kind of device."""
        found = torch_platform(self.device)  # first: it sets what a GPU needs, which is part of the platform
        return {**super().platform(), **found}

    def check_machine(self) -> None:
        """Raise ``DeviceMissingError`` if the trainer needs a GPU and this process has none."""
        find_device(self.device)

    def device_kind(self) -> str:
        """Return the name of the GPU, or the kind of processor."""
        kind = device_kind(self.device)
        return super().device_kind() if kind == "cpu" else kind

    def architecture(self, model: TorchModel, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the values that the user's functions have read, the batch size and the kind of optimizer."""
        names = (model.used - model.tuned.follows - model.followed) | {"batch_size", "optimizer"}
        return {name: value for name, value in values.items() if name in names}

    @property
    def _sharding(self) -> tuple[object, ...]:
        """What shards add to the settings: nothing by default, so that existing fingerprints stay the same."""
        return () if self.shards == 1 else ("shards", self.shards)

    @property
    def _code(self) -> dict[str, object]:
        return {
            "model": self._model,
            "loss": self._loss,
            "optimizer": self._optimizer,
            "metrics": self._metrics,
            "data": (self._inputs, self._target),
            **({"on_values": self._on_values} if self._on_values is not None else {}),
            **({"transform": self._transform} if self._transform is not None else {}),
        }

    def build(self, values: Mapping[str, Scalar], seed: int, placement: ModelPlacement | None = None) -> TorchModel:
        """Return a new module and its optimizer."""
        self._check_batch_size(values)
        with self._session(seed, fill=True):
            hp = HyperParameters(values, "the model function")
            module = check_module(build_module(self._model, hp, "model"), "model").to(find_device(self.device))
            tuned = make(self._optimizer, module, values)
            model = TorchModel(module, tuned, hp, {*hp.reads}, self._on_values, placement)
            model.used.add("batch_size")
            return model

    def build_part(self, values: Mapping[str, Scalar], seed: int, placement: ModelPlacement) -> TorchModel:
        """Return a new model whose parameters are in mapped files until it trains."""
        find_layout(placement.layout.kind)
        with mapped_parameters():
            return self.build(values, seed, placement)

    def layout_kinds(self, model: TorchModel) -> dict[str, str]:
        """Return each layout with "" or why the model cannot be trained so."""
        device = find_device(self.device)
        return {
            name: gpu_refusal(name, device) or find_layout(name).refusal(model, self.shards)
            for name in layout_names()
        }

    def can_offload(self, model: TorchModel) -> str:
        """Return "" if parameters and optimizer state can be in mapped files, else why not."""
        if find_device(self.device).type != "cpu":
            return "the model is on a GPU; offload has not been tried there, and is for device='cpu' only"
        return separable(model.tuned.optimizer)

    def can_checkpoint(self, model: TorchModel) -> str:
        """Return "" if the model has blocks to compute again, else why not."""
        if is_sequence(model.module) or blocks(model.module):
            name = ambiguous(model.module)
            return name and f"the parameter {name!r} is used several times by a block, and by others"
        return "the model has no blocks of layers; expected an nn.Sequential, or parts that consist of layers"

    def train(self, model: TorchModel, data: Columns, unit: UnitSpec) -> None:
        """Train for one pass over a partition; raise ``Diverged`` if the loss is not finite."""
        with self._session(unit.seed):
            torch_loop.train(model, self._batches(data), unit, self._recipe())

    def open_rendezvous(self, host: str) -> str:
        """Listen for the workers of a gang that this one leads."""
        return open_rendezvous(host)

    def leave_gang(self, name: str) -> None:
        """Stop waiting for the others of a gang."""
        stop_waiting(name)

    def train_together(self, model: TorchModel, data: Columns, unit: UnitSpec, gang: GangMember) -> None:
        """Train as one of several workers, which divide the shards of every batch."""
        try:
            with self._session(unit.seed):
                torch_loop.train(model, self._batches(data), unit, self._recipe(), Gang(gang), gang.layout)
        except BaseException:
            disconnect()  # else the others would wait for this worker
            raise

    def evaluate(self, model: TorchModel, data: Columns, values: Mapping[str, Scalar]) -> dict[str, float]:
        """Return the loss and the metrics, computed once over all examples."""
        batches = self._batches(data)
        if not batches.length:
            raise TrainerError("evaluation: the data has no examples; expected at least one")
        model.hp.set(values)
        with self._session(0), torch.no_grad(), model.evaluation(), pages_given_back(model.module):
            output, target = torch_loop.outputs(model, batches, _EVALUATED, self._recipe())
            result = {"loss": _measure("loss", self._loss, output, target)}
            for name, metric in self._metrics.items():
                result[name] = _measure(name, metric, output, target)
        return result

    def examine(self, model: TorchModel, data: Columns) -> None:
        """Raise an error for a loss that broadcasts outputs against targets, or that shards would change.

        Training reports other errors.
        """
        batches = self._batches(data)
        with self._session(0), torch.no_grad(), model.evaluation():
            try:
                inputs, target = batches.take(slice(0, min(_EXAMINED, batches.length)))
                output = model.module(*inputs)
            except Exception:
                return
            check_pairing(self._loss, output, target)
            if self.shards > 1:
                check_mean(self._loss, model.module, inputs, target, output)

    def dump(self, model: TorchModel) -> ModelState:
        """Return the state; its arrays are views of the model's tensors."""
        return model.dump()

    def load(self, model: TorchModel, state: ModelState) -> None:
        """Copy a state into the cached tensors."""
        model.load(state)

    def unread(self, model: TorchModel, values: Mapping[str, Scalar]) -> list[str]:
        """Return the names that neither the user's functions nor the optimizer use."""
        return model.unread(values)

    def check_values(self, model: TorchModel, values: Mapping[str, Scalar]) -> None:
        """Apply the values to the model."""
        self._check_batch_size(values)
        with self._session(0):
            model.apply(values)

    def hidden_state(self, model: TorchModel) -> Mapping[str, str]:
        """Return digests of the contents of the module and the optimizer, by name."""
        return torch_contents.contents(model.module, model.tuned.optimizer)

    def memory(self, model: TorchModel) -> Mapping[str, int]:
        """Return the addresses of the module's and the optimizer's tensors, by name."""
        return torch_contents.memory(model.module, model.tuned.optimizer)

    def export(self, model: TorchModel) -> nn.Module:
        """Return the module, ready for predictions."""
        return model.module.eval()

    def _session(self, seed: int, fill: bool = False) -> Any:
        return session(
            seed,
            threads=self.threads,
            dtype=_PRECISIONS[self._precision],
            device=find_device(self.device),
            fill=fill,
        )

    def _batches(self, data: Columns) -> Batches:
        dtype, device = _PRECISIONS[self._precision], find_device(self.device)
        return Batches(data, self._inputs, self._target, dtype=dtype, device=device)

    def _recipe(self) -> torch_loop.Recipe:
        autocast = find_device(self.device) if self._precision == "bfloat16" else None
        return torch_loop.Recipe(self._loss, self._clip, self._accumulate, autocast, self._transform, self.shards)

    def _check_batch_size(self, values: Mapping[str, Scalar]) -> None:
        if self.shards > 1:
            check_batch_size(batch_size(values), self.shards)


def _measure(name: str, metric: Callable[[Any, Any], Any], output: Any, target: Any) -> float:
    try:
        value = metric(output, target)
    except Exception as error:
        shapes = f"model output {torch_loop.shape(output)} and target {torch_loop.shape(target)}"
        what = "loss" if name == "loss" else f"metric {name!r}"
        raise user_error(error, f"{what}: it raised this for {shapes}, all validation examples at once") from None
    return as_number(name, value)


def _function(name: str, value: Any, example: str) -> Any:
    if name == "model" and isinstance(value, nn.Module):
        raise TrainerError(f"model: a module; expected a function that creates a new one, {example}")
    if name != "model" and isinstance(value, type) and issubclass(value, nn.Module):
        raise TrainerError(f"{name}: the class {value.__name__}; expected a function, so write {value.__name__}()")
    if not callable(value):
        raise TrainerError(f"{name}: {value!r}; expected a function, {example}")
    return value


def _metrics(metrics: Any) -> dict[str, Callable[[Any, Any], Any]]:
    if not isinstance(metrics, Mapping):
        raise TrainerError(
            f"metrics: {type(metrics).__name__}; expected names and functions, such as {{'accuracy': ht.accuracy}}"
        )
    if "loss" in metrics:
        raise TrainerError("metrics: 'loss' is always reported, from loss=; give the metric another name")
    return {
        name: _function(f"metrics[{name!r}]", metric, "such as ht.accuracy") for name, metric in metrics.items()
    }


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise TrainerError(f"{name}: {value!r}; expected a number above 0")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TrainerError(f"{name}: {value!r}; expected a whole number, 1 or more")
    return value
