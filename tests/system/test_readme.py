"""Programs in the README and the journey run as written and print what the pages say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
JOURNEY = README.parent / "docs" / "journey.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(language: str, page: Path = README) -> list[str]:
    return [body for found, body in BLOCK.findall(page.read_text()) if found == language]


def run(directory: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=directory, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_training_program_trains_and_then_trains_nothing(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(blocks("python")[0])
    assert "24 epochs asked, 16 trained, 8 shared" in run(tmp_path, "program.py")
    assert "0 trained, 8 shared, 16 reused" in run(tmp_path, "program.py")


@pytest.mark.slow
def test_the_training_program_gives_the_same_bits_on_ray(tmp_path: Path) -> None:
    program = blocks("python")[0] + "    print(*(trial.fingerprint for trial in results.trials))\n"
    here = "study.run(workers=2)"
    assert here in program
    found = set()
    for number, there in enumerate([here, *(f'study.run(workers={count}, backend="ray")' for count in (1, 2))]):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "program.py").write_text(program.replace(here, there))
        found.add(run(tmp_path / str(number), "program.py").splitlines()[-1])
    (bits,) = found
    assert len(set(bits.split())) == 4


def test_the_program_prints_the_table(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(blocks("python")[1])
    printed = run(tmp_path, "program.py")
    assert blocks("")[0].strip() in printed
    assert (tmp_path / "gantt.svg").read_text() == (README.parent / "docs" / "pictures" / "gantt.svg").read_text()


def test_the_file_is_the_same_study(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(blocks("toml")[0])
    command = "from hoptree.ui.cli import main; main()"
    assert blocks("")[0].strip() in run(tmp_path, "-c", command, "simulate", "study.toml", "--no-gantt")


def test_the_journey_shows_the_real_trace(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(blocks("python", JOURNEY)[0])
    printed = run(tmp_path, "program.py").splitlines()
    shown = [line for block in blocks("", JOURNEY) for line in block.splitlines()]
    assert shown
    assert [line for line in shown if line not in printed and line.strip("… ")] == []
