"""Folders that may be read and not written: looking works, and what cannot be done is refused by name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hoptree.store import Store
from tests.powerless import powerless

# runs commands one after the other, and prints how each ended and what it said
RUNNER = """
import contextlib, io, json, sys
from hoptree.ui.cli import cli
from hoptree.ui.exit_codes import guarded

ended = []
for line in json.loads(sys.argv[1]):
    sys.argv[1:] = line.split()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = guarded(cli)
    ended.append((code, said.getvalue()))
print(json.dumps(ended))
"""


def run(folder: Path, *lines: str) -> list[tuple[int, str]]:
    command = [sys.executable, "-c", RUNNER, json.dumps(lines)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, preexec_fn=powerless)
    assert done.returncode == 0, done.stderr
    return [(code, said) for code, said in json.loads(done.stdout)]


@pytest.fixture
def closed(folder: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of a program and its store that nobody may write."""
    place = tmp_path / "closed"
    shutil.copytree(folder, place)
    close(place)
    yield place
    for path in [place, *place.rglob("*")]:
        path.chmod(0o755)


def close(place: Path) -> None:
    for path in [*place.rglob("*"), place]:
        path.chmod(0o555 if path.is_dir() else 0o444)


def test_a_store_can_be_read_without_write_permission(closed: Path) -> None:
    look = ("studies", "show tiny", "trials tiny", "best tiny", "clean", "explain tiny.py")
    ended = run(closed, *look)
    assert [code for code, _ in ended] == [0] * len(look), ended
    assert "4 complete, 2 failed" in ended[0][1]


def test_a_path_that_cannot_be_written_is_refused_by_name(closed: Path) -> None:
    expected = {
        "extend tiny 0 --epochs 4": "this user has read permission only",
        "run tiny.py": "that you have write permission",
        "clean --yes --logs": "Permission denied; expected a path that can be written",
        "export tiny --to trials.csv": f"--to: no write permission for {closed}",
        "export tiny --to best.pt": f"--to: no write permission for {closed}",
        "export tiny --to report.html": f"--to: no write permission for {closed}",
        "export tiny --bundle tiny.zip": "Permission denied; expected a path that can be written",
        "plot tiny curves --save curves.svg": "curves.svg: Permission denied; expected a path that can be written",
        "plot tiny all --save plots": "plots: Permission denied; expected a path that can be written",
    }
    for (line, words), (code, said) in zip(expected.items(), run(closed, *expected), strict=True):
        assert code == 2, (line, said)
        assert words in said, line


def test_a_store_in_use_can_be_read(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "driven"
    shutil.copytree(folder, place)
    with Store(place / ".hoptree") as store, store.lease("other") as lease:
        lease.renew()
        assert (place / ".hoptree" / "journal.sqlite-wal").stat().st_size > 0
        close(place)
        (code, said), *_ = run(place, "studies")
        for path in [place, *place.rglob("*")]:
            path.chmod(0o755)
    assert code == 0, said
    assert "4 complete, 2 failed" in said


def test_a_folder_without_a_store_is_refused_before_anything_runs(tmp_path: Path, folder: Path) -> None:
    place = tmp_path / "closed"
    place.mkdir()
    shutil.copy(folder / "tiny.py", place)
    close(place)
    (code, said), *_ = run(place, "run tiny.py")
    assert code == 2
    assert "DataError: to: cannot build a dataset in " in said
    assert "Permission denied; expected a writable folder" in said
    assert "at tiny.py, line " in said
