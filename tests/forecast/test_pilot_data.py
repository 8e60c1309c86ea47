"""A pilot trains on a part of the data, and its times are scaled to all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hoptree as ht
from hoptree.forecast import pilot_data
from hoptree.forecast.pilot_data import cut


def dataset(folder: Path, rows: int = 4000, partitions: int = 4, valid: float = 0.25, **columns: Any) -> ht.Dataset:
    x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    return ht.Dataset.from_arrays(x=x, **columns, partitions=partitions, valid=valid, to=folder / "data")


def test_units_that_are_short_are_whole_and_of_two_partitions(tmp_path: Path) -> None:
    found = cut(dataset(tmp_path), 1e-9, 32, tmp_path / "cut")
    assert (found.rows, found.all_rows, found.dataset.partitions) == (750, 750, 2)
    assert (found.valid_rows, found.all_valid_rows, found.evaluation_factor) == (1000, 1000, 1.0)
    assert found.unit_factor({"batch_size": 32}) == 1.0


def test_units_that_are_long_are_cut_at_a_whole_batch(tmp_path: Path) -> None:
    found = cut(dataset(tmp_path), 1e-3, 40, tmp_path / "cut")
    assert found.rows == 160  # at least four batches, though a tenth of a second is less
    assert found.dataset.rows == 320
    assert found.unit_factor({"batch_size": 40}) == 19 / 4  # the last batch is smaller but a batch
    assert found.unit_factor({"batch_size": 32}) == 24 / 5
    assert found.unit_factor({}) == 24 / 5


def test_large_rows_and_validation_data_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot_data, "_BYTES", 400 * 8)
    monkeypatch.setattr(pilot_data, "_EVALUATED", 50)
    found = cut(dataset(tmp_path), 1e-9, 8, tmp_path / "cut")
    assert found.rows == 400
    assert (found.valid_rows, found.evaluation_factor) == (100, 10.0)
    assert found.dataset.valid_rows == 100


@pytest.mark.parametrize("partitions", [1, 3])
def test_one_partition_text_and_no_validation_data(tmp_path: Path, partitions: int) -> None:
    words = [f"word {number}" for number in range(4000)]
    found = cut(dataset(tmp_path, partitions=partitions, valid=0.0, t=words), 1e-4, 32, tmp_path / "cut")
    assert found.dataset.partitions == min(2, partitions)
    assert (found.valid_rows, found.evaluation_factor) == (0, 1.0)
    assert set(found.dataset.partition(0)["t"]) <= set(words)
