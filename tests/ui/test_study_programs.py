"""Commands that load a program with studies."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hoptree.store import FolderStates
from hoptree.ui.cli import cli
from hoptree.ui.programs import ProgramError, lines_to_load
from tests.ui.reading import PROGRAM, change, figures, invoke

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
