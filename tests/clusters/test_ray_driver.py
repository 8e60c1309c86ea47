"""Drivers on a Ray cluster as programs of their own: killed, resumed, interrupted, and clusters that we start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.clusters.conftest import Nodes
from tests.system.processes import units_done_twice

ROOT = Path(__file__).parents[2]


def program(
    folder: Path, backend: str, workers: int = 2, last: int = 0, **environment: str
) -> subprocess.Popen[str]:
    """Start the program; at the report ``last`` it waits to be killed."""
    script = str(ROOT / "tests" / "clusters" / "driver.py")
    command = [sys.executable, script, str(folder), backend, str(workers), str(last)]
    paths = f"{ROOT / 'src'}:{ROOT}"
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=900)
    assert process.returncode == 0, out
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def signalled(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a program a signal in the middle of its work, and wait for its end."""
    assert process.stdout is not None
    for line in process.stdout:
        if "report 4" in line:
            process.send_signal(number)
            break
    process.communicate(timeout=900)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    found = outcome(program(tmp_path_factory.mktemp("local"), "local", 1))["fingerprints"]
    assert isinstance(found, list)
    return found


def test_a_cluster_is_started_and_stopped(tmp_path: Path, expected: list[str]) -> None:
    home = tmp_path / "home"  # of a machine on which Ray was never used
    home.mkdir()
    room = Path(mkdtemp(dir="/tmp"))  # sockets want short names
    found = outcome(program(tmp_path, "ray", 2, RAY_AUTH_MODE="disabled", HOME=str(home), RAY_TMPDIR=str(room)))
    assert not (home / ".ray").exists()  # the token is nowhere to be read
    room.rmdir()  # nor do its logs stay
    assert set(found["changed"]) <= {"RAY_CLIENT_MODE"}  # which Ray sets when it is imported
    assert found["handler"]
    assert found["fingerprints"] == expected
    assert found["mode"] == "token"  # while it ran
    assert found["left"] is False
    assert "token" not in found["after"]


@pytest.mark.slow
def test_a_driver_that_is_killed_is_resumed(tmp_path: Path, nodes: Nodes, expected: list[str]) -> None:
    nodes.add(2)
    signalled(program(tmp_path, "ray", 2, last=4, RAY_ADDRESS=nodes.address), signal.SIGKILL)
    assert len(list((tmp_path / "store").rglob("driver-*"))) == 1  # what a killed one leaves
    found = outcome(program(tmp_path, "ray", 2, RAY_ADDRESS=nodes.address))
    assert found["fingerprints"] == expected
    assert 0 < found["trained"] < 8  # three trials of three epochs, of which two share the first
    assert not list((tmp_path / "store").rglob("driver-*"))
    assert units_done_twice(tmp_path / "store", "plain") == 0


@pytest.mark.slow
def test_an_interrupt_saves_what_runs(tmp_path: Path, nodes: Nodes, expected: list[str]) -> None:
    nodes.add(2)
    signalled(program(tmp_path, "ray", 2, RAY_ADDRESS=nodes.address), signal.SIGINT)
    assert outcome(program(tmp_path, "local", 1))["fingerprints"] == expected  # on another backend, too
    assert units_done_twice(tmp_path / "store", "plain") == 0
