"""Datasets: shuffled once, cut into partitions, memory-mapped."""

from hoptree.data.dataset import Dataset
from hoptree.data.errors import DataError

__all__ = ["DataError", "Dataset"]
