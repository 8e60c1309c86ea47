"""The view of a config for the user's functions: its values at one point of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

from hoptree.core.schedules import Scalar
from hoptree.trainers.errors import MissingValue, TrainerError

BATCH_SIZE = 32


@final
class HyperParameters(Mapping[str, Any]):
    """A read-only mapping that remembers which names were read.

    A model that keeps it sees the current values at every step.

    >>> hp = HyperParameters({"lr": 0.1}, "the model function")
    >>> hp["lr"], hp.get("width", 64)
    (0.1, 64)
    """

    __slots__ = ("_advance", "_reader", "_values", "reads")

    def __init__(
        self,
        values: Mapping[str, Scalar],
        reader: str,
        advance: Callable[[float], Mapping[str, Scalar]] | None = None,
    ) -> None:
        self._values = dict(values)
        self._reader = reader
        self._advance = advance
        self.reads: set[str] = set()

    def advance(self, fraction: float) -> HyperParameters:
        """Move on to a fraction of the pass over the data, for a user-defined loop; returns itself.

        The optimizer's options and dropout follow, as they do at every step of ``ht.Torch``. During evaluation
        nothing changes.

        >>> hp = HyperParameters({"lr": 0.1}, "train_fn", advance=lambda fraction: {"lr": 0.1 * fraction})
        >>> hp.advance(0.5)["lr"]
        0.05
        """
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise TrainerError(f"hp.advance: {fraction!r}; expected a fraction of the pass between 0 and 1")
        if self._advance is not None:
            self.set(self._advance(fraction))
        return self

    @property
    def current(self) -> dict[str, Scalar]:
        """All current values; this does not count as reading them."""
        return dict(self._values)

    def set(self, values: Mapping[str, Scalar]) -> None:
        """Replace the values; for trainers."""
        if values != self._values:
            self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        self.reads.add(name)
        if name not in self._values:
            raise MissingValue(
                f"{name}: {self._reader} reads it, but the config has only "
                f"{', '.join(sorted(self._values)) or 'no values'}; add {name!r} to the space, "
                f"or use hp.get({name!r}, default)"
            )
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"HyperParameters({self._values!r})"

    def __copy__(self) -> HyperParameters:
        return self

    def __deepcopy__(self, memo: object) -> HyperParameters:
        """Return itself: a copied layer must see the current values, too."""
        return self


def batch_size(values: Mapping[str, Scalar]) -> int:
    """Return the number of examples per batch; fractions from a schedule are rounded.

    >>> batch_size({}), batch_size({"batch_size": 48.4})
    (32, 48)
    """
    size = values.get("batch_size", BATCH_SIZE)
    if isinstance(size, int | float) and not isinstance(size, bool) and 1 <= size < 2**53:
        return round(size)
    raise TrainerError(f"batch_size: {size!r}; expected a whole number of examples, 1 or more")
