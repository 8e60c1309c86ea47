"""The commands that look into a store, on the store of a small study that was run once; and loading programs."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hoptree as ht
from hoptree.store import Store, StoreMissingError, StoreVersionError, StudyMissingError
from hoptree.ui.cli import cli
from tests.ui.reading import PROGRAM, change, figures, files, invoke, look, words

# --- looking ----------------------------------------------------------------------------------------------


def test_studies_lists_what_a_store_holds(folder: Path) -> None:
    table = look(folder / ".hoptree", "studies")
    assert "tiny    finished   4 complete, 2 failed   accuracy 0." in table
    (found,) = figures(folder / ".hoptree", "studies")
    assert (found["name"], found["status"], found["driver"]) == ("tiny", "finished", None)
    assert found["trials"] == {"complete": 4, "stopped": 0, "failed": 2, "running": 0}
    assert found["goal"] == {"metric": "accuracy", "maximize": True}
    assert f"accuracy {found['best']['value']:.4g} (trial {found['best']['trial']})" in table


def test_show_prints_the_settings_of_a_study(folder: Path) -> None:
    text = look(folder / ".hoptree", "show", "tiny")
    study = figures(folder / ".hoptree", "show", "tiny")
    rows = words(text)
    assert ["goal", "maximize", "accuracy"] in rows
    assert ["search", "Grid(epochs=2,", "every=1)"] in rows
    assert ["trainer", study["spec"]["trainer"][:12]] in rows
    assert ["data", f"{study['spec']['data'][:12]},", "in", "2", "partitions"] in rows
    assert ["program", str(folder / "tiny.py")] in rows
    assert "8 requested, 2 of them shared (merge rate 1.33), 6 trained so far" in text
    assert study["savings"] == {
        "epochs_asked": 8.0, "epochs_shared": 2.0, "epochs_trained": 6.0, "merge_rate": pytest.approx(4 / 3)
    }  # fmt: skip


def test_show_lists_trials_by_what_is_searched(folder: Path) -> None:
    text = look(folder / ".hoptree", "show", "tiny")
    (titles,) = [row for row in words(text) if row[:1] == ["trial"]]
    assert sorted(titles) == sorted(["trial", "state", "epochs", "lr", "width", "accuracy", "loss", "error"])
    trials = figures(folder / ".hoptree", "show", "tiny")["trials"]
    assert [trial["state"] for trial in trials] == ["complete"] * 2 + ["failed"] * 2 + ["complete"] * 2
    assert trials[1]["config"] == {"width": 8, "lr": "multistep(0.1, [1], 0.1)", "batch_size": 16}
    assert text.count("ValueError: five is too odd") == 2
    assert "Traceback" not in text


def test_show_a_trial_with_its_curve_or_its_error(folder: Path) -> None:
    text = look(folder / ".hoptree", "show", "tiny", "--trial", "0")
    trial = figures(folder / ".hoptree", "show", "tiny", "--trial", "0")
    assert list(trial["curve"]) == ["1", "2"]
    assert trial["curve"]["2"] == trial["metrics"]
    for epoch, metrics in trial["curve"].items():
        assert [epoch, *(f"{value:.4g}" for value in metrics.values())] in words(text)
    assert trial["fingerprint"] in text
    failed = look(folder / ".hoptree", "show", "tiny", "--trial", "2")
    assert f'File "{folder / "tiny.py"}", line' in failed
    assert "ValueError: five is too odd" in failed
    assert "none is stored" in failed


def test_best_shows_where_its_state_is(folder: Path) -> None:
    text = look(folder / ".hoptree", "best", "tiny")
    best = figures(folder / ".hoptree", "best", "tiny")
    trials = figures(folder / ".hoptree", "show", "tiny")["trials"]
    assert best["metrics"]["accuracy"] == max(trial["metrics"].get("accuracy", 0) for trial in trials)
    assert Path(best["state_file"]).is_file()
    assert len(best["fingerprint"]) == 64
    assert f"trial {best['number']}, the best of tiny" in text
    assert all(line in text for line in [best["fingerprint"], best["state_file"], *best["python"]])
    assert best["python"] == [f"from tiny import tiny  # in {folder}", "model = tiny.results().best.load()"]


def test_best_without_a_state(copy: Path) -> None:
    file = Path(figures(copy, "best", "tiny")["state_file"])
    file.write_bytes(file.read_bytes()[:-1])
    assert "the state is damaged" in look(copy, "best", "tiny")
    file.unlink()
    assert "none is stored" in look(copy, "best", "tiny")
    assert figures(copy, "best", "tiny")["fingerprint"] is None


def test_reading_a_store_writes_nothing(copy: Path) -> None:
    before = files(copy)
    for command in (["studies"], ["show", "tiny"], ["show", "tiny", "--trial", "1"], ["best", "tiny"]):
        look(copy, *command)
    assert files(copy) == before


def test_a_running_driver_is_named(copy: Path) -> None:
    change(copy, "update hoptree_studies set status = 'running'")
    assert figures(copy, "studies")[0]["status"] == "stopped"  # killed: nobody is there to say so
    with Store(copy) as store, store.lease("tiny"):
        (found,) = figures(copy, "studies")
        assert (found["status"], found["driver"]) == ("running", {"host": socket.gethostname(), "pid": os.getpid()})
        assert f"process {os.getpid()} on {socket.gethostname()}" in look(copy, "studies")
        assert f"running, driven by process {os.getpid()}" in look(copy, "show", "tiny")


def test_a_report_before_an_interrupt_can_be_the_best_so_far(copy: Path) -> None:
    (last,) = sqlite3.connect(copy / "journal.sqlite").execute("select max(seq) from hoptree_entries").fetchone()
    while figures(copy, "studies")[0]["trials"]["complete"]:
        last -= 1
        change(copy, "delete from hoptree_entries where seq > ?", last)
    reported = {t["number"]: t["metrics"]["accuracy"] for t in figures(copy, "trials", "tiny") if t["metrics"]}
    best = max(reported.values())
    number = next(number for number, value in reported.items() if value == best)
    assert f"accuracy {best:.4g} so far (trial {number})" in look(copy, "studies")


def test_trials_without_a_driver_are_unfinished(copy: Path) -> None:
    change(copy, "delete from hoptree_entries where seq > 8")
    assert "unfinished" in look(copy, "studies")
    with Store(copy) as store, store.lease("tiny"):
        assert "unfinished" not in look(copy, "studies")
    result = invoke(copy, "best", "tiny")
    assert isinstance(result.exception, ht.HoptreeError)
    assert "so there is no best trial yet" in str(result.exception)


def test_the_journal_may_be_in_another_database(copy: Path, tmp_path: Path) -> None:
    (copy / "journal.sqlite").rename(tmp_path / "elsewhere.sqlite")
    assert isinstance(invoke(copy, "show", "tiny").exception, StoreMissingError)
    assert "finished" in look(copy, "show", "tiny", "--journal", f"sqlite:///{tmp_path / 'elsewhere.sqlite'}")


# --- what cannot be looked at -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["studies"], ["show", "tiny"], ["best", "tiny"], ["verify", "tiny"]])
def test_a_missing_store(tmp_path: Path, command: list[str]) -> None:
    result = invoke(tmp_path / "none", *command)
    assert isinstance(result.exception, StoreMissingError)
    assert "none: no store is there; run a study first, or give the store's folder" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["show", "best", "verify"])
def test_a_missing_study(folder: Path, command: str) -> None:
    result = invoke(folder / ".hoptree", command, "tyni")
    assert isinstance(result.exception, StudyMissingError)
    assert "tyni: no such study" in str(result.exception)
    assert "it holds tiny" in str(result.exception)


def test_a_missing_trial(folder: Path) -> None:
    result = invoke(folder / ".hoptree", "show", "tiny", "--trial", "6")
    assert "trial 6 of 'tiny': not known; expected 0 to 5" in str(result.exception)


def test_a_store_of_another_version(copy: Path) -> None:
    change(copy, "update hoptree_revision set version_num = '9999'")
    for command in (["studies"], ["show", "tiny"], ["best", "tiny"], ["verify", "tiny"]):
        result = invoke(copy, *command)
        assert isinstance(result.exception, StoreVersionError)
        assert "upgrade Hoptree" in str(result.exception)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("update hoptree_studies set format = 99", "upgrade Hoptree"),
        ("update hoptree_studies set spec = '{}'", "use the version that ran it"),
        ("delete from hoptree_entries where seq = 3", "entry 3 is missing"),
    ],
)
def test_a_study_that_cannot_be_read_does_not_hide_the_others(copy: Path, statement: str, message: str) -> None:
    change(
        copy, "insert into hoptree_studies select 'second', created + 1, format, spec, status from hoptree_studies"
    )
    change(copy, f"{statement} {'and study' if 'entries' in statement else 'where name'} = 'tiny'")
    change(copy, "delete from hoptree_snapshots")  # what lies before a snapshot is not read
    listed = look(copy, "studies")
    assert "cannot be read" in listed
    assert "second   finished   no trials yet" in listed
    assert message in listed
    assert message in str(invoke(copy, "show", "tiny").exception)
    assert message in figures_and_errors(copy)[0]["error"]


def figures_and_errors(store: Path) -> Any:
    return json.loads(CliRunner().invoke(cli, ["studies", "--json", "--store", str(store)]).stdout)


def test_errors_are_one_message(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from hoptree.ui.cli import main; main()", "studies"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 2
    assert done.stderr.startswith("StoreMissingError: ")
    assert len(done.stderr.splitlines()) == 1


def test_reading_and_help_import_no_framework(folder: Path) -> None:
    program = """
