"""Drivers that are killed, interrupted or run out of disk: nothing is lost, nothing is left behind."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hoptree as ht
from hoptree import HoptreeError
from hoptree.backends.local import slot_folders, slot_folders_of_study
from hoptree.core.events import TrialAsked
from hoptree.store import Store
from hoptree.worker.slots import find_states
from tests.system.plain import study
from tests.system.processes import alive, units_done_twice, workers_of

ROOT = Path(__file__).parents[2]


def start(
    folder: Path, nap: float = 0.0, size: int = 16, search: str = "grid", **options: Any
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.system.plain_study", str(folder), str(nap), str(size), search]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes, **options)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return dict(json.loads(out))


def count(folder: Path, kind: str) -> int:
    """Return how many events of a kind are in the journal."""
    try:
        with Store(folder / "store", create=False) as store:
            return sum(type(recorded.entry.event).__name__ == kind for recorded in store.journal.read("plain"))
    except HoptreeError:
        return 0


def wait_for(folder: Path, kind: str, enough: int) -> None:
    end = time.monotonic() + 900  # a guard against hanging: no test waits so long, however busy the machine
    while count(folder, kind) < enough:
        assert time.monotonic() < end, "the study does not get on"
        time.sleep(0.02)


def leftovers(folder: Path) -> list[Path]:
    slots = [path for path in slot_folders_of_study(folder / "store", "plain") if path.exists()]
    return [*slots, *(folder / "store").rglob("*.partial")]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return finish(start(tmp_path_factory.mktemp("reference"), nap=0.1))


@pytest.mark.slow
def test_states_of_a_killed_driver_in_memory_are_not_part_of_the_forecast(tmp_path: Path) -> None:
    process = start(tmp_path, nap=0.1)
    wait_for(tmp_path, "UnitFinishedFact", 8)
    workers = workers_of(process.pid)
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
        wait_for(tmp_path, "UnitFinishedFact", min(round_ + 1, 9))
        time.sleep(random.uniform(0.0, 0.15))
        mine = workers_of(process.pid)
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


@pytest.mark.slow
def test_population_based_training_killed_twice_and_resumed(tmp_path: Path) -> None:
    unharmed, hurt = tmp_path / "unharmed", tmp_path / "hurt"
    unharmed.mkdir()
    hurt.mkdir()
    for units in (10, 40):
        process = start(hurt, nap=0.02, search="pbt")
        wait_for(hurt, "UnitFinishedFact", units)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    resumed = finish(start(hurt, nap=0.02, search="pbt"))
    assert count(hurt, "TrialBranched") > 0
    assert resumed["states"].count("complete") == 8
    whole = finish(start(unharmed, nap=0.02, search="pbt"))
    assert (resumed["states"], resumed["fingerprints"]) == (whole["states"], whole["fingerprints"])
    assert units_done_twice(hurt / "store", "plain") == 0


@pytest.mark.slow
def test_asynchronous_optuna_killed_twice_continues_as_its_journal_says(tmp_path: Path) -> None:
    """What it proposes depends on the order of the reports; a driver that goes on is told them in that order."""
    begun: list[list[str]] = []
    for units in (6, 24):
        process = start(tmp_path, nap=0.05, search="optuna")
        wait_for(tmp_path, "UnitFinishedFact", units)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        with Store(tmp_path / "store", create=False) as store:
            events = [recorded.entry.event for recorded in store.journal.read("plain")]
        begun.append([str(dict(event.config)) for event in events if isinstance(event, TrialAsked)])
    assert len(begun[1]) > 3 + 3  # some follow from losses
    assert begun[1][: len(begun[0])] == begun[0]
    result = finish(start(tmp_path, nap=0.05, search="optuna"))
    assert result["states"] == ["complete"] * 12
    again = finish(
        start(tmp_path, nap=0.05, search="optuna")
    )  # a search that decides differently would raise an error
    assert again["trained"] == 0
    assert again["configs"] == result["configs"]
    assert [str(config["lr"]) in told for config, told in zip(result["configs"], begun[1], strict=False)] == [
        True
    ] * len(begun[1])


def test_an_interrupt_drains_and_loses_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, nap=0.2)
    wait_for(tmp_path, "UnitFinishedFact", 3)
    workers = workers_of(process.pid)
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
    workers = workers_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=900)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err
    assert "interrupt again to stop at once" in err
    assert alive(workers) == []
    assert leftovers(tmp_path) == []


def test_a_full_disk_stops_the_study_and_loses_nothing(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    process = start(tmp_path, size=1 << 18, preexec_fn=small_files)  # states of 2 MiB
    _, err = process.communicate(timeout=900)
    assert process.returncode != 0
    assert "no room for a state of 2." in err
    assert "free some space and run again" in err
    result = finish(start(tmp_path, size=1 << 18))
    assert result["states"] == ["complete"] * 3
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_a_damaged_checkpoint_is_trained_again(tmp_path: Path) -> None:
    process = start(tmp_path, nap=0.2)
    wait_for(tmp_path, "UnitFinishedFact", 3)
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


def second_interrupt(process: subprocess.Popen[str]) -> None:
    """Interrupt a driver, and again once it has heard that."""
    assert process.stderr is not None
    os.kill(process.pid, signal.SIGINT)
    while "interrupt again" not in process.stderr.readline():
        assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)


@pytest.mark.slow
def test_a_second_interrupt_loses_no_more_than_a_kill(tmp_path: Path, reference: dict[str, Any]) -> None:
    process = start(tmp_path, nap=0.1)
    wait_for(tmp_path, "UnitFinishedFact", 8)
    second_interrupt(process)
    process.communicate(timeout=900)
    result = finish(start(tmp_path, nap=0.1))
    assert result["fingerprints"] == reference["fingerprints"]
    assert count(tmp_path, "StateLostFact") == 0
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_an_interrupt_on_a_full_disk_loses_no_more_than_a_kill(tmp_path: Path) -> None:
    process = start(tmp_path, nap=0.1, size=1 << 20)  # states of 8 MiB
    wait_for(tmp_path, "UnitFinishedFact", 8)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=900)
    assert process.returncode != 0
    assert "no room for the state" in err
    result = finish(start(tmp_path, nap=0.1, size=1 << 20))
    assert result["states"] == ["complete"] * 3
    assert count(tmp_path, "StateLostFact") == 0
    assert leftovers(tmp_path) == []


def slots(folder: Path) -> list[Path]:
    """Return the slots that hold a state."""
    return [
        Path(slot) for slot in find_states(slot_folders(slot_folders_of_study(folder / "store", "plain"))).values()
    ]


@pytest.mark.parametrize(
    "damage", ["array", *(pytest.param(d, marks=pytest.mark.slow) for d in ("header", "cut", "gone"))]
)
def test_slots_that_are_damaged_between_two_runs_are_lost_states(
    tmp_path: Path, reference: dict[str, Any], damage: str
) -> None:
    process = start(tmp_path, nap=0.1)
    wait_for(tmp_path, "UnitFinishedFact", 8)
    process.kill()
    process.communicate()
    hurt = slots(tmp_path)
    assert hurt
    for slot in hurt:
        content = bytearray(slot.read_bytes())
        if damage == "gone":
            slot.unlink()
        elif damage == "cut":
            os.truncate(slot, len(content) // 1000)
        else:
            used = int.from_bytes(content[16:24], "little")
            content[used - 1 if damage == "array" else 24] ^= 0xFF
            slot.write_bytes(content)
    result = finish(start(tmp_path, nap=0.1))
    assert result["states"] == ["complete"] * 3
    assert result["fingerprints"] == reference["fingerprints"]
    assert count(tmp_path, "StateLostFact") > 0
    assert leftovers(tmp_path) == []


def forget_heartbeat(folder: Path) -> None:
    """Let the lease of a study look as if its holder had been silent for long."""
    from sqlalchemy import update

    from hoptree.store.tables import LEASES

    with Store(folder / "store", create=False) as store, store._database.writing() as connection:
        connection.execute(update(LEASES).values(heartbeat=LEASES.c.heartbeat - 1000))


def stop_between_writes(pid: int, folder: Path) -> None:
    """Stop a driver while it does not write: SQLite waits for a writer, however long it is stopped."""
    for _ in range(100):
        os.kill(pid, signal.SIGSTOP)
        try:
            with closing(sqlite3.connect(folder / "store" / "journal.sqlite", timeout=0.2)) as connection:
                connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)
    raise AssertionError("the driver was writing whenever it was stopped")


def test_a_driver_that_was_stopped_leaves_the_slots_of_its_successor_alone(
    tmp_path: Path, reference: dict[str, Any]
) -> None:
    first = start(tmp_path, nap=0.1)
    wait_for(tmp_path, "UnitFinishedFact", 3)
    stop_between_writes(first.pid, tmp_path)
    forget_heartbeat(tmp_path)
    second = start(tmp_path, nap=0.1)
    wait_for(tmp_path, "UnitFinishedFact", count(tmp_path, "UnitFinishedFact") + 2)
    os.kill(first.pid, signal.SIGINT)
    os.kill(first.pid, signal.SIGCONT)
    first.communicate(timeout=900)
    assert first.returncode != 0
    result = finish(second)
    assert result["states"] == ["complete"] * 3
    assert result["fingerprints"] == reference["fingerprints"]
    assert count(tmp_path, "RunFailedFact") == 0
    assert leftovers(tmp_path) == []


def test_processes_of_user_code_end_with_a_killed_driver(tmp_path: Path) -> None:
    process = start(tmp_path, nap=0.1, search="children")
    wait_for(tmp_path, "UnitFinishedFact", 2)
    workers = workers_of(process.pid)
    with process:  # closes its pipes, which a child that lives on would hold
        process.kill()
    children = [int(line) for line in (tmp_path / "flag").read_text().split()]
    assert len(children) >= 2
    assert alive([*workers, *children]) == []


@pytest.mark.parametrize("closed", ["afterwards", "from the beginning"])
def test_a_closed_output_does_not_end_the_run(tmp_path: Path, closed: str) -> None:
    if closed == "afterwards":
        process = start(tmp_path, search="print")
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
    else:
        program = [sys.executable, "-m", "tests.system.plain_study", str(tmp_path), "0", "16", "print"]
        line = 'exec "$0" "$@" >&- 2>&-'
        process = subprocess.Popen(["sh", "-c", line, *program], cwd=ROOT, start_new_session=True, text=True)
    process.wait(timeout=900)
    assert count(tmp_path, "RunFailedFact") == 0
    with Store(tmp_path / "store", create=False) as store:
        known = store.catalog.find("plain")
        assert known is not None
        assert known.status == "finished"
