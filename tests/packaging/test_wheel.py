"""The wheel works in an environment with nothing else in it, and says which extra is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import hoptree

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")
pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program that finds no Hoptree but the installed one."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    [found] = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel, what it depends on, and no extra."""
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", folder / "environment", cwd=folder)
    programs = folder / "environment" / "bin"
    constraints = ("--constraint", ROOT / "constraints.txt")
    run(programs / "python", "-m", "pip", "install", "--quiet", *constraints, wheel, cwd=folder)
    return programs


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as files:
        [name] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(files.read(name))


def test_the_wheel_carries_the_version_the_package_and_no_relative_link(wheel: Path) -> None:
    found = metadata(wheel)
    assert found["Version"] == hoptree.__version__
    with zipfile.ZipFile(wheel) as files:
        carried = {name for name in files.namelist() if name.startswith("hoptree/")}
    package = ROOT / "src" / "hoptree"
    sources = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    assert carried == {name for name in sources if "__pycache__" not in name}
    text = str(found.get_payload())
    assert text.startswith("# Hoptree")
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []


def test_the_command_line_of_an_empty_environment(programs: Path, tmp_path: Path) -> None:
    assert "simulate" in run(programs / "hoptree", "--help", cwd=tmp_path).stdout
    assert hoptree.__version__ in run(programs / "hoptree", "--version", cwd=tmp_path).stdout
    assert "merge rate" in run(programs / "hoptree", "demo", "--simulate", cwd=tmp_path).stdout
    refused = run(programs / "hoptree", "demo", cwd=tmp_path, check=False)
    assert refused.returncode != 0
    assert "pip install 'hoptree[demo]'" in refused.stderr
    assert "Traceback" not in refused.stderr
    offered = run(programs / "hoptree", "doctor", cwd=tmp_path, check=False).stdout
    assert "hoptree[pandas]" in re.sub(r"\s+", "", offered)


def test_a_study_in_an_empty_environment(programs: Path, tmp_path: Path) -> None:
    program = Path(shutil.copy(SMOKE, tmp_path))  # beside nothing of this repository
    done = run(programs / "python", program, tmp_path, cwd=tmp_path)
    told = dict.fromkeys(line.split("\t")[0] for line in done.stdout.splitlines() if "\t" in line)
    for line in done.stdout.splitlines():
        if "\t" in line:
            extra, message = line.split("\t")
            assert f"'hoptree[{extra}]'" in message
    assert {*told} == {*offered_extras()} - {"demo", "importance"}  # those two: other tests


def offered_extras() -> list[str]:
    """Return the extras for users, which the page on installing lists."""
    page = (ROOT / "docs" / "install.md").read_text()
    return [
        name for row in re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
