"""Parquet and Arrow files: the same dataset as from memory, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, ipc

from hoptree.data import DataError, Dataset
from tests.data.room import GIB, room
from tests.data.strategies import Columns, columns, everything, same


def table(values: Columns) -> pa.Table:
    def array(column: np.ndarray[Any, Any]) -> Any:
        if column.ndim == 1:
            return pa.array(column, from_pandas=False)
        flat = pa.array(column.reshape(-1), from_pandas=False)
        for side in reversed(column.shape[1:]):
            flat = pa.FixedSizeListArray.from_arrays(flat, side)
        return flat

    return pa.table({name: array(column) for name, column in values.items()})


def images(rows: int = 60) -> Columns:
    x = np.random.default_rng(0).random((rows, 2, 3), dtype=np.float32)
    return {"x": x, "y": np.arange(rows), "s": np.array([f"row {row}" for row in range(rows)], object)}


@settings(max_examples=25, deadline=None)
@given(columns(least=3), st.integers(1, 9), st.integers(0, 9), st.sampled_from([1, 200, 1 << 20]))
def test_files_give_the_same_dataset_as_memory(values: Columns, cut: int, seed: int, memory: int) -> None:
    with tempfile.TemporaryDirectory() as name, mock.patch("hoptree.data.build.MEMORY", memory):
        folder = Path(name)
        whole = table(values)
        first = min(cut, len(whole))
        pq.write_table(whole.slice(0, first), folder / "0.parquet", row_group_size=2)
        pq.write_table(whole.slice(first), folder / "1.parquet", row_group_size=3)
        files = Dataset.from_parquet(folder / "*.parquet", partitions=2, seed=seed, to=folder / "a")
        arrays = Dataset.from_arrays(partitions=2, seed=seed, to=folder / "b", **values)
        same(everything(files), everything(arrays))
        assert files.fingerprint == arrays.fingerprint


def test_rows_that_do_not_fit_are_scattered_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"y": np.arange(20_000), "s": np.array([str(row) for row in range(20_000)], object)}
    pq.write_table(table(values), tmp_path / "t.parquet", row_group_size=5000)
    monkeypatch.setattr("hoptree.data.build.MEMORY", 20_000)
    monkeypatch.setattr("hoptree.data.shuffle.BITS", 2)
    small = Dataset.from_parquet(tmp_path / "t.parquet", partitions=3, to=tmp_path / "a")
    monkeypatch.undo()
    large = Dataset.from_parquet(tmp_path / "t.parquet", partitions=3, to=tmp_path / "b")
    assert small.fingerprint == large.fingerprint
    assert sorted(path.name for path in small.path.iterdir()) == [
        "manifest.json",
        *(f"train-0000{index}.arrow" for index in range(3)),
        "valid.arrow",
    ]


def test_a_path_a_list_a_glob_and_a_folder_are_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    names = ["0.parquet", "1.parquet"]
    for index, name in enumerate(names):
        pq.write_table(table(images()).slice(30 * index, 30), folder / name)
    given_files: list[Any] = [folder, str(folder / "*.parquet"), [folder / name for name in names]]
    built = [Dataset.from_parquet(f, partitions=2, to=tmp_path / str(i)) for i, f in enumerate(given_files)]
    built.append(Dataset.from_folder(folder, partitions=2, to=tmp_path / "folder"))
    assert len({dataset.fingerprint for dataset in built}) == 1


def test_a_folder_of_arrow_files_streams_and_parquet(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    whole = table(images())
    with ipc.new_file(str(folder / "0.arrow"), whole.schema) as file:
        file.write_table(whole.slice(0, 20), max_chunksize=7)
    with ipc.new_stream(str(folder / "1.arrow"), whole.schema) as stream:
        stream.write_table(whole.slice(20, 20))
    feather.write_feather(whole.slice(40, 10), str(folder / "2.feather"))
    pq.write_table(whole.slice(50), folder / "3.parquet")
    files = Dataset.from_folder(folder, partitions=2, to=tmp_path / "a")
    assert files.fingerprint == Dataset.from_arrays(partitions=2, to=tmp_path / "b", **images()).fingerprint


def test_the_files_of_a_dataset_are_a_folder_of_arrow_files(tmp_path: Path) -> None:
    first = Dataset.from_arrays(partitions=2, valid=0, to=tmp_path / "a", **images())
    with pytest.raises(DataError, match=r"is a dataset already; use Dataset\.open"):
        Dataset.from_folder(first.path, partitions=3)
    (first.path / "manifest.json").unlink()
    again = everything(Dataset.from_folder(first.path, partitions=3, valid=0, to=tmp_path / "b"))
    order = np.argsort(again["y"])
    same({name: again[name][order] for name in images()}, images())


def test_separate_validation_files(tmp_path: Path) -> None:
    for name, rows in [("train", 60), ("valid", 20)]:
        (tmp_path / name).mkdir()
        pq.write_table(table(images(rows)), tmp_path / name / "0.parquet")
    by_file = Dataset.from_parquet(
        tmp_path / "train", partitions=2, valid=str(tmp_path / "valid/*.parquet"), to=tmp_path / "a"
    )
    by_folder = Dataset.from_folder(tmp_path / "train", partitions=2, valid=tmp_path / "valid", to=tmp_path / "b")
    valid = by_file.valid()
    assert valid is not None
    same(valid, images(20))
    assert by_file.fingerprint == by_folder.fingerprint


def test_what_pandas_writes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [0.5, float("nan"), 2.0] * 4, "b": pd.Categorical(["u", "v", "u"] * 4)})
    frame["c"] = [np.arange(3, dtype=np.float32) + row for row in range(12)]
    frame["d"] = [True, False, True] * 4
    frame.to_parquet(tmp_path / "f.parquet")
    dataset = Dataset.from_parquet(tmp_path / "f.parquet", partitions=1, valid=0, to=tmp_path / "d")
    assert [str(column) for column in dataset.columns] == ["float64", "string", "float32[3]", "bool"]
    found = dataset.partition(0)
    assert np.isnan(found["a"]).sum() == 4
    assert sorted(found["c"][:, 0].tolist()) == list(range(12))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, None, 3]), "t.parquet: c: 1 missing values; fill them"),
        (pa.array(["a", None, "c"]), "t.parquet: c: 1 missing values"),
        (pa.array([[1], [1, 2], [1]]), r"t.parquet: c: lists of \[1, 2\] values, but the first row has 1"),
        (pa.array([[1], None, [1]]), "t.parquet: c: 1 missing values"),
        (
            pa.array([1, 2, 3], pa.timestamp("s")),
            r"t.parquet: c: values of type timestamp\[ms\]; expected booleans",
        ),
        (pa.array([{"k": 1}] * 3), "t.parquet: c: values of type struct"),
        (pa.array([b"a"] * 3), "t.parquet: c: values of type binary"),
        (pa.nulls(3), "t.parquet: c: values of type null"),
    ],
)
def test_columns_that_are_refused(tmp_path: Path, column: Any, message: str) -> None:
    pq.write_table(pa.table({"c": column}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=message):
        Dataset.from_parquet(tmp_path / "t.parquet", partitions=1, valid=0, to=tmp_path / "d")
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]


def test_files_that_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "1.parquet")
    (tmp_path / "bad.pq").write_text("x,y\n")
    for files, message in [
        (tmp_path / "none*.parquet", "from_parquet: no files found at .*none"),
        ([], "from_parquet: no files found at an empty list"),
        (7, "from_parquet: a int; expected a path"),
        (str(tmp_path / "*.parquet"), r"1\.parquet: x is float64, but int64 in .*0\.parquet"),
        (tmp_path / "bad.pq", r"bad\.pq: cannot be read as Parquet"),
    ]:
        with pytest.raises(DataError, match=message):
            Dataset.from_parquet(files, partitions=1)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"from_folder: .* is not a folder"):
        Dataset.from_folder(tmp_path / "none", partitions=1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"from_folder: no files found at .*empty"):
        Dataset.from_folder(tmp_path / "empty", partitions=1)


LIMITED = """
import resource, sys
from hoptree.data import Dataset
resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30))
Dataset.from_parquet(sys.argv[1], partitions=2, valid=0, to=sys.argv[2]).verify()
"""


@pytest.mark.slow
def test_data_larger_than_the_memory_it_is_given(tmp_path: Path) -> None:
    """A process limited to 1 GiB of memory builds 2 GiB of rows."""
    generator = np.random.default_rng(0)
    with room(tmp_path, 7 * GIB):
        file = tmp_path / "t.parquet"
        with pq.ParquetWriter(file, table({"x": np.zeros((1, 4096), np.float32)}).schema) as writer:
            for _ in range(128):
                writer.write_table(table({"x": generator.random((1024, 4096), dtype=np.float32)}))
        subprocess.run([sys.executable, "-c", LIMITED, file, tmp_path / "d"], check=True)
