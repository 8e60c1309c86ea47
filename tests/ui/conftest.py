"""A small study that was run once, for all tests of commands that look at one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "system" / "tiny_study.py"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, and the store that it made when python ran it."""
    folder = tmp_path_factory.mktemp("commands")
    shutil.copy(PROGRAM, folder / "tiny.py")
    done = subprocess.run([sys.executable, "tiny.py"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A copy of the store, to be changed."""
    return Path(shutil.copytree(folder / ".hoptree", tmp_path / "copy"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands run in a folder of the test's own: a program that they load makes its dataset there."""
    monkeypatch.chdir(tmp_path)
