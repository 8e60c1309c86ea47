"""A torch model as a worker caches it: the module, its optimizer, and the values applied to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import msgspec
import torch
from torch import nn

from hoptree.core.schedules import Scalar
from hoptree.trainers import torch_state
from hoptree.trainers.base import ModelState
from hoptree.trainers.errors import TrainerError, user_error
from hoptree.trainers.gang import ModelPlacement
from hoptree.trainers.hyper_parameters import HyperParameters
from hoptree.trainers.torch_attributes import Attributes
from hoptree.trainers.torch_dropout import DropoutRates
from hoptree.trainers.torch_offload import separable
from hoptree.trainers.torch_on_demand import content_refused
from hoptree.trainers.torch_optimizers import TunedOptimizer
from hoptree.trainers.torch_part import ModelPart
from hoptree.trainers.torch_shared import check_constants, check_parameters, register

ValuesHook = Callable[[nn.Module, HyperParameters], Any]


@final
class TorchModel:
    """A module with its optimizer; the user gets the module.

    ``hp`` is the mapping that the model was built from; it has the current values, for a module that keeps it. Of
    the names that were read during the build, only those may change that something applies: the optimizer, dropout,
    the loop (``batch_size``) or the user's ``on_values``. ``used`` are all names whose values are known to have an
    effect.
    """

    def __init__(
        self,
        module: nn.Module,
        tuned: TunedOptimizer,
        hp: HyperParameters,
        reads: Iterable[str],
        on_values: ValuesHook | None = None,
        placement: ModelPlacement | None = None,
    ) -> None:
        self.module = module
        self.part = None if placement is None else ModelPart(module, placement)  # None: all of it, in memory
        self.stages: list[int] = []  # the numbers of the layers at which the stages of a pipeline begin
        self.tuned = tuned
        self.hp = hp
        self._on_values = on_values
        self._applied: Mapping[str, Scalar] | None = None
        values = hp.current
        reads = {*reads}
        check_parameters(tuned.optimizer, module, "optimizer")
        self._dropout = DropoutRates(module, values.get("dropout"), "dropout" in reads)
        self._hidden = torch_state.hidden_buffers(module)
        self._watched = HyperParameters(values, "on_values")
        self._call_hook(values)
        skip = [(id(part), name) for part, name in self._dropout.attributes]
        self._attributes = Attributes(module, tuned.optimizer, skip, tuned.attribute_options)
        self.followed = frozenset({*self._watched.reads, *self._dropout_names()})
        fixed = reads - self.followed - tuned.follows - {"batch_size"}
        self._built = {name: values.get(name) for name in sorted(fixed)}
        self.used = {*reads, *self.followed, *tuned.follows}
        self.inspected = False  # whether a batch was checked for modules and tensors outside the module

    def _dropout_names(self) -> list[str]:
        return ["dropout"] if self._dropout.follows else []

    def apply(self, values: Mapping[str, Scalar]) -> None:
        """Apply the current values to the optimizer, to dropout and to the user's hook."""
        if values is self._applied:
            return
        for name, before in self._built.items():
            if values.get(name) != before:
                raise TrainerError(
                    f"{name}: {values.get(name)!r}, but the model was built with {before!r}, and a model is built "
                    f"only once; keep {name} constant in schedules and clones, and out of ht.PBT(change=…), or "
                    "apply it in on_values=, a function (module, hp) that is called whenever a value changes"
                )
        if self.tuned.apply(values):
            self._check_optimizer()
            check_parameters(self.tuned.optimizer, self.module, "optimizer")
            self._attributes.follow(self.tuned.optimizer, self.tuned.attribute_options)
        self._dropout.apply(values.get("dropout"))
        self.hp.set(values)
        self._call_hook(values)
        self._applied = values

    def _check_optimizer(self) -> None:
        """Raise an error if a schedule has switched to an optimizer that needs all parameters at a time."""
        layout = None if self.part is None else self.part.layout
        if layout is None or (layout.is_whole and (self.tuned.needs_closure or not layout.offload)):
            return
        why = separable(self.tuned.optimizer)
        if why:
            raise TrainerError(
                f"optimizer: {why}; the model is in the layout {layout.name!r}, so use layout='single' or "
                "'data' with offload=False for a schedule that switches to it"
            )

    def _call_hook(self, values: Mapping[str, Scalar]) -> None:
        if self._on_values is None or (self._applied is not None and self._applied == values):
            return
        self._watched.set(values)
        try:
            with content_refused(self.part, "on_values"):
                self._on_values(self.module, self._watched)
        except Exception as error:
            raise user_error(error, f"on_values: it raised this for {dict(values)}") from None

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set the plain attributes; those that are not named get their initial values."""
        self._attributes.restore(attributes)

    def changed_attributes(self) -> dict[str, Any]:
        """Return the plain attributes that have changed since the model was built, encoded, by name."""
        return self._attributes.changed()

    def unread(self, values: Mapping[str, Scalar]) -> list[str]:
        """Return the names without an effect."""
        used = self.used | self.hp.reads | self._watched.reads
        return [name for name in values if name not in used]

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Switch to evaluation mode, and restore everything but the parameters afterwards.

        The only parameters known to change are embeddings with ``max_norm``, which are restored; others are an
        error.
        """
        renormed = [part for part in self.module.modules() if getattr(part, "max_norm", None) is not None]
        kept = [(each, each.clone()) for each in self.module.buffers()]
        kept += [(each, each.detach().clone()) for part in renormed for each in part.parameters(recurse=False)]
        known = {id(each) for each, _ in kept}
        others = [(name, each) for name, each in self.module.named_parameters() if id(each) not in known]
        versions = [each._version for _, each in others]
        attributes = self._attributes.changed()
        try:
            with evaluating(self.module):
                yield
        finally:
            with torch.no_grad():
                for tensor, before in kept:
                    tensor.copy_(before)
            if self._attributes.changed() != attributes:
                self._attributes.restore(attributes)
        for (name, each), version in zip(others, versions, strict=True):
            if each._version != version:
                raise TrainerError(
                    f"model: evaluation changes {name!r}; expected a module that never changes its own parameters, "
                    "so make it a buffer"
                )

    def dump(self) -> ModelState:
        """Return the state as views of the tensors; nothing of a model that another worker leads."""
        if self.part is not None and self.part.rank:
            return ModelState({}, {})
        state = torch_state.dump(self.module, self.tuned.optimizer, self._hidden, self._attributes.changed())
        check_constants(self.module, "model")
        if self.tuned.switched is None:
            return state
        return msgspec.structs.replace(state, meta={**state.meta, "optimizer": self.tuned.switched})

    def load(self, state: ModelState) -> None:
        """Copy a state into the model, in place."""
        if self.tuned.switch_to(state.meta.get("optimizer")):
            self._attributes.follow(self.tuned.optimizer, self.tuned.attribute_options)
        placed = None if self.part is None else self.part.place_loaded
        attributes = torch_state.load(self.module, self.tuned.optimizer, state, self._hidden, placed)
        self._attributes.restore(attributes)
        self.tuned.invalidate()
        self._applied = None


def build_module(function: Callable[[HyperParameters], Any], hp: HyperParameters, name: str) -> Any:
    """Call the user's function; an error in it keeps the user's traceback."""
    try:
        return function(hp)
    except Exception as error:
        raise user_error(error, f"{name}: the function that builds the model raised this") from None


def check_module(module: Any, name: str) -> nn.Module:
    """Return the module; raise an error if it is not a module or shares parts with another model."""
    if not isinstance(module, nn.Module):
        raise TrainerError(f"{name}: it returned {type(module).__name__}; expected a torch.nn.Module")
    for layer, part in module.named_modules():
        tensors = (*part.parameters(recurse=False), *part.buffers(recurse=False))
        if any(nn.parameter.is_lazy(tensor) for tensor in tensors):
            raise TrainerError(
                f"{name}: it has lazy modules ({type(part).__name__} {layer!r}), whose weights would depend on the "
                "first batch; give their sizes, or call the module once in the model function, for example with "
                "torch.zeros(2, 8)"
            )
    register(module, name)
    return module


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch the module to evaluation mode, and restore the mode of every part afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
