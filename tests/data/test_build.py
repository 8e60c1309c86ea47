"""Every row exactly once, in an order that depends only on the seed and the row count."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.data import Dataset
from tests.data.strategies import Columns, columns, everything, same


def arrays(rows: int = 100) -> Columns:
    generator = np.random.default_rng(7)
    return {"x": generator.random((rows, 3, 2), dtype=np.float32), "y": np.arange(rows)}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=40, deadline=None)
@given(columns(), st.data())
def test_every_row_is_somewhere_exactly_once_and_whole(given_columns: Columns, data: st.DataObject) -> None:
    rows = len(given_columns["row"])
    valid = data.draw(st.sampled_from([0, 0.2, 0.5]) if rows > 1 else st.just(0))
    held_out = max(1, round(rows * valid)) if valid else 0
    partitions = data.draw(st.integers(1, rows - held_out))
    with tempfile.TemporaryDirectory() as folder:
        dataset = Dataset.from_arrays(
            partitions=partitions,
            valid=valid,
            seed=data.draw(st.integers(0, 99)),
            to=Path(folder, "d"),
            **given_columns,
        )
        found = everything(dataset)
        assert sorted(found["row"].tolist()) == list(range(rows))
        same(found, {name: values[found["row"]] for name, values in given_columns.items()})
        sizes = [len(dataset.partition(index)["row"]) for index in range(partitions)]
        assert max(sizes) - min(sizes) <= 1
        assert (dataset.rows, dataset.valid_rows) == (sum(sizes), held_out)
        dataset.verify()


def test_shuffle_is_the_order_of_the_raw_words_of_pcg64(tmp_path: Path) -> None:
    dataset = Dataset.from_arrays(partitions=3, valid=0.1, seed=5, to=tmp_path / "d", **arrays())
    assert everything(dataset)["y"].tolist() == np.argsort(np.random.PCG64(5).random_raw(100)).tolist()


def test_the_order_of_examples_is_pinned(tmp_path: Path) -> None:
    dataset = Dataset.from_arrays(partitions=2, valid=0.2, seed=0, to=tmp_path / "d", y=np.arange(10))
    assert everything(dataset)["y"].tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_same_seed_same_bytes_other_seed_other_order(tmp_path: Path) -> None:
    first, again, other = (
        Dataset.from_arrays(partitions=4, seed=seed, to=tmp_path / name, **arrays())
        for name, seed in [("a", 1), ("b", 1), ("c", 2)]
    )
    assert contents(first.path) == contents(again.path)
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert everything(first)["y"].tolist() != everything(other)["y"].tolist()


def test_order_does_not_depend_on_partitions_or_columns(tmp_path: Path) -> None:
    few = Dataset.from_arrays(partitions=1, to=tmp_path / "a", **arrays())
    many = Dataset.from_arrays(partitions=9, to=tmp_path / "b", y=arrays()["y"], s=[str(i) for i in range(100)])
    assert everything(few)["y"].tolist() == everything(many)["y"].tolist()
    assert few.fingerprint != many.fingerprint


def test_any_change_of_the_data_changes_the_fingerprint(tmp_path: Path) -> None:
    changed = arrays()
    changed["x"][50, 1, 1] += 1
    variants = [arrays(), changed, arrays(99), {"z": arrays()["x"], "y": arrays()["y"]}]
    variants.append({**arrays(), "y": np.arange(100, dtype=np.int32)})
    built = [Dataset.from_arrays(partitions=2, to=tmp_path / str(i), **v) for i, v in enumerate(variants)]
    assert len({dataset.fingerprint for dataset in built}) == len(variants)


def test_same_data_is_found_again_and_not_written_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = Dataset.from_arrays(partitions=2, **arrays())
    assert first.path == tmp_path / ".hoptree/data" / first.fingerprint
    inodes = [path.stat().st_ino for path in sorted(first.path.iterdir())]
    again = Dataset.from_arrays(partitions=2, x=arrays()["x"].copy(), y=list(range(100)))
    assert again.path == first.path
    assert inodes == [path.stat().st_ino for path in sorted(first.path.iterdir())]
    assert len(list(first.path.parent.iterdir())) == 1
    assert Dataset.from_arrays(partitions=2, seed=1, **arrays()).path != first.path


def test_same_data_at_a_given_path_is_kept(tmp_path: Path) -> None:
    first = Dataset.from_arrays(partitions=2, to=tmp_path / "d", **arrays())
    inode = (first.path / "valid.arrow").stat().st_ino
    Dataset.from_arrays(partitions=2, to=tmp_path / "d", **arrays())
    assert (first.path / "valid.arrow").stat().st_ino == inode


def test_separate_validation_data_keeps_its_order(tmp_path: Path) -> None:
    valid = {"y": np.arange(20) + 1000, "x": arrays(20)["x"]}
    dataset = Dataset.from_arrays(partitions=2, valid=valid, to=tmp_path / "d", **arrays())
    found = dataset.valid()
    assert found is not None
    same(found, {"x": valid["x"], "y": valid["y"]})
    assert dataset.rows == 100


def test_no_validation_data(tmp_path: Path) -> None:
    dataset = Dataset.from_arrays(partitions=2, valid=0, to=tmp_path / "d", **arrays())
    assert dataset.valid() is None
    assert dataset.rows == 100
    assert not (dataset.path / "valid.arrow").exists()


def test_a_crash_leaves_nothing_that_looks_like_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hoptree.data.build.write_manifest", full_disk)
    with pytest.raises(OSError, match="No space"):
        Dataset.from_arrays(partitions=2, **arrays())
    assert list((tmp_path / ".hoptree/data").iterdir()) == []


def test_incomplete_folders_are_ignored_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dataset = Dataset.from_arrays(partitions=2, **arrays())
    killed = dataset.path.parent / ".building-killed" / "dataset"
    dataset.path.rename(tmp_path / "moved")
    killed.mkdir(parents=True)
    (tmp_path / "moved/valid.arrow").rename(killed / "valid.arrow")
    (killed.parent / "lock").touch()
    again = Dataset.from_arrays(partitions=2, **arrays())
    again.verify()
    assert [path.name for path in again.path.parent.iterdir()] == [again.fingerprint]


def test_work_of_a_living_builder_is_left_alone(tmp_path: Path) -> None:
    from hoptree.data.staging import staging

    with staging(tmp_path) as first, staging(tmp_path) as second:
        assert first.is_dir()
        assert second.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_dataset_below_hoptree_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = Dataset.from_arrays(partitions=2, **arrays())
    (first.path / "valid.arrow").write_bytes(b"")
    again = Dataset.from_arrays(partitions=2, **arrays())
    assert again.path == first.path
    again.verify()


def test_two_builders_of_the_same_data_share_what_the_first_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = Dataset.from_arrays(partitions=2, **arrays())
    inode = first.path.stat().st_ino
    monkeypatch.setattr("hoptree.data.build._find_below", lambda *_: None)  # as if both had searched before
    second = Dataset.from_arrays(partitions=2, **arrays())
    assert (second.path, second.path.stat().st_ino) == (first.path, inode)
    assert [path.name for path in first.path.parent.iterdir()] == [first.fingerprint]
