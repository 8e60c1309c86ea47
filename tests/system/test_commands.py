"""``hoptree run`` and ``hoptree verify`` on real programs in real processes, and commands while a study runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from hoptree.store import Store

PROGRAM = Path(__file__).with_name("tiny_study.py")

# a shell may start its background jobs with SIGINT ignored
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from hoptree.ui.cli import main
main()
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", MAIN, *arguments], cwd=folder, **pipes)


def hoptree(folder: Path, *arguments: str, code: int = 0) -> str:
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, out + err
    return out if code == 0 else out + err


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program that python has run."""
    folder = tmp_path_factory.mktemp("done")
    shutil.copy(PROGRAM, folder / "tiny.py")
    ran = subprocess.run([sys.executable, "tiny.py"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.slow
def test_what_python_has_run_is_not_trained_again(done: Path) -> None:
    printed = json.loads(hoptree(done, "run", "tiny.py", "--json"))
    assert printed["savings"]["epochs_trained"] == 0
    assert printed["savings"]["epochs_reused"] == 6
    assert printed["trials"] == {"complete": 4, "stopped": 0, "failed": 2, "running": 0}
    assert printed["store"] == str(done / ".hoptree")


@pytest.mark.slow
def test_what_run_has_trained_is_what_python_trains(done: Path, tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "tiny.py")
    printed = json.loads(hoptree(tmp_path, "run", "tiny.py", "--workers", "2", "--json"))
    assert printed["savings"]["epochs_trained"] == 6
    assert printed["best"]["fingerprint"] == json.loads(hoptree(done, "best", "tiny", "--json"))["fingerprint"]
    assert spec(tmp_path) == {**spec(done), "program": str(tmp_path / "tiny.py")}
    assert not (tmp_path / "__pycache__").exists()


def spec(folder: Path) -> dict[str, Any]:
    with Store(folder / ".hoptree", create=False) as store:
        known = store.catalog.find("tiny")
    assert known is not None
    return known.spec


@pytest.mark.slow
def test_the_lines_that_best_prints_load_the_model(done: Path) -> None:
    lines = json.loads(hoptree(done, "best", "tiny", "--json"))["python"]
    program = "\n".join([*lines, "import torch", "print(tuple(model(torch.zeros(5, 4)).shape))"])
    ran = subprocess.run([sys.executable, "-c", program], cwd=done, capture_output=True, text=True, timeout=900)
    assert ran.stdout == "(5, 3)\n", ran.stderr


@pytest.mark.slow
def test_verify_trains_the_same_bits(done: Path) -> None:
    printed = hoptree(done, "verify", "tiny").splitlines()
    assert [line.rpartition(": ")[2] for line in printed] == ["same bits"] * 4


@contextmanager
def stopped_at_the_gate(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the program until it builds a wide model, and let that go on at the end."""
    shutil.copy(PROGRAM, folder / "tiny.py")
    gate = folder / "gate"
    os.mkfifo(gate)
    process = start(folder, "run", "tiny.py", "--workers", "1", "--quiet")
    Thread(target=_open_when_over, args=(process, gate)).start()
    writer = os.open(gate, os.O_WRONLY)  # waits for a reader
    assert process.poll() is None, process.communicate()
    try:
        yield process
    finally:
        gate.unlink()
        os.close(writer)


def _open_when_over(process: subprocess.Popen[str], gate: Path) -> None:
    """Let nobody wait for the reader that a process would have been."""
    process.wait()
    with suppress(FileNotFoundError):
        os.close(os.open(gate, os.O_RDONLY | os.O_NONBLOCK))


@pytest.mark.slow
def test_a_study_can_be_read_while_it_runs(tmp_path: Path) -> None:
    with stopped_at_the_gate(tmp_path) as process:
        study = json.loads(hoptree(tmp_path, "show", "tiny", "--json"))
        assert (study["status"], study["driver"]["pid"]) == ("running", process.pid)
        assert (len(study["trials"]), study["trials"][-1]["state"]) == (6, "running")
        assert f"process {process.pid} on" in hoptree(tmp_path, "studies")
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    assert "tiny: 4 complete, 2 failed" in out
    assert json.loads(hoptree(tmp_path, "studies", "--json"))[0]["status"] == "finished"


@pytest.mark.parametrize("presses", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_ctrl_c_ends_a_run_that_can_continue(tmp_path: Path, presses: int) -> None:
    with stopped_at_the_gate(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "interrupt again to stop at once" in process.stderr.readline()
        if presses == 2:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=900)  # at once: the gate is still closed
    out, err = process.communicate(timeout=900)
    assert process.returncode == 130, err
    assert err == "Interrupted. Progress is saved; resume with: hoptree run tiny.py\n"
    assert ("unfinished" in out) == (presses == 1)  # only what ends in order tells how far it came
    assert json.loads(hoptree(tmp_path, "studies", "--json"))[0]["status"] == "stopped"
    assert "tiny: 4 complete, 2 failed" in hoptree(tmp_path, "run", "tiny.py", "--workers", "1")


def test_ctrl_c_while_a_program_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)")
    process = start(tmp_path, "run", "p.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=900)
    assert (process.returncode, err.startswith("Interrupted.")) == (130, True)
