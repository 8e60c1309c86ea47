"""Find the dropout rates of a module, and which of them follow the value ``dropout``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

from torch import nn

from hoptree.core.schedules import Scalar
from hoptree.trainers.errors import TrainerError

_Dropout = nn.modules.dropout._DropoutNd  # Dropout, Dropout1d … AlphaDropout


@final
class DropoutRates:
    """The attributes of a module that follow the value.

    A layer that was built with the value follows it; one with its own rate keeps that. If the model function did
    not read the value, all dropout layers of torch follow it.
    """

    def __init__(self, module: nn.Module, value: Scalar, read: bool) -> None:
        candidates = list(_rate_attributes(module))
        matching = [(part, name) for part, name in candidates if _same(getattr(part, name), value)]
        torch_layers = [(part, name) for part, name in candidates if type(part).__module__.startswith("torch.nn")]
        self.attributes = matching if read or matching else torch_layers
        self.follows = bool(self.attributes)

    def apply(self, rate: Scalar) -> None:
        """Set the rate of all these attributes."""
        if rate is None:
            return
        if isinstance(rate, str | bool) or not 0 <= rate <= 1:
            raise TrainerError(f"dropout: {rate!r}; expected a probability between 0 and 1")
        for part, name in self.attributes:
            setattr(part, name, rate)


def _rate_attributes(module: nn.Module) -> Iterator[tuple[Any, str]]:
    for part in module.modules():
        if isinstance(part, _Dropout):
            yield part, "p"
        elif isinstance(part, nn.RNNBase | nn.MultiheadAttention):
            yield part, "dropout"
        elif not type(part).__module__.startswith("torch.nn"):
            for name, value in list(vars(part).items()):
                if "drop" in name.lower() and type(value) in (float, int):
                    yield part, name


def _same(rate: object, value: Scalar) -> bool:
    return isinstance(rate, float | int) and isinstance(value, float | int) and rate == value
