"""Where a module keeps a rate of dropout, and which of these places follow the value ``dropout``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

from torch import nn

from hoptree.core.schedules import Scalar
from hoptree.trainers.errors import TrainerError

_Dropout = nn.modules.dropout._DropoutNd  # Dropout, Dropout1d … AlphaDropout


@final
class DropoutRates:
    """The places of a module that follow the value.

    A layer that was built with the value follows it; one with a rate of its own keeps that. If the model function
    did not ask for the value, all layers of torch follow it.
    """

    def __init__(self, module: nn.Module, value: Scalar, read: bool) -> None:
        places = list(_places(module))
        followers = [(part, name) for part, name in places if _same(getattr(part, name), value)]
        torchs = [(part, name) for part, name in places if type(part).__module__.startswith("torch.nn")]
        self.places = followers if read or followers else torchs
        self.follows = bool(self.places)

    def apply(self, rate: Scalar) -> None:
        """Set the rate of all places."""
        if rate is None:
            return
        if isinstance(rate, str | bool) or not 0 <= rate <= 1:
            raise TrainerError(f"dropout: {rate!r}; expected a probability between 0 and 1")
        for part, name in self.places:
            setattr(part, name, rate)


def _places(module: nn.Module) -> Iterator[tuple[Any, str]]:
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
