"""Batches: gather examples from memory-mapped columns into tensors, one batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from hoptree.trainers.base import Columns
from hoptree.trainers.errors import TrainerError

_KEPT = {
    name: getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "complex64", "complex128")
}
Index = np.ndarray[Any, Any] | slice


@final
class Batches:
    """The inputs and the target of a partition, by batch.

    Floating-point columns reach the model in the trainer's precision, integer targets as int64 (which torch's
    losses require); other inputs keep their type.
    """

    def __init__(
        self,
        data: Columns,
        inputs: Sequence[str] | None,
        target: str,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        names = _inputs(data, inputs, target)
        self.length = len(_column(data, target))
        self.device = device
        self._columns = [_Source(name, _column(data, name), dtype) for name in names]
        self._target = _Source(target, _column(data, target), dtype, whole=torch.int64)
        for name in names:
            if len(data[name]) != self.length:
                raise TrainerError(
                    f"column {name!r}: {len(data[name])} examples, but {target!r} has {self.length}; "
                    "expected the same number"
                )

    def describe(self) -> str:
        """Return the inputs with the shapes and types that the model gets."""
        return ", ".join(source.describe() for source in self._columns)

    def take(self, index: Index) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the inputs and the target of the examples at these indices."""
        inputs = [source.take(index) for source in self._columns]
        target = self._target.take(index)
        if self.device.type == "cpu":
            return inputs, target
        return [tensor.to(self.device) for tensor in inputs], target.to(self.device)


class _Source:
    def __init__(
        self, name: str, array: np.ndarray[Any, Any], floating: torch.dtype, whole: torch.dtype | None = None
    ) -> None:
        self._name = name
        self._array = array
        kind = array.dtype.kind
        if kind == "f":
            self._dtype = floating
        elif kind in "iu" and whole is not None:
            self._dtype = whole
        elif kind in "biuc":
            self._dtype = _KEPT.get(array.dtype.name, torch.int64)
        else:
            raise TrainerError(
                f"column {name!r}: type {array.dtype}; expected numbers, so encode the column before training"
            )
        same = torch.empty(0, dtype=self._dtype).numpy().dtype == array.dtype
        # np.take copies the whole array first unless it is contiguous and aligned.
        self._direct = same and array.flags.c_contiguous and array.flags.aligned

    def describe(self) -> str:
        shape = ", ".join(map(str, ("batch", *self._array.shape[1:])))
        return f"{self._name}: ({shape}) {str(self._dtype).removeprefix('torch.')}"

    def take(self, index: Index) -> torch.Tensor:
        # Use torch's own memory: it is aligned to 64 bytes, and the bits of a matrix product may depend on that.
        array = self._array
        rows = index.stop - index.start if isinstance(index, slice) else len(index)
        batch = torch.empty((rows, *array.shape[1:]), dtype=self._dtype)
        if self._direct and not isinstance(index, slice):
            np.take(array, index, axis=0, out=batch.numpy(), mode="clip")  # "raise" would copy twice
        else:
            np.copyto(batch.numpy(), array[index], casting="unsafe")
        return batch


def _inputs(data: Columns, inputs: Sequence[str] | None, target: str) -> Sequence[str]:
    if inputs is not None:
        return inputs
    others = [name for name in data if name != target]
    if len(others) == 1:
        return others
    if target not in data:
        raise TrainerError(
            f"target: the data has no column {target!r}; it has {', '.join(data)}; name the target, for example "
            f"target={others[-1]!r}"
        )
    raise TrainerError(
        f"inputs: the data has the columns {', '.join(data)}, of which {target!r} is the target; "
        'name the columns that the model takes, in order, for example inputs=["x"]'
    )


def _column(data: Columns, name: str) -> np.ndarray[Any, Any]:
    if name not in data:
        raise TrainerError(
            f"column {name!r}: the data has only {', '.join(data)}; name the columns with inputs= and target="
        )
    return data[name]
