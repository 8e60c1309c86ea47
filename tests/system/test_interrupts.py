"""Drivers that are killed, interrupted or run out of room: nothing is lost, nothing is left behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hoptree as ht
from hoptree import HoptreeError
from hoptree.backends.local import slots_of
from hoptree.store import Store
from tests.system.plain import study
from tests.system.processes import alive, descendants, units_done_twice

ROOT = Path(__file__).parents[2]


def start(
    folder: Path, nap: float = 0.0, size: int = 16, search: str = "grid", **options: Any
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.system.plain_study", str(folder), str(nap), str(size), search]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes, **options)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return dict(json.loads(out))


def count(folder: Path, kind: str) -> int:
    """Return how many events of a kind are in the journal."""
    try:
        with Store(folder / "store", create=False) as store:
            return sum(type(entry.event).__name__ == kind for entry in store.journal.read("plain"))
    except HoptreeError:
        return 0


def wait_for(folder: Path, kind: str, enough: int) -> None:
    end = time.monotonic() + 60
    while count(folder, kind) < enough:
        assert time.monotonic() < end, "the study does not get on"
        time.sleep(0.02)


def leftovers(folder: Path) -> list[Path]:
    slots = [path for path in slots_of(folder / "store", "plain") if path.exists()]
    return [*slots, *(folder / "store").rglob("*.partial")]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return finish(start(tmp_path_factory.mktemp("reference"), nap=0.1))


def test_what_a_killed_driver_left_in_memory_is_not_expected_to_be_trained_again(tmp_path: Path) -> None:
    process = start(tmp_path, nap=0.1)
    wait_for(tmp_path, "UnitFinished", 8)
    workers = descendants(process.pid)
    process.kill()
    process.communicate()
    assert alive(workers) == []
    space = {"lr": ht.choice(0.1, 0.2, ht.multistep(0.1, at=[2], gamma=0.5)), "nap": 0.1}
    mine = study(tmp_path, space=space, epochs=4)
    told = mine.explain(workers=2)
    assert told.happened is not None
    assert told.happened.units >= 8
    assert told.epochs_trained == mine.run(workers=2, quiet=True).savings.epochs_trained


def test_killed_at_ten_random_moments_and_resumed(tmp_path: Path, reference: dict[str, Any]) -> None:
    random = Random(7)
    workers: list[int] = []
    for round_ in range(10):
        process = start(tmp_path, nap=0.1)
        wait_for(tmp_path, "UnitFinished", min(round_ + 1, 9))
        time.sleep(random.uniform(0.0, 0.15))
        mine = descendants(process.pid)
        workers += mine
        if mine and random.random() < 0.5:
            os.kill(random.choice(mine), signal.SIGKILL)
            time.sleep(random.uniform(0.0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    result = finish(start(tmp_path, nap=0.1))
    assert result["states"] == ["complete"] * 3
    assert result["fingerprints"] == reference["fingerprints"]
    assert units_done_twice(tmp_path / "store", "plain") == 0
    assert alive(workers) == []
    assert leftovers(tmp_path) == []


def test_population_based_training_killed_twice_and_resumed(tmp_path: Path) -> None:
    unharmed, hurt = tmp_path / "unharmed", tmp_path / "hurt"
    unharmed.mkdir()
    hurt.mkdir()
    for units in (10, 40):
        process = start(hurt, nap=0.02, search="pbt")
        wait_for(hurt, "UnitFinished", units)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    resumed = finish(start(hurt, nap=0.02, search="pbt"))
    assert count(hurt, "TrialBranched") > 0
    assert resumed["states"].count("complete") == 8
    whole = finish(start(unharmed, nap=0.02, search="pbt"))
    assert (resumed["states"], resumed["fingerprints"]) == (whole["states"], whole["fingerprints"])
    assert units_done_twice(hurt / "store", "plain") == 0


def test_an_interrupt_drains_and_loses_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, nap=0.2)
    wait_for(tmp_path, "UnitFinished", 3)
    workers = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    first = finish(process)
    assert "running" in first["states"]
    assert alive(workers) == []
    assert leftovers(tmp_path) == []
    second = finish(start(tmp_path, nap=0.2))
    assert second["states"] == ["complete"] * 3
    assert first["trained"] + second["trained"] == 4 + 4 + 2  # the third shares two epochs with the first
    assert units_done_twice(tmp_path / "store", "plain") == 0


def test_a_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    process = start(tmp_path, nap=60.0)
    wait_for(tmp_path, "WorkerJoined", 1)
    workers = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err
    assert "interrupt again to stop at once" in err
    assert alive(workers) == []
    assert leftovers(tmp_path) == []


def test_a_full_disk_stops_the_study_and_loses_nothing(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    process = start(tmp_path, size=1 << 18, preexec_fn=small_files)  # states of 2 MiB
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "no room for a state of 2." in err
    assert "free some space and run again" in err
    result = finish(start(tmp_path, size=1 << 18))
    assert result["states"] == ["complete"] * 3
    assert leftovers(tmp_path) == []


def test_a_damaged_checkpoint_is_trained_again(tmp_path: Path) -> None:
    process = start(tmp_path, nap=0.2)
    wait_for(tmp_path, "UnitFinished", 3)
    os.killpg(process.pid, signal.SIGINT)
    finish(process)
    states = sorted((tmp_path / "store" / "states").rglob("*.safetensors"))
    assert states
    for state in states:
        content = bytearray(state.read_bytes())
        content[-1] ^= 1
        state.write_bytes(content)
    result = finish(start(tmp_path, nap=0.2))
    assert result["states"] == ["complete"] * 3
    alone = tmp_path / "alone"
    alone.mkdir()
    assert result["fingerprints"] == finish(start(alone, nap=0.2))["fingerprints"]
