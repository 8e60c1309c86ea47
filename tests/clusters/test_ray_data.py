"""Datasets from Ray Data: the same rows as from files, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hoptree as ht
from hoptree.data.errors import DataError
from tests.clusters.conftest import Nodes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_parquet_through_ray_data(tmp_path: Path, nodes: Nodes) -> None:
    import ray

    nodes.add(1, cpus=2)
    rows = np.arange(1000, dtype=np.float32)
    (tmp_path / "parts").mkdir()
    for part in range(4):
        some = rows[part * 250 : (part + 1) * 250]
        table = pa.table({"x": list(np.stack([some, -some], axis=1)), "y": (some % 7).astype(np.int64)})
        pq.write_table(table, tmp_path / "parts" / f"{part}.parquet")
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    try:
        source: Any = ray.data.read_parquet(str(tmp_path / "parts"))
        source.context.enable_progress_bars = False
        found = ht.Dataset.from_ray(source, partitions=3, valid=0.1, to=tmp_path / "ray")
        again = ht.Dataset.from_ray(source, partitions=3, valid=0.1, to=tmp_path / "again")
        assert again.fingerprint == found.fingerprint
        with pytest.raises(DataError, match="valid: a list; expected a dataset of Ray Data"):
            ht.Dataset.from_ray(source, partitions=3, valid=[1], to=tmp_path / "no")
    finally:
        ray.shutdown()
    assert (found.rows, found.valid_rows, found.partitions) == (900, 100, 3)
    seen = np.concatenate([found.partition(index)["x"][:, 0] for index in range(3)] + [found.valid()["x"][:, 0]])  # type: ignore[index]
    assert sorted(seen) == sorted(rows)
    expected = ht.Dataset.from_parquet(tmp_path / "parts", partitions=3, valid=0.1, to=tmp_path / "files")
    for index in range(3):
        for name, column in expected.partition(index).items():
            np.testing.assert_array_equal(found.partition(index)[name], column)


def test_a_value_that_is_not_a_ray_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="from_ray: a ndarray; expected a dataset of Ray Data"):
        ht.Dataset.from_ray(np.zeros(3), partitions=1, to=tmp_path / "no")
