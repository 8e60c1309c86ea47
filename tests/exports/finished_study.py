"""A study that has ended, to export, and the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from hoptree.ui.cli import cli

PROGRAM = Path(__file__).parents[1] / "system" / "tiny_study.py"


def invoke(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--store", str(folder / ".hoptree")])


def done(folder: Path, *arguments: str) -> str:
    result = invoke(folder, *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def hoptree(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run a command as a process of its own."""
    command = [sys.executable, "-c", "from hoptree.ui.cli import main; main()", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout if code == 0 else ran.stdout + ran.stderr
