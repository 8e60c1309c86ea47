"""Changed data ends a run before anything is trained on it, whether the driver or a worker notices."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import hoptree as ht
from hoptree.core.errors import HoptreeError, RefusedError
from hoptree.data import DataChangedError
from hoptree.data.manifest import NAME
from tests.data.test_changes import edit, edit_through_a_hard_link, rename_over, settle
from tests.system.plain import dataset, study


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be known of files from before."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.parametrize("change", [edit, edit_through_a_hard_link, rename_over])
def test_a_partition_edited_between_two_runs_is_refused_by_the_driver(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    job = study(tmp_path)
    job.run(workers=2, quiet=True)
    settle(job.data.path)
    change(job.data.path / "train-00001.arrow")
    longer = study(tmp_path, epochs=3, data=ht.Dataset.open(job.data.path))
    with pytest.raises(DataChangedError, match=r"train-00001\.arrow: was changed: .* of partition 1;"):
        longer.run(workers=2, quiet=True)
    assert job.results().trials[0].epochs == 2


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("train-00000.arrow", "partition 0"),
        ("train-00001.arrow", "partition 1"),
        ("valid.arrow", "the validation data"),
    ],
)
def test_a_worker_detects_changes_that_file_times_do_not_show(tmp_path: Path, name: str, what: str) -> None:
    data = dataset(tmp_path)
    edit(data.path / name)
    (data.path / NAME).touch()  # as if the dataset had been built after the edit
    with pytest.raises(RefusedError, match=rf"{name}: was changed: .* of {what};"):
        study(tmp_path, data=data).run(workers=2, quiet=True)


def test_a_run_that_was_refused_continues_with_the_right_data(tmp_path: Path) -> None:
    data = dataset(tmp_path)
    whole = (data.path / "train-00001.arrow").read_bytes()
    edit(data.path / "train-00001.arrow")
    with pytest.raises(HoptreeError):
        study(tmp_path, data=data).run(workers=1, quiet=True)
    (data.path / "train-00001.arrow").write_bytes(whole)
    again = study(tmp_path, data=ht.Dataset.open(data.path))
    assert again.run(workers=1, quiet=True).trials[0].state == "complete"
    assert [found.holds for found in again.verify()] == [True]
