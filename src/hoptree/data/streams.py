"""Rows from a stream of batches that can be read more than once, such as a Ray Data dataset.

Each pass uses bounded memory: one batch at a time. The first pass finds the columns and computes the digest; the
build reads the stream again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, final

from hoptree.data.arrays import ArraySource
from hoptree.data.errors import DataError
from hoptree.data.manifest import Column, digest, same_columns

Batches: TypeAlias = Callable[[], Iterator[Mapping[str, Any]]]

_BATCH = 4096  # rows


@final
class StreamSource:
    """The rows of all batches, in order."""

    in_memory = False

    def __init__(self, read: Batches, what: str) -> None:
        self._read = read
        self._what = what
        self.rows = 0
        self.columns: tuple[Column, ...] = ()
        names: list[str] = []
        for part in self._parts():
            self.columns = self.columns or part.columns
            same_columns(part.columns, self.columns, f"{what}: a later batch", "the first one")
            self.rows += part.rows
            names.append(part.digest())
        self._digest = digest(("stream", names))

    def batches(self) -> Iterator[Any]:
        """Yield all rows, a batch at a time."""
        order = [column.name for column in self.columns]
        for part in self._parts():
            for batch in part.batches():
                yield batch.select(order)

    def digest(self) -> str:
        """Return a digest of the content, which depends on the batch boundaries."""
        return self._digest

    def _parts(self) -> Iterator[ArraySource]:
        for batch in self._read():
            if batch and len(next(iter(batch.values()))):
                yield ArraySource({name: _stack(values) for name, values in batch.items()}, what=self._what)


def _stack(values: Any) -> Any:
    """Stack rows of equal shape that came as objects into one array; others raise an error later."""
    import numpy as np

    if isinstance(values, np.ndarray) and values.dtype.kind == "O" and isinstance(values[0], np.ndarray):
        with suppress(ValueError):
            return np.stack(list(values))
    return values


def ray_batches(dataset: Any, what: str = "from_ray") -> Batches:
    """Return a function that reads a Ray Data dataset in order, so that the same data gives the same dataset."""
    if not hasattr(dataset, "iter_batches") or not hasattr(dataset, "context"):
        raise DataError(
            f"{what}: a {type(dataset).__name__}; expected a dataset of Ray Data, for example "
            "ray.data.read_parquet('s3://bucket/data')"
        )
    dataset.context.execution_options.preserve_order = True
    return lambda: dataset.iter_batches(batch_size=_BATCH, batch_format="numpy")
