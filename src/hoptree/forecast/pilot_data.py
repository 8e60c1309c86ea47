"""The part of the data that a pilot trains on: so much that its units take a fraction of a second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hoptree.core.schedules import Scalar

if TYPE_CHECKING:
    from hoptree.data import Dataset

_PARTITIONS = 2
_SECONDS = 0.15  # of a unit
_BYTES = 16 << 20  # of a partition
_BATCHES = 4  # in a partition at least
_BATCH = 32  # examples, if the values do not say
_EVALUATED = 1024  # examples at least
_VALID_SHARE = 4  # so many times fewer examples are evaluated than trained on


class PilotData(NamedTuple):
    """A dataset, and the sizes of what it was cut from."""

    dataset: Dataset
    rows: int  # of a partition
    all_rows: int
    valid_rows: int
    all_valid_rows: int

    def unit_factor(self, values: Mapping[str, Scalar]) -> float:
        """Return how much longer a whole unit takes: the number of batches counts."""
        size = batch_size(values)
        return -(-self.all_rows // size) / -(-self.rows // size)

    @property
    def evaluation_factor(self) -> float:
        """How much longer a whole evaluation takes."""
        return self.all_valid_rows / self.valid_rows if self.valid_rows else 1.0


def cut(data: Dataset, row_seconds: float, largest_batch: int, folder: Path) -> PilotData:
    """Write some rows of the first partitions, and of the validation data, as a dataset of their own."""
    import numpy as np

    from hoptree.data import Dataset
    from hoptree.data.arrays import ArraySource
    from hoptree.data.build import Build, build

    count = min(data.partitions, _PARTITIONS)
    columns = [data.partition(number) for number in range(count)]
    all_rows = -(-data.rows // data.partitions)
    rows = min(_rows(part) for part in columns)
    bytes_of_row = max(1, sum(column[:1].nbytes for column in columns[0].values()))
    wanted = min(round(_SECONDS / row_seconds) if row_seconds else rows, _BYTES // bytes_of_row)
    wanted = -(-max(wanted, _BATCHES * largest_batch) // largest_batch) * largest_batch
    rows = min(rows, wanted)
    train = {name: np.concatenate([part[name][:rows] for part in columns]) for name in columns[0]}
    valid = data.valid()
    held_out: ArraySource | float = 0.0
    valid_rows = all_valid_rows = 0
    if valid is not None:
        all_valid_rows = _rows(valid)
        valid_rows = min(all_valid_rows, max(_EVALUATED, rows // _VALID_SHARE))
        held_out = ArraySource({name: column[:valid_rows] for name, column in valid.items()}, what="valid")
    path = build(Build(ArraySource(train), held_out, partitions=count, seed=0), folder)
    return PilotData(Dataset.open(path), rows, all_rows, valid_rows, all_valid_rows)


def batch_size(values: Mapping[str, Scalar]) -> int:
    """Return the batch size in some values, or a usual one.

    >>> batch_size({"batch_size": 64}), batch_size({"lr": 0.1})
    (64, 32)
    """
    size = values.get("batch_size")
    return max(1, round(size)) if isinstance(size, int | float) and not isinstance(size, bool) else _BATCH


def _rows(columns: Mapping[str, Any]) -> int:
    return len(next(iter(columns.values())))
