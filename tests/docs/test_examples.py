"""Every example runs as written, finds something good, and trains nothing when it is run again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.services import FASHION_MNIST, require

GOOD_ENOUGH = {"fashion": 0.7, "own_loop": 0.9, "tables": 0.9, "text": 0.3}
A_PART = ROOT / "examples" / "own_backend.py"  # no study: see tests/testing
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - {A_PART})


def run(example: Path, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(example)]
    environ = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environ)


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=[example.stem for example in EXAMPLES])
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    if example.stem == "fashion":
        require(FASHION_MNIST)
    first = run(example, tmp_path)
    assert first.returncode == 0, first.stderr
    accuracy = re.search(r"accuracy (\S+)[,\n]", first.stdout)
    assert accuracy is not None
    assert float(accuracy[1]) > GOOD_ENOUGH[example.stem], first.stdout
    again = run(example, tmp_path)
    assert " 0 trained" in again.stdout, again.stdout + again.stderr


def test_fashion_says_what_it_needs(tmp_path: Path) -> None:
    done = run(ROOT / "examples" / "fashion.py", tmp_path, FASHION_MNIST=str(tmp_path))
    assert done.returncode == 1
    assert "apt install dataset-fashion-mnist" in done.stderr
    assert "Traceback" not in done.stderr
