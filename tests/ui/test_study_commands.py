"""The commands that look into a store, on the store of a small study that was run once; and loading programs."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import hoptree as ht
from hoptree.store import FolderStates, Store, StoreMissingError, StoreVersionError, StudyMissingError
from hoptree.ui.cli import cli
from hoptree.ui.programs import ProgramError, lines_to_load

PROGRAM = Path(__file__).parents[1] / "system" / "tiny_study.py"


def invoke(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--store", str(store)])


def look(store: Path, *arguments: str) -> str:
    result = invoke(store, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def figures(store: Path, *arguments: str) -> Any:
    return json.loads(look(store, *arguments, "--json"))


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def change(store: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(store / "journal.sqlite")
    with connection:
        connection.execute(statement, values)
    connection.close()


def files(store: Path) -> dict[str, str]:
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in store.rglob("*") if path.is_file()}


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


# --- programs -----------------------------------------------------------------------------------------------

STUDIES = """
import hoptree as ht
from torch import nn
data = ht.Dataset.from_arrays(x=[[1.0], [2.0]], y=[0, 1], partitions=1, valid=0)
def make(name):
    trainer = ht.Torch(lambda hp: nn.Linear(1, 2), loss=nn.functional.cross_entropy)
    return ht.Study(name, trainer=trainer, data=data, space={"lr": 0.1}, search=ht.Grid(epochs=1), minimize="loss")
"""


def refused(path: Path, text: str, name: str = "") -> str:
    """Return what `hoptree run` says of a program that it cannot run."""
    path.write_text(text)
    before = list(sys.path), list(sys.argv), vars(sys.modules["__main__"]).get("__file__")
    result = CliRunner().invoke(cli, ["run", f"{path}{name}"])
    assert isinstance(result.exception, ProgramError), result.output
    assert (sys.path, sys.argv, vars(sys.modules["__main__"]).get("__file__")) == before
    return str(result.exception)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "no study was found; assign an ht.Study to a variable at the top level"),
        ("if __name__ == '__main__':\n    print(1 / 0)", "no study was found"),
        ("import sys\nsys.exit(3)", "it called sys.exit while it was loaded (exit code 3)"),
        ("x =", 'p.py", line 1\n    x ='),
        (
            "import hoptree as ht\n\nht.Cluster(workers=0)",
            "WorkloadError: workers: 0; expected at least one",
        ),
    ],
)
def test_programs_that_have_no_study_or_cannot_be_loaded(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(tmp_path / "p.py", text)


def test_an_error_of_a_program_is_shown_from_its_own_file_on(tmp_path: Path) -> None:
    (tmp_path / "halves.py").write_text("def half(x):\n    return x / 0\n")
    told = refused(tmp_path / "p.py", "import halves\nhalves.half(1)")
    path, _, trace = told.partition(": cannot be loaded:\n")
    assert path == str(tmp_path / "p.py")
    assert trace.splitlines()[:2] == ["Traceback (most recent call last):", f'  File "{path}", line 2, in <module>']
    assert trace.endswith("ZeroDivisionError: division by zero")
    assert "hoptree" not in trace


@pytest.mark.parametrize(
    ("lines", "name", "message"),
    [
        ("a = make('one'); b = make('two')", "", "several studies; it defines a (named 'one'), b (named 'two')"),
        (
            "a = make('one'); b = make('two')",
            ":three",
            "no study 'three'; it defines a (named 'one'), b (named 'two')",
        ),
        ("a = make('one'); b = make('one')", ":one", "several studies named 'one'; it defines a"),
    ],
)
def test_a_study_must_be_named_where_there_are_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused(tmp_path / "p.py", f"{STUDIES}\n{lines}", name)


def test_a_program_that_is_not_there() -> None:
    for target in ("none.py", "none.py:study"):
        result = CliRunner().invoke(cli, ["run", target])
        assert "none.py: no such file; expected a Python program" in str(result.exception)


def test_verify_needs_a_program_with_that_study(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.py").write_text(f"{STUDIES}\nother = make('other')\ntiny = make('tiny')")
    result = invoke(copy, "verify", "tiny", "--program", "p.py:other")
    assert "it defines the study 'other'; expected 'tiny'" in str(result.exception)
    result = invoke(copy, "verify", "tiny", "--program", "p.py")
    assert "the program differs in trainer (stored " in str(result.exception)
    assert ", data (stored " in str(result.exception)
    for program, message in (("", "run in a notebook"), (str(tmp_path / "gone.py"), "gone.py does not exist")):
        change(copy, "update hoptree_studies set spec = json_set(spec, '$.program', ?)", program)
        result = invoke(copy, "verify", "tiny")
        assert message in str(result.exception)
        assert "--program FILE" in str(result.exception)


@pytest.fixture
def best(folder: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The best trial of a copy that may be damaged, seen from the folder where its program is run."""
    monkeypatch.chdir(folder)
    return figures(copy, "best", "tiny")


@pytest.mark.slow
def test_verify_reports_bits_that_differ(copy: Path, best: Any) -> None:
    number, key, states = str(best["number"]), Path(best["state_file"]).stem, FolderStates(copy / "states")
    same = invoke(copy, "verify", "tiny", number)
    print_of_it = best["fingerprint"][:12]
    assert same.exit_code == 0, same.output
    assert same.output == f"trial {number}: stored {print_of_it}, trained again {print_of_it}: same bits\n"
    arrays, meta = states.get(key)
    name = next(name for name in arrays if name.endswith("first.weight"))
    states.put(key, {**arrays, name: arrays[name] + 1}, meta)
    other = invoke(copy, "verify", "tiny", number, "--json")
    (found,) = json.loads(other.stdout)
    assert (other.exit_code, found["same"], found["trained"]) == (1, False, best["fingerprint"])
    assert found["stored"] != found["trained"]
    states.delete(key)
    lost = invoke(copy, "verify", "tiny")
    assert lost.exit_code == 1
    assert f"trial {number}: cannot be compared: its stored state is missing or damaged" in lost.output
    assert lost.output.count("same bits") == 3


def test_verify_refuses_other_code(copy: Path, best: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(PROGRAM.read_text().replace("relu()", "tanh()"))
    result = invoke(copy, "verify", "tiny", "--program", str(other))
    assert "study 'tiny': the program differs in trainer (stored " in str(result.exception)
    assert "data" not in str(result.exception)
    other.write_text(PROGRAM.read_text().replace('    "tiny",', '    "tiny",\n    seed=7,'))
    result = invoke(copy, "verify", "tiny", "--program", str(other))
    assert "the program differs in seed (stored 0, the program's 7)" in str(result.exception)


def test_lines_that_load_a_model(tmp_path: Path) -> None:
    load = "model = study.results().best.load()"
    assert lines_to_load("", "x") == [load]
    assert lines_to_load("/gone/digits.py", "x") == ["from digits import study  # in /gone", load]
    first, second = lines_to_load("/gone/my-digits.py", "x")
    assert first == "import runpy; study = runpy.run_path('/gone/my-digits.py')['study']"
    (tmp_path / "two.py").write_text("one = ht.Study('a', seed=1)\ntwo = Study('b')\n")
    first, second = lines_to_load(str(tmp_path / "two.py"), "b")
    assert first.startswith("from two import two")
    assert second == "model = two.results().best.load()"
