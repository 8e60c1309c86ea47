"""A study that has ended, for all tests of exports."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exports.finished_study import PROGRAM


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, and the store that it made when python ran it."""
    folder = tmp_path_factory.mktemp("exports")
    shutil.copy(PROGRAM, folder / "tiny.py")
    ran = subprocess.run([sys.executable, "tiny.py"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return folder
