"""Changes of a file's content are detected, whatever its size and times say; and each file is read once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hoptree.data import DataChangedError, Dataset
from hoptree.data.manifest import NAME


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a separate machine: an own folder for temporary files."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return temporary / f"hoptree-verified-{os.getuid()}"


@pytest.fixture
def folder(tmp_path: Path, records: Path) -> Path:
    rows = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    folder = Dataset.from_arrays(partitions=3, to=tmp_path / "data", x=rows, y=range(1000)).path
    settle(folder)
    return folder


def settle(folder: Path) -> None:
    """Wait until new writes have a later change time than existing files."""
    latest = max(path.stat().st_ctime_ns for path in folder.iterdir())
    mark = folder.parent / "mark"
    while time.time_ns() - latest <= 100_000_000:
        mark.touch()
    mark.unlink(missing_ok=True)


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def edit(path: Path) -> None:
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def edit_through_a_hard_link(path: Path) -> None:
    link = path.parent.parent / "link"
    os.link(path, link)
    edit(link)
    link.unlink()


def rename_over(path: Path) -> None:
    before = path.stat()
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes())
    flip(other)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


def edit_and_touch_the_manifest(path: Path) -> None:
    edit(path)
    (path.parent / NAME).touch()


EDITS = [edit, edit_through_a_hard_link, rename_over]


def look_at(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


@pytest.mark.parametrize("change", EDITS)
@pytest.mark.parametrize("name", ["train-00001.arrow", "valid.arrow"])
def test_a_check_notices_content_that_changed_under_the_same_size_and_time(
    folder: Path, change: Callable[[Path], None], name: str
) -> None:
    path = folder / name
    before = look_at(path)
    Dataset.open(folder).check()
    change(path)
    assert look_at(path) == before
    what = "partition 1" if name.startswith("train") else "the validation data"
    with pytest.raises(DataChangedError, match=rf"{name}: was changed: .* of {what};"):
        Dataset.open(folder).check()


@pytest.mark.parametrize("change", [*EDITS, edit_and_touch_the_manifest])
@pytest.mark.parametrize("visited", [True, False])
def test_mapping_detects_a_change_with_unchanged_times(
    folder: Path, change: Callable[[Path], None], visited: bool
) -> None:
    if visited:
        Dataset.open(folder).partition(2)
    change(folder / "train-00002.arrow")
    dataset = Dataset.open(folder)
    dataset.partition(1)
    with pytest.raises(DataChangedError, match=r"train-00002\.arrow: was changed: .* of partition 2;"):
        dataset.partition(2)


@pytest.mark.parametrize("change", EDITS)
def test_a_mapped_file_that_changes_is_refused_at_the_next_visit(
    folder: Path, change: Callable[[Path], None]
) -> None:
    dataset = Dataset.open(folder)
    dataset.partition(0)
    change(folder / "train-00000.arrow")
    with pytest.raises(DataChangedError, match=r"train-00000\.arrow: "):
        dataset.partition(0)


def test_edits_that_keep_the_content_do_not_count(folder: Path, tmp_path: Path) -> None:
    dataset = Dataset.open(folder)
    before = dataset.partition(0)["x"].copy()
    path = folder / "train-00000.arrow"
    os.link(path, tmp_path / "backup")
    path.chmod(0o444)
    assert (dataset.partition(0)["x"] == before).all()
    (folder / "train-00001.arrow").touch()
    dataset.check()
    dataset.partition(1)


def test_a_copied_or_moved_folder_is_the_same_dataset(folder: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-a", folder, tmp_path / "copy"], check=True)
    folder.rename(tmp_path / "moved")
    for place in ("copy", "moved"):
        dataset = Dataset.open(tmp_path / place)
        dataset.check()
        dataset.partition(0)


def reads(folder: Path) -> int:
    """Return how often another process reads a data file from start to end when it maps partition 0."""
    program = (
        "import sys; from hoptree.data import Dataset, verified\n"
        "calls = []; real = verified.checksum_of\n"
        "verified.checksum_of = lambda file: (calls.append(file.name), real(file))[1]\n"
        "Dataset.open(sys.argv[1]).partition(0); print(len(calls))"
    )
    done = subprocess.run([sys.executable, "-c", program, folder], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_a_file_is_read_once_per_machine_and_again_after_a_touch(folder: Path, records: Path) -> None:
    assert [reads(folder), reads(folder)] == [1, 0]
    os.utime(folder / "train-00000.arrow")
    settle(folder)
    assert [reads(folder), reads(folder)] == [1, 0]


def test_several_processes_read_a_file_once(folder: Path, records: Path) -> None:
    program = (
        "import sys; from hoptree.data import Dataset, verified\n"
        "calls = []; real = verified.checksum_of\n"
        "verified.checksum_of = lambda file: (calls.append(file.name), real(file))[1]\n"
        "data = Dataset.open(sys.argv[1]); sys.stdin.read(); data.partition(0); print(len(calls))"
    )
    command = [sys.executable, "-c", program, str(folder)]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in "1234"]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.stdin = None
    assert sorted(int(worker.communicate()[0]) for worker in workers) == [0, 0, 0, 1]


def test_records_that_others_could_have_written_are_not_trusted(folder: Path, records: Path) -> None:
    assert reads(folder) == 1
    records.chmod(0o777)
    assert [reads(folder), reads(folder)] == [1, 1]
    records.chmod(0o700)
    assert reads(folder) == 0
    records.rename(records.with_name("elsewhere"))
    records.symlink_to(records.with_name("elsewhere"))
    assert [reads(folder), reads(folder)] == [1, 1]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"path": "x"}'])
def test_an_incomplete_record_is_ignored(folder: Path, records: Path, content: bytes) -> None:
    assert reads(folder) == 1
    for path in records.iterdir():
        path.write_bytes(content)
    assert [reads(folder), reads(folder)] == [1, 0]


def test_the_hash_of_a_recently_written_file_is_not_cached(folder: Path) -> None:
    """An edit within the same tick of the file system's clock has the same change time."""
    program = (
        "import sys; from hoptree.data import Dataset, verified\n"
        "verified.time.time_ns = lambda: verified.os.stat(sys.argv[1] + '/train-00000.arrow').st_ctime_ns + 1000\n"
        "Dataset.open(sys.argv[1]).partition(0)"
    )
    subprocess.run([sys.executable, "-c", program, folder], check=True)
    assert [reads(folder), reads(folder)] == [1, 0]
