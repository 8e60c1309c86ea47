"""A torch model as it stays resident in a worker: the module, its optimizer, and the values they are set to."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

from torch import nn

from hoptree.core.schedules import Scalar
from hoptree.trainers import torch_state
from hoptree.trainers.base import ModelState
from hoptree.trainers.errors import TrainerError, user_error
from hoptree.trainers.hyper_parameters import HyperParameters
from hoptree.trainers.torch_optimizers import TunedOptimizer

_Dropout = nn.modules.dropout._DropoutNd  # Dropout, Dropout1d … AlphaDropout
_APPLIED = {"batch_size", "dropout"}  # values that apply at every step, whatever the optimizer
_built: weakref.WeakSet[nn.Module] = weakref.WeakSet()


@final
class TorchModel:
    """A module with its optimizer; the user gets the module.

    ``reads`` are the names that it was built from. Of these, only what somebody applies later may change.
    ``used`` are all names whose values make a difference, as far as that has shown.
    """

    def __init__(
        self, module: nn.Module, tuned: TunedOptimizer, values: Mapping[str, Scalar], reads: Iterable[str] = ()
    ) -> None:
        self.module = module
        self.tuned = tuned
        self._built = {name: values.get(name) for name in sorted({*reads} - _APPLIED - tuned.follows)}
        self._applied: Mapping[str, Scalar] | None = None
        dropouts = [part for part in module.modules() if isinstance(part, _Dropout)]
        # A layer that was built with the value follows it; one with a rate of its own keeps that.
        followers = [part for part in dropouts if part.p == values.get("dropout")]
        self._dropouts = followers or dropouts
        self.used = {*reads, *tuned.follows, *(["dropout"] if dropouts else [])}

    def apply(self, values: Mapping[str, Scalar]) -> None:
        """Set optimizer and dropout to the values of the moment."""
        if values is self._applied:
            return
        for name, before in self._built.items():
            if values.get(name) != before:
                raise TrainerError(
                    f"{name}: {values.get(name)!r}, but the model was built with {before!r}, and a model is built "
                    f"once; keep {name} as it is in schedules, in clones, and out of ht.PBT(change=…)"
                )
        self.tuned.apply(values)
        rate = values.get("dropout")
        if rate is not None:
            if isinstance(rate, str | bool) or not 0 <= rate <= 1:
                raise TrainerError(f"dropout: {rate!r}; expected a probability between 0 and 1")
            for part in self._dropouts:
                part.p = rate
        self._applied = values

    def unread(self, values: Mapping[str, Scalar]) -> list[str]:
        """Return the names that make no difference."""
        return [name for name in values if name not in self.used]

    def dump(self) -> ModelState:
        """Return the state as views of the tensors."""
        return torch_state.dump(self.module, self.tuned.optimizer)

    def load(self, state: ModelState) -> None:
        """Copy a state in, in place."""
        torch_state.load(self.module, self.tuned.optimizer, state)
        self.tuned.forget()
        self._applied = None


def build_module(function: Callable[[HyperParameters], Any], hp: HyperParameters, name: str) -> Any:
    """Call the user's function; what it raises comes with the user's own traceback."""
    try:
        return function(hp)
    except Exception as error:
        raise user_error(error, f"{name}: the function that builds the model raised this") from None


def check_module(module: Any, name: str) -> nn.Module:
    """Return the module if it is one that nobody else trains."""
    if not isinstance(module, nn.Module):
        raise TrainerError(f"{name}: it returned {type(module).__name__}; expected a torch.nn.Module")
    if any(nn.parameter.is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise TrainerError(
            f"{name}: it has lazy modules, whose weights would depend on the first batch; give their sizes"
        )
    if module in _built:
        raise TrainerError(
            f"{name}: it returned the same module twice; expected a new module at every call, "
            "so that trials do not share weights by accident"
        )
    _built.add(module)
    return module


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put the module into evaluation mode, and every part of it back into its own mode afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