import sys
from click.testing import CliRunner
from hoptree.ui.cli import cli
heavy = ("torch", "sqlalchemy", "numpy", "pyarrow")
assert CliRunner().invoke(cli, ["--help"]).exit_code == 0
assert not [name for name in heavy if name in sys.modules], "--help"
for command in (["studies"], ["show", "tiny"], ["best", "tiny"]):
    assert CliRunner().invoke(cli, command).exit_code == 0
    assert "torch" not in sys.modules, command
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


# --- running ------------------------------------------------------------------------------------------------


def test_run_prints_the_best_trial_and_the_location_of_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    best = figures(folder / ".hoptree", "best", "tiny")
    for target in ("tiny.py", "tiny.py:tiny"):
        result = CliRunner().invoke(cli, ["run", target])
        assert result.exit_code == 0, result.output
        first, second, *rest = result.output.splitlines()
        assert first == "tiny: 4 complete, 2 failed"
        assert second.startswith(f"Best: trial {best['number']} (")
        assert rest == [
            f"Its fingerprint: {best['fingerprint']}",
            "Work: 8 epochs asked, 0 trained, 2 shared, 6 reused (merge rate 1.33); 0 B hopped",
            f"States and journal: {folder / '.hoptree'}",
            "Show the errors: hoptree show tiny",
        ]


def test_a_study_of_which_nothing_can_be_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.py").write_text(PROGRAM.read_text().replace("== 5", ">= 5"))
    result = CliRunner().invoke(cli, ["run", "tiny.py"])
    assert isinstance(result.exception, ht.HoptreeError)
    assert "No config could be trained" in str(result.exception)
    assert "ValueError: five is too odd" in str(result.exception)
    assert "hoptree/ui" not in str(result.exception)
