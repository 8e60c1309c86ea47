"""Reading: mapped without a copy, the same in every process, and changes are detected."""

from __future__ import annotations

import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import ipc

from hoptree.data import DataChangedError, DataError, Dataset
from tests.data.strategies import NUMBERS, same


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    rows = {name: (np.arange(600).reshape(100, 3, 2) % 2).astype(name) for name in NUMBERS}
    scalars = {f"{name}_scalar": (np.arange(100) % 2).astype(name) for name in NUMBERS}
    text = [f"row {row}" for row in range(100)]
    return Dataset.from_arrays(partitions=3, to=tmp_path / "d", text=text, **rows, **scalars)


def maps(path: Path) -> list[tuple[int, int]]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in lines if line.endswith(str(path))]
    return [(int(start, 16), int(stop, 16)) for start, stop in ranges]


def test_numbers_are_read_only_aligned_views_of_the_map(dataset: Dataset) -> None:
    columns = dataset.partition(1)
    inside = maps(dataset.path / "train-00001.arrow")
    assert inside
    for name, values in columns.items():
        if name != "text":
            assert not values.flags.owndata
            assert not values.flags.writeable
            address = values.ctypes.data
            assert address % 64 == 0
            assert any(start <= address and address + values.nbytes <= stop for start, stop in inside)


def test_a_file_is_mapped_once_and_stays_mapped(dataset: Dataset) -> None:
    path = dataset.path / "train-00001.arrow"
    first = dataset.partition(1)
    mapped = maps(path)
    address = first["float32"].ctypes.data
    first.clear()  # each caller gets its own dictionary
    again = dataset.partition(1)
    assert (maps(path), again["float32"].ctypes.data) == (mapped, address)
    again.clear()
    assert maps(path) == mapped
    assert not maps(dataset.path / "train-00000.arrow")
    assert len(pickle.dumps(dataset)) < 400


def test_text_is_not_kept(dataset: Dataset) -> None:
    columns = dataset.partition(1)
    text = weakref.ref(columns["text"])
    assert text() is not None
    columns.clear()
    assert text() is None
    assert sorted(dataset.partition(1)["text"].tolist())[0].startswith("row ")


def test_columns_come_in_the_order_and_type_they_were_given(dataset: Dataset) -> None:
    columns = dataset.partition(0)
    assert list(columns) == [column.name for column in dataset.columns]
    assert next(iter(columns)) == "text"
    for name in NUMBERS:
        assert columns[name].dtype == name
        assert columns[name].shape == (27, 3, 2)
        assert columns[f"{name}_scalar"].shape == (27,)
    assert columns["text"].dtype == object


def test_a_file_is_plain_arrow_with_one_batch(dataset: Dataset) -> None:
    with pa.memory_map(str(dataset.path / "train-00000.arrow")) as source:
        file = ipc.open_file(source)
        assert file.num_record_batches == 1
        assert file.schema.field("float32").type == pa.fixed_shape_tensor(pa.float32(), (3, 2))
        assert file.schema.field("int16_scalar").type == pa.int16()
        assert file.schema.field("text").type == pa.large_string()


def test_views_outlive_the_dataset_and_its_folder(dataset: Dataset) -> None:
    values = dataset.partition(0)["float64"]
    before = values.copy()
    for path in dataset.path.iterdir():
        path.unlink()
    assert (values == before).all()


def test_a_handle_is_sent_as_its_path(dataset: Dataset) -> None:
    sent = pickle.dumps(dataset)
    assert len(sent) < 400
    again = pickle.loads(sent)
    assert (again.path, again.fingerprint) == (dataset.path, dataset.fingerprint)
    same(again.partition(2), dataset.partition(2))


def test_repr_is_one_line(tmp_path: Path) -> None:
    dataset = Dataset.from_arrays(partitions=2, to=tmp_path / "d", x=np.zeros((10, 2), np.float32), y=range(10))
    assert repr(dataset) == (
        f"Dataset(x: float32[2], y: int64; 8 rows in 2 partitions, 2 for validation; {tmp_path / 'd'})"
    )


