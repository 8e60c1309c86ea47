"""A real study in Weights & Biases, offline; its files are read back with wandb's own reader."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import hoptree as ht
from tests.system.plain import study as plain_study

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quiet_wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let wandb keep to itself: no network, no errors to its makers; and end its service."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()


def files(folder: Path) -> list[Path]:
    return sorted((folder / "wandb").glob("offline-run-*/run-*.wandb"))


def read(file: Path) -> dict[str, Any]:
    """Return what a file has of its run: who it is, config, curve by step, summary and exit code."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))
    found: dict[str, Any] = {"config": {}, "curve": {}, "summary": {}, "exit": None}
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        match record.WhichOneof("record_type"):
            case "run":
                found |= {"id": record.run.run_id, "name": record.run.display_name, "group": record.run.run_group}
                found["project"] = record.run.project
                found["config"] |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            case "history":
                row = {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in record.history.item}
                assert row["_step"] not in found["curve"]
                found["curve"][row["_step"]] = {k: v for k, v in row.items() if not k.startswith("_")}
            case "summary":
                items = record.summary.update
                found["summary"] |= {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in items}
            case "exit":
                found["exit"] = record.exit.exit_code
    store._fp.close()  # it has no way of its own
    return found


def test_every_trial_is_a_run(tmp_path: Path) -> None:
    study = plain_study(tmp_path, "fine", "raise", epochs=3)
    results = study.run(workers=2, mirror=ht.WandB(project="plains", folder=tmp_path))
    runs = {run["name"]: run for run in map(read, files(tmp_path))}
    assert sorted(runs) == ["plain-0", "plain-1"]
    fine, failed = runs["plain-0"], runs["plain-1"]
    assert (fine["project"], fine["group"]) == ("plains", "plain")
    assert fine["config"]["lr"] == 0.1
    assert fine["config"]["act"] == "fine"
    assert fine["curve"] == {epoch: dict(metrics) for epoch, metrics in results.trials[0].curve.items()}
    assert list(fine["curve"]) == [1, 2, 3]
    assert fine["summary"]["state"] == "complete"
    assert fine["summary"]["epochs"] == 3
    assert (fine["exit"], failed["exit"]) == (0, 1)
    assert failed["summary"]["state"] == "failed"
    assert "ValueError" in failed["summary"]["error"]
    before = files(tmp_path)
    study.mirror(ht.WandB(project="plains", folder=tmp_path))  # it is all there
    assert study.run(workers=1, mirror=ht.WandB(project="plains", folder=tmp_path)).savings.epochs_trained == 0
    assert files(tmp_path) == before


def test_a_resumed_study_continues_the_same_runs(tmp_path: Path) -> None:
    where = ht.WandB(project="plains", folder=tmp_path)
    study = plain_study(tmp_path, "fine", epochs=2)
    study.run(workers=1, mirror=where)
    first = read(files(tmp_path)[0])
    study.extend(0, epochs=4)
    study.run(workers=1, mirror=where)
    (other,) = [run for run in map(read, files(tmp_path)) if run["curve"] != first["curve"]]
    assert (first["id"], first["name"]) == (other["id"], other["name"])
    assert (list(first["curve"]), list(other["curve"])) == ([1, 2], [3, 4])  # nothing is doubled
    assert other["summary"]["epochs"] == 4


def test_schedules_are_text_and_studies_have_runs_of_their_own(tmp_path: Path) -> None:
    space = {"lr": ht.multistep(0.1, at=[1], gamma=0.1), "act": "fine", "nap": 0.0, "where": ""}
    first = plain_study(tmp_path, name="one", space=space)
    second = plain_study(tmp_path, name="two", space=space, data=first.data)
    ht.run([first, second], workers=1, mirror=ht.WandB(project="plains", folder=tmp_path))
    runs = [read(file) for file in files(tmp_path)]
    assert sorted(run["name"] for run in runs) == ["one-0", "two-0"]
    assert runs[0]["id"] != runs[1]["id"]
    assert runs[0]["config"]["lr"] == "multistep(0.1, [1], 0.1)"


def test_an_error_of_wandb_does_not_stop_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    where = ht.WandB(project="plains", folder=tmp_path)
    study = plain_study(tmp_path, "fine", "other", epochs=2)
    study.run(workers=1, mirror=where)
    (note,) = (tmp_path / "wandb").glob("hoptree-*.json")
    note.with_suffix(".new").mkdir()  # so that what was written cannot be noted
    study.extend(0, epochs=4)
    with caplog.at_level(logging.WARNING, "hoptree"):
        results = study.run(workers=1, mirror=where)
    assert [(trial.state, trial.epochs) for trial in results.trials] == [("complete", 4), ("complete", 2)]
    told = [record.getMessage() for record in caplog.records]
    assert sum("training continues" in line for line in told) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"project": ""}, "project: ''; expected the name of a project"),
        ({"project": "a/b"}, "project: 'a/b'; expected a name without / "),
        ({"project": "p", "mode": "later"}, "mode: 'later'; expected 'online' or 'offline'"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ht.WorkloadError, match=message):
        ht.WandB(**settings)


def test_without_wandb_nothing_begins(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
import importlib.util
found = importlib.util.find_spec  # as if it were not installed
importlib.util.find_spec = lambda name, *more: None if name == "wandb" else found(name, *more)
import hoptree as ht
from tests.system.plain import study
try:
    study(Path(sys.argv[1])).run(workers=1, mirror=ht.WandB(project="p", folder=sys.argv[1]))
except ht.MissingExtraError as error:
    print(error)
"""
    done = run_program(program, tmp_path)
    assert "needs wandb, which is not installed; pip install 'hoptree[wandb]'" in done.stdout
    assert "complete" not in done.stderr


@pytest.mark.parametrize("ending", ["pass", "os.kill(os.getpid(), 9)"], ids=["ends", "is killed"])
def test_its_service_ends_with_the_driver(tmp_path: Path, ending: str) -> None:
    program = """
import os, sys, psutil
from pathlib import Path
import hoptree as ht
from tests.system.plain import study
if __name__ == "__main__":
    study(Path(sys.argv[1])).run(workers=1, mirror=ht.WandB(project="p", folder=sys.argv[1]))
    for process in psutil.Process().children(recursive=True):
        print(process.pid, process.name(), flush=True)
    ENDING
"""
    done = run_program(program.replace("ENDING", ending), tmp_path)
    assert done.returncode == (0 if ending == "pass" else -9), done.stderr
    lines = [line for line in done.stdout.splitlines() if "wandb" in line]
    assert lines, done.stdout  # it was there
    for line in lines:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(int(line.split()[0])).wait(timeout=900)
    assert len(files(tmp_path)) == 1


def run_program(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(folder / "program.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900)
