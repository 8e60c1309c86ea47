"""How commands end when something goes wrong: one look, no traceback, a file with the whole of it, a code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hoptree.core.errors import HoptreeError
from hoptree.record.error_format import format_error
from tests.ui.test_every_command import MAIN, hoptree

SEARCH = """
import hoptree as ht
import numpy as np
from tests.system.plain import Plain

class Mine:
    def __repr__(self):
        return "Mine()"

    def search(self, space, goal, seed):
        return self

    def start(self):
        return [][0]

    def tell(self, news):
        return []

data = ht.Dataset.from_arrays(x=np.zeros((8, 2), "float32"), partitions=2)
study = ht.Study("mine", trainer=Plain(), data=data, space={"lr": 0.1}, search=Mine(), minimize="loss")
"""


def whole(text: str) -> str:
    found = re.search(r"The full trace: (.*)$", text, re.MULTILINE)
    assert found, text
    return Path(found[1]).read_text()


def test_an_exception_of_user_code_in_the_driver_is_shown_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SEARCH)
    (tmp_path / ".hoptree").mkdir()
    done = hoptree("run", "mine.py", "--quiet", cwd=tmp_path, PYTHONPATH=os.pathsep.join(sys.path))
    assert done.returncode == 3
    assert done.stderr.startswith("IndexError: list index out of range\n  at mine.py, line 14, in start\n")
    assert "Traceback" not in done.stderr
    assert "return [][0]" in whole(done.stderr)
    assert "Traceback" in whole(done.stderr)
    assert str(tmp_path / ".hoptree" / "logs") in done.stderr


@pytest.mark.parametrize("option", ["memory-per-worker", "replicate-idle"])
def test_a_size_that_is_none_is_refused_by_the_name_of_its_option(option: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SEARCH)
    done = hoptree("run", "mine.py", f"--{option}", "much", cwd=tmp_path, PYTHONPATH=os.pathsep.join(sys.path))
    assert done.returncode == 2
    assert f"StoreError: {option.replace('-', '_')}: 'much'; expected a size" in done.stderr


def test_an_error_names_the_line_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import hoptree as ht\n\nlr = ht.multistep(0.1, at=[4, 2], gamma=0.1)\n")
    done = hoptree("run", "bad.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "\n  ScheduleError: " in done.stderr
    assert "\n  at bad.py, line 3, in <module>\n      lr = ht.multistep(" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in whole(done.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.py"]  # nothing is left where nothing was


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        (
            "import numpy\nimport nowhere_to_be_found\n",
            "install it for this Python",
            "line 2, in <module>",
        ),
        ("x = 1\ndef net(hp)\n    return 1\n", "SyntaxError: expected ':'", "line 2\n      def net(hp)"),
        ("x = {}\ny = x['oops']\n", "KeyError: 'oops'", "line 2, in <module>\n      y = x['oops']"),
    ],
)
def test_a_program_that_cannot_be_loaded_has_the_same_look(
    tmp_path: Path, text: str, what: str, where: str
) -> None:
    (tmp_path / "bad.py").write_text(text)
    done = hoptree("run", "bad.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("ProgramError: ")
    assert what in done.stderr
    assert f"\n  at bad.py, {where}" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in whole(done.stderr)


NET = """
import hoptree as ht
import numpy as np

def net(hp):
    return hp["wdth"]

data = ht.Dataset.from_arrays(x=np.zeros((8, 2), "float32"), y=np.zeros(8, "int64"), partitions=2)
trainer = ht.Torch(net, loss=abs)
study = ht.Study("net", trainer=trainer, data=data, space={"lr": 0.1}, search=ht.Grid(epochs=1), minimize="loss")

if __name__ == "__main__":
    study.run(workers=1)
"""


@pytest.mark.slow
def test_the_error_of_a_failing_model_has_one_format_in_every_interface(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    shown = []
    for command in ([sys.executable, "-c", MAIN, "run", "net.py"], [sys.executable, "net.py"]):
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=900)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("net: ")]  # slow starts are told
        shown.append(lines)
        first, *rest, trace = lines
        assert first == "RefusedError: No config could be trained. First error:"
        assert rest[0].startswith("  MissingValue: wdth: the model function reads it, but the config has only lr;")
        assert rest[-2:] == ["  at net.py, line 6, in net", '      return hp["wdth"]']
        assert trace.startswith(f"  The full trace: {tmp_path / '.hoptree' / 'logs'}")
        assert "Traceback" in whole(done.stderr)
    assert shown[0][:-1] == shown[1][:-1]
    assert hoptree("studies", cwd=tmp_path).stdout.startswith("No studies in ")  # refused: nothing was done


def test_the_error_of_an_impossible_study_has_the_same_format(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET.replace('"lr": 0.1', '"lr": [0.1]'))
    done = subprocess.run([sys.executable, "net.py"], capture_output=True, text=True, cwd=tmp_path, timeout=900)
    first, *rest, _ = done.stderr.splitlines()
    assert first.startswith("SpaceError: lr: ")
    assert rest[0] == "  at net.py, line 10, in <module>"
    assert "in read" in whole(done.stderr)


def test_a_trace_without_a_line_of_the_users_goes_to_the_file(tmp_path: Path) -> None:
    library = Path(re.__file__).parent / "linear.py"
    trace = f'Traceback (most recent call last):\n  File "{library}", line 1, in f\n    g()\nRuntimeError: shapes\n'
    looks = format_error(
        HoptreeError(f"nothing was trained:\n{trace}\nmodel: it raised this"), tmp_path
    ).splitlines()
    assert looks[:3] == ["HoptreeError: nothing was trained:", "  RuntimeError: shapes", "  model: it raised this"]
    assert looks[3].startswith(f"  The full trace: {tmp_path / 'logs'}")


def test_other_errors_of_a_program_go_to_the_hook_before(tmp_path: Path) -> None:
    program = NET.replace(
        "    study.run(workers=1)", "    try:\n        study.run(workers=0)\n    except ht.HoptreeError:\n"
    )
    (tmp_path / "net.py").write_text(f"{program}        raise KeyError('mine') from None\n")
    done = subprocess.run([sys.executable, "net.py"], capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.endswith("KeyError: 'mine'\n")


@pytest.mark.parametrize("command", ["verify", "export"])
def test_a_missing_file_or_study_is_named(folder: Path, command: str) -> None:
    if command == "verify":
        done = hoptree("verify", "nope.zip", cwd=folder)
        assert "nope.zip: the file does not exist; " in done.stderr
    else:
        done = hoptree("export", "nope", "--to", "a.csv", cwd=folder)
        assert "nope: no such study in " in done.stderr
    assert done.returncode == 2


def test_an_internal_error_is_reported_as_a_bug(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"import hoptree.ui.doctor as d; d._OPTIONAL = 1; {MAIN}", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.returncode == 3
    assert "TypeError: 'int' object is not iterable" in done.stderr
    assert re.search(r"This is a bug in Hoptree \(ui/doctor.py, line \d+\); please report it", done.stderr)
    assert "in _installation" in whole(done.stderr)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["show"], ["trials", "x", "--state", "odd"], ["run", "gone.py"]]
)
def test_wrong_usage_is_code_2(arguments: list[str], tmp_path: Path) -> None:
    done = hoptree(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_closed_output_pipe(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", MAIN, "show", "tiny"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=folder, timeout=900)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")
