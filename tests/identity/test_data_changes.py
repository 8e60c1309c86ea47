"""Changes of data: a study reuses nothing that was trained on other data, and everything on the same.

The first half changes what is trained or evaluated on; the second half only how or where the same rows came to be.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hoptree as ht
from tests.system.plain import study

Columns = dict[str, Any]
X = np.random.default_rng(0).normal(size=(48, 4)).astype(np.float32)
X[7, 2] = 0.0
Y = np.arange(48) % 5
HELD_OUT = {"x": X[:8] + 1, "y": Y[:8]}


def build(folder: Path, columns: Columns | None = None, **options: Any) -> ht.Dataset:
    settings = {"partitions": 3, "valid": 0.25, "seed": 3, **options}
    return ht.Dataset.from_arrays(**(columns or {"x": X, "y": Y}), to=folder / "changed", **settings)


def with_x(change: Callable[[np.ndarray], Any]) -> Callable[[Path], ht.Dataset]:
    return lambda folder: build(folder, {"x": change(X.copy()), "y": Y})


def with_y(change: Callable[[np.ndarray], Any]) -> Callable[[Path], ht.Dataset]:
    return lambda folder: build(folder, {"x": X, "y": change(Y.copy())})


def put(place: Any, value: Any) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return change


def swap_rows(folder: Path) -> ht.Dataset:
    order = np.arange(len(X))
    order[[3, 30]] = order[[30, 3]]
    return build(folder, {"x": X[order], "y": Y[order]})


CHANGES: dict[str, Callable[[Path], ht.Dataset]] = {
    "one value": with_x(put((5, 1), 2.0)),
    "the last bit of one value": with_x(put((5, 1), np.nextafter(X[5, 1], np.float32(9)))),
    "zero becomes minus zero": with_x(put((7, 2), -0.0)),
    "one value becomes NaN": with_x(put((5, 1), np.nan)),
    "one target": with_y(put(9, 0)),
    "two targets swapped": with_y(put([0, 1], [1, 0])),
    "inputs in double precision": with_x(lambda x: x.astype(np.float64)),
    "targets in 32 bits": with_y(lambda y: y.astype(np.int32)),
    "targets without a sign": with_y(lambda y: y.astype(np.uint64)),
    "another shape of a row": with_x(lambda x: x.reshape(-1, 2, 2)),
    "two input columns swapped": with_x(lambda x: x[:, [1, 0, 2, 3]]),
    "two rows swapped": swap_rows,
    "rows in another order": lambda folder: build(folder, {"x": X[::-1], "y": Y[::-1]}),
    "a row less": lambda folder: build(folder, {"x": X[:-1], "y": Y[:-1]}),
    "a row twice": lambda folder: build(folder, {"x": np.vstack([X, X[:1]]), "y": np.append(Y, Y[0])}),
    "a column more": lambda folder: build(folder, {"x": X, "y": Y, "z": Y}),
    "a column of another name": lambda folder: build(folder, {"x": X, "label": Y}),
    "columns in another order": lambda folder: build(folder, {"y": Y, "x": X}),
    "more partitions": lambda folder: build(folder, partitions=4),
    "another share for validation": lambda folder: build(folder, valid=0.5),
    "validation data of its own": lambda folder: build(folder, valid=HELD_OUT),
    "another seed of the shuffle": lambda folder: build(folder, seed=4),
}


def from_parquet(folder: Path) -> ht.Dataset:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 4)
    pq.write_table(pa.table({"x": rows, "y": Y}), folder / "rows.parquet")
    return ht.Dataset.from_parquet(folder / "rows.parquet", partitions=3, valid=0.25, seed=3, to=folder / "changed")


def from_two_files(folder: Path) -> ht.Dataset:
    parts = folder / "parts"
    parts.mkdir()
    for number, cut in enumerate((slice(0, 20), slice(20, None))):
        rows = pa.FixedSizeListArray.from_arrays(pa.array(X[cut].reshape(-1)), 4)
        pq.write_table(pa.table({"x": rows, "y": Y[cut]}), parts / f"{number}.parquet", row_group_size=7)
    return ht.Dataset.from_folder(parts, partitions=3, valid=0.25, seed=3, to=folder / "changed")


def from_npz(folder: Path) -> ht.Dataset:
    np.savez(folder / "rows.npz", x=X, y=Y)
    return ht.Dataset.from_files(folder / "rows.npz", partitions=3, valid=0.25, seed=3, to=folder / "changed")


def copied(folder: Path) -> ht.Dataset:
    subprocess.run(["cp", "-r", build(folder).path, folder / "copy"], check=True)
    return ht.Dataset.open(folder / "copy")


def moved(folder: Path) -> ht.Dataset:
    return ht.Dataset.open(build(folder).path.rename(folder / "moved"))


def linked(folder: Path) -> ht.Dataset:
    (folder / "link").symlink_to(build(folder).path)
    return ht.Dataset.open(folder / "link")


def touched(folder: Path) -> ht.Dataset:
    dataset = build(folder)
    for path in dataset.path.iterdir():
        path.touch()
    return ht.Dataset.open(dataset.path)


SAME: dict[str, Callable[[Path], ht.Dataset]] = {
    "built again elsewhere": build,
    "from Parquet": from_parquet,
    "from two files in other row groups": from_two_files,
    "from a file of numpy": from_npz,
    "columns of a larger array": with_x(lambda x: np.hstack([x, x])[:, :4]),
    "Fortran order": with_x(np.asfortranarray),
    "the other byte order": with_x(lambda x: x.astype(">f4")),
    "targets as a list": with_y(lambda y: y.tolist()),
    "the folder copied": copied,
    "the folder moved": moved,
    "a link to the folder": linked,
    "files touched": touched,
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Train a study, and return its folder and the fingerprint of its data."""
    folder = tmp_path_factory.mktemp("original")
    job = study(folder, data=build(folder))
    job.run(workers=1, quiet=True)
    return folder, job.data.fingerprint


def reused(folder: Path, data: ht.Dataset, name: str) -> float:
    """Return the epochs, of 2, that a study reuses from the one that was trained before."""
    found = study(folder, name=name, data=data).run(workers=1, quiet=True)
    assert found.trials[0].state == "complete"
    return found.savings.epochs_reused


@pytest.mark.parametrize("case", CHANGES)
def test_nothing_is_reused_when_data_changed(case: str, tmp_path: Path, original: tuple[Path, str]) -> None:
    folder, fingerprint = original
    data = CHANGES[case](tmp_path)
    assert data.fingerprint != fingerprint
    assert reused(folder, data, f"changed: {case}") == 0


@pytest.mark.parametrize("case", SAME)
def test_everything_is_reused_when_the_same_rows_came_another_way(
    case: str, tmp_path: Path, original: tuple[Path, str]
) -> None:
    folder, fingerprint = original
    data = SAME[case](tmp_path)
    assert data.fingerprint == fingerprint
    assert reused(folder, data, f"same: {case}") == 2