def tensor() -> Any:
    torch = pytest.importorskip("torch")
    return torch.arange(12, dtype=torch.float32).reshape(6, 2)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2, 3, 4, 5, 6], "int64"),
        ([[1.5, 2], [3, 4]] * 3, "float64"),
        ((True, False) * 3, "bool"),
        (pd.Series([1, 2, 3, 4, 5, 6], dtype="int16"), "int16"),
        (pd.Series(["a", "b"] * 3), "string"),
        (pd.Series(["a", "b"] * 3, dtype="category"), "string"),
        (np.array(["ä", "", "b"] * 2), "string"),
        (np.arange(6, dtype=">f4"), "float32"),
        (np.arange(12, dtype="f2").reshape(6, 2)[:, ::-1], "float16"),
        (np.asfortranarray(np.arange(12).reshape(6, 2)), "int64"),
        (np.arange(12)[::2], "int64"),
        (tensor, "float32"),
        ([float("nan")] * 6, "float64"),
    ],
)
def test_what_numpy_can_read_is_a_column(tmp_path: Path, values: Any, dtype: str) -> None:
    values = values() if callable(values) else values
    dataset = Dataset.from_arrays(partitions=1, valid=0, to=tmp_path / "d", v=values, row=range(6))
    assert dataset.columns[0].dtype == dtype
    found = dataset.partition(0)
    expected = np.asarray(values)[found["row"]]
    np.testing.assert_array_equal(found["v"], expected)


def test_importing_the_package_imports_neither_numpy_nor_pyarrow() -> None:
    check = (
        "import sys; import hoptree.core.errors; outside = set(sys.modules);"
        "import hoptree.data; new = set(sys.modules) - outside; assert not {'numpy', 'pyarrow'} & new, new"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


def test_a_changed_byte_is_named_by_verify(dataset: Dataset) -> None:
    path = dataset.path / "train-00002.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train-00002\.arrow: was changed.*build"):
        Dataset.open(dataset.path).verify()


def test_a_changed_size_is_named_on_opening(dataset: Dataset) -> None:
    with (dataset.path / "valid.arrow").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"valid\.arrow: was changed: \d+ bytes, but the manifest says \d+"):
        Dataset.open(dataset.path)
    with pytest.raises(DataError, match=r"valid\.arrow: missing or changed"):
        dataset.valid()


def replace(path: Path) -> None:
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


def write(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(content)


@pytest.mark.parametrize("change", [replace, write, Path.unlink])
def test_a_change_after_mapping_is_noticed_at_the_next_visit(
    dataset: Dataset, change: Callable[[Path], None]
) -> None:
    path = dataset.path / "train-00001.arrow"
    dataset.partition(1)
    change(path)
    message = "missing or changed" if change is Path.unlink else r"replaced or written .* checks whether"
    for _ in range(2):
        with pytest.raises(DataChangedError, match=rf"train-00001\.arrow: {message}"):
            dataset.partition(1)
    dataset.partition(0)
    if change is replace:  # the same bytes in another file are fine for a new map
        Dataset.open(dataset.path).verify()
        Dataset.open(dataset.path).partition(1)


def test_a_missing_file_is_named_on_opening(dataset: Dataset) -> None:
    (dataset.path / "train-00001.arrow").unlink()
    with pytest.raises(DataError, match=r"train-00001\.arrow: missing"):
        Dataset.open(dataset.path)
    with pytest.raises(DataError, match=r"train-00001\.arrow: missing"):
        dataset.verify()


def test_a_file_of_the_same_size_that_is_not_arrow(dataset: Dataset) -> None:
    path = dataset.path / "train-00001.arrow"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(DataError, match=r"train-00001\.arrow: was changed: its bytes .* of partition 1;"):
        Dataset.open(dataset.path).partition(1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"version": 1', '"version": 2', "dataset format 2; this Hoptree reads format 1"),
        ('"seed": 0', '"seed": 1', "fingerprint does not match"),
        ("{", "", "not a manifest"),
        ("hoptree-dataset", "other", "not a manifest"),
    ],
)
def test_a_manifest_that_was_changed(dataset: Dataset, old: str, new: str, message: str) -> None:
    path = dataset.path / "manifest.json"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        Dataset.open(dataset.path)


def test_a_folder_that_is_not_a_dataset(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a folder without manifest\.json"):
        Dataset.open(tmp_path)
    with pytest.raises(DataError, match="not a folder; expected a dataset"):
        Dataset.open(tmp_path / "nowhere")


def test_a_partition_that_is_not_there(dataset: Dataset) -> None:
    for index in (-1, 3):
        with pytest.raises(DataError, match=f"partition: {index} given; this dataset has partitions 0 to 2"):
            dataset.partition(index)
