"""Datasets: shuffled once, split into partitions, memory-mapped."""

from hoptree.data.dataset import Dataset
from hoptree.data.errors import DataChangedError, DataError

__all__ = ["DataChangedError", "DataError", "Dataset"]
