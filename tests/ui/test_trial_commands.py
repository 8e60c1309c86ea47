"""``hoptree trials``, user requests, and ``clean``, on a study that was run once; requests are then run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shutil
import sqlite3
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import hoptree as ht
from hoptree.store import FolderStates, Store
from hoptree.ui.cli import cli
from hoptree.ui.study_tables import brief
from tests.ui.test_every_command import MAIN, hoptree


def invoke(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--store", str(store)])


def figures(store: Path, *arguments: str) -> Any:
    result = invoke(store, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def refused(store: Path, *arguments: str) -> str:
    result = invoke(store, *arguments)
    assert isinstance(result.exception, ht.HoptreeError), result.output
    return str(result.exception)


# --- trials -----------------------------------------------------------------------------------------------


def test_trials_are_sorted_with_the_best_first_and_what_is_missing_last(folder: Path) -> None:
    store = folder / ".hoptree"
    found = figures(store, "trials", "tiny", "--sort", "accuracy")
    values = [trial["metrics"].get("accuracy") for trial in found]
    known = [value for value in values if value is not None]
    assert values == [*sorted(known, reverse=True), None, None]
    back = figures(store, "trials", "tiny", "--sort", "accuracy", "--reverse")
    assert [trial["metrics"].get("accuracy") for trial in back] == [*sorted(known), None, None]
    widths = [trial["config"]["width"] for trial in figures(store, "trials", "tiny", "--sort", "width")]
    assert widths == [5, 5, 8, 8, 16, 16]
    lr = [trial["config"]["lr"] for trial in figures(store, "trials", "tiny", "--sort", "lr")]
    assert lr == [0.1] * 3 + ["multistep(0.1, [1], 0.1)"] * 3  # numbers before schedules


def test_trials_are_chosen(folder: Path) -> None:
    store = folder / ".hoptree"
    assert [t["number"] for t in figures(store, "trials", "tiny", "--state", "failed")] == [2, 3]
    assert len(figures(store, "trials", "tiny", "--state", "failed", "--state", "complete", "--limit", "5")) == 5
    assert invoke(store, "trials", "tiny", "--state", "stopped").output == "No trial of tiny is stopped.\n"
    table = invoke(store, "trials", "tiny", "--columns", "width, curve,error").output.splitlines()
    assert table[0].split() == ["trial", "width", "curve", "error"]
    assert len(table) == 8
    assert "column: no column 'lrr'; expected one of number, state, epochs" in refused(
        store, "trials", "tiny", "--sort", "lrr"
    )


# --- user requests -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_requests_are_carried_out_when_the_study_runs_again(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(folder, place)
    store = place / ".hoptree"
    told = invoke(store, "extend", "tiny", "0", "--epochs", "3").output
    assert told == f"tiny: trial 0 continues until epoch 3 when it runs again: hoptree run {folder / 'tiny.py'}\n"
    clone = figures(store, "clone", "tiny", "1", "--set", "lr=0.01", "--at", "1", "--epochs", "2")
    assert clone["config"] == {"batch_size": 16, "lr": 0.01, "width": 8}
    figures(store, "add", "tiny", "--set", "lr=cosine(0.1, period=2)", "--set", "width=16", "--epochs", "1")
    done = hoptree("run", "tiny.py", "--json", "--quiet", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    trials = figures(store, "trials", "tiny")
    assert [trial["state"] for trial in trials] == (["complete"] * 2 + ["failed"] * 2 + ["complete"] * 4)
    assert [trials[i]["epochs"] for i in (0, 6, 7)] == [3, 2, 1]
    assert trials[7]["config"]["width"] == 16
    assert trials[7]["config"]["lr"].startswith("cosine(0.1, ")
    assert "trial 1, epoch 1" in invoke(store, "trials", "tiny").output.splitlines()[2 + 6]
    alone = invoke(store, "show", "tiny", "--trial", "6").output
    assert f"trial 1 at epoch 1, with lr={trials[1]['config']['lr']} until then" in alone


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stop", "tiny", "9"], "trial 9 of 'tiny': no such trial"),
        (["extend", "tiny", "2", "--epochs", "9"], "trial 2: it is failed; clone it"),
        (["extend", "tiny", "0", "--epochs", "2"], "epochs: 2; expected more than the 2 epochs that trial 0 has"),
        (["stop", "tiny", "0"], "trial 0: it is already complete"),
        (["stop", "tiny", "2"], "trial 2: it is already failed"),
        (["retry", "tiny", "0"], "trial 0 of 'tiny': it is complete; expected a failed trial"),
        (["retry", "tiny", "9"], "trial 9 of 'tiny': no such trial"),
        (["clone", "tiny", "0", "--at", "1", "--epochs", "3"], "config: no value is changed"),
        (["clone", "tiny", "2", "--at", "1", "--epochs", "3", "--set", "lr=1"], "it has reached none: add its"),
        (["clone", "tiny", "0", "--at", "0", "--epochs", "3", "--set", "lr=1"], "at: 0; expected a whole number"),
        (["add", "tiny", "--set", "rl=1", "--epochs", "3"], "no config of tiny has the name 'rl'; expected one of"),
        (["add", "tiny", "--like", "9", "--set", "lr=1", "--epochs", "3"], "trial 9 of 'tiny': no such trial"),
        (["clone", "tiny", "0", "--at", "9", "--epochs", "3", "--set", "lr=1"], "at: epoch 9 of trial 0"),
        (["clone", "tiny", "0", "--at", "1", "--epochs", "1", "--set", "lr=1"], "epochs: 1; expected more than"),
        (
            ["clone", "tiny", "0", "--at", "1", "--epochs", "2", "--set", "rl=1"],
            "no config of tiny has the name 'rl'",
        ),
        (["clone", "tiny", "0", "--at", "1", "--epochs", "2", "--set", "lr"], "expected NAME=VALUE"),
        (["clone", "tiny", "0", "--at", "1", "--epochs", "2", "--set", "lr=wave(1)"], "unknown schedule wave"),
        (["add", "tiny", "--set", "lr=1", "--epochs", "0"], "epochs: 0; expected a whole number, at least 1"),
    ],
)
def test_impossible_requests_are_refused(copy: Path, arguments: list[str], message: str) -> None:
    assert message in refused(copy, *arguments)
    with Store(copy, create=False) as store:
        assert store.requests.after("tiny", 0) == []


# --- cleaning ---------------------------------------------------------------------------------------------


def kinds(found: Any) -> dict[str, tuple[int, int]]:
    return {each["kind"]: (each["count"], each["can_go"]) for each in found["holdings"]}


def test_clean_removes_nothing_without_confirmation(copy: Path) -> None:
    FolderStates(copy / "states").put("ab12", {}, {"stray": 1})
    before = sorted(path for path in copy.rglob("*") if path.is_file())
    found = figures(copy, "clean")
    states, can_go = kinds(found)["states"]
    assert (
        states - can_go == found["studies"][0]["states"] == 4
    )  # of complete trials; the others are for later studies
    assert kinds(found)["strays"] == (1, 1)
    assert (found["done"], found["freed"]) == (False, 0)
    assert "Nothing was removed. --yes would free" in invoke(copy, "clean").output
    assert sorted(path for path in copy.rglob("*") if path.is_file()) == before


def test_clean_frees_what_it_says(copy: Path) -> None:
    FolderStates(copy / "states").put("ab12", {}, {"stray": 1})
    said = figures(copy, "clean")
    frees = sum(each["frees"] for each in said["holdings"] if each["kind"] in said["chosen"])
    size = sum(FolderStates(copy / "states").sizes().values())
    done = figures(copy, "clean", "--yes")
    assert done["freed"] == frees == size - sum(FolderStates(copy / "states").sizes().values()) > 0
    assert figures(copy, "verify", "tiny", "0")[0]["same"]  # what a study needs has stayed
    assert kinds(figures(copy, "clean", "--yes", "--logs"))["logs"][0] == 2
    assert not list((copy / "logs").iterdir())


def test_forgetting_frees_what_it_says(copy: Path) -> None:
    with Store(copy) as store:
        known = store.catalog.find("tiny")
        assert known is not None
        store.catalog.register("twin", known.spec)  # needs the same states: only both together can let them go
        store.ledger.hold([record.key for record in store.ledger.all() if record.held_by], "twin")
    (copy / "data" / "odd").mkdir()
    (copy / "data" / "odd" / "manifest.json").write_text("{}")  # cannot be read, and keeps nothing from being done
    said = figures(copy, "clean", "--forget", "tiny", "--datasets")
    assert kinds(said)["datasets"] == (2, 0)
    both = ["--forget", "tiny", "--forget", "twin", "--datasets"]
    said = figures(copy, "clean", *both)
    frees = sum(each["frees"] for each in said["holdings"] if each["kind"] in said["chosen"])
    states, can_go = kinds(said)["states"]
    assert states == can_go >= 4
    assert kinds(said)["datasets"] == (2, 1)
    assert said["freed"] == 0
    before = sum(path.stat().st_size for path in copy.rglob("*") if path.is_file() and "journal" not in path.name)
    assert figures(copy, "clean", "--yes", *both)["freed"] == frees
    after = sum(path.stat().st_size for path in copy.rglob("*") if path.is_file() and "journal" not in path.name)
    assert before - after == frees > 0


def test_a_study_that_cannot_be_read_can_be_forgotten(copy: Path) -> None:
    with sqlite3.connect(copy / "journal.sqlite") as database:
        database.execute("UPDATE hoptree_studies SET format = 99")
    database.close()
    assert figures(copy, "clean", "--forget", "tiny", "--yes")["forgotten"] == ["tiny"]
    assert figures(copy, "studies") == []


def test_forgetting_a_study_removes_what_only_it_needs(copy: Path) -> None:
    assert "no such study" in refused(copy, "clean", "--forget", "tyni", "--yes")
    assert figures(copy, "clean", "--forget", "tiny")["forgotten"] == []
    assert len(figures(copy, "studies")) == 1
    done = figures(copy, "clean", "--forget", "tiny", "--yes", "--datasets")
    assert done["forgotten"] == ["tiny"]
    assert done["freed"] > 0
    assert figures(copy, "studies") == []
    assert FolderStates(copy / "states").keys() == []
    assert not list(copy.glob("data/*"))


def test_nothing_of_a_study_that_runs_is_removed(copy: Path) -> None:
    FolderStates(copy / "states").put("ab12", {}, {"stray": 1})
    with Store(copy) as store, store.lease("tiny"):
        figures(copy, "clean", "--yes")
        left = kinds(figures(copy, "clean"))
        assert (left["states"], left["strays"]) == ((4, 0), (1, 0))  # it may be about to know of the stray one
        assert "tiny" in refused(copy, "clean", "--forget", "tiny", "--yes")
    assert len(figures(copy, "studies")) == 1


# --- as wide as the terminal ------------------------------------------------------------------------------


def on_a_terminal(folder: Path, width: int, *arguments: str) -> list[str]:
    """Return what a command prints on a terminal of some width."""
    command = [sys.executable, "-c", MAIN, *arguments]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(command, stdout=theirs, stdin=theirs, cwd=folder, env=environment)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # Linux says so when nobody writes any more
        while part := os.read(ours, 65536):
            text += part
    os.close(ours)
    assert process.wait(timeout=900) == 0
    return text.decode().splitlines()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_fit_the_terminal(folder: Path, width: int) -> None:
    lines = on_a_terminal(folder, width, "trials", "tiny")
    assert all(len(line) <= width for line in lines[:8])
    assert lines[0].split()[:3] == ["trial", "state", "epochs"]
    assert "accuracy" in lines[0]
    assert [int(line.split()[0]) for line in lines[2:8]] == [0, 1, 2, 3, 4, 5]  # a line for each
    assert ("not fit: loss" in lines[-1]) == (width < 200)


def test_a_value_has_four_digits_in_tables_and_all_in_json(folder: Path) -> None:
    assert brief(0.1234567) == "0.1235"
    assert brief(ht.multistep(0.0678123456, at=[3], gamma=0.1)) == "multistep(0.06781, [3], 0.1)"
