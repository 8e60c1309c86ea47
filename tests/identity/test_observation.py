"""What user code reads is recorded, and changes are reported; nothing else is."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.identity.fingerprints import fingerprint
from hoptree.identity.observation import InputRecorder, Observations, present
from tests.identity.observed_cases import CASES, ObservedCase

# Users may leave files open.
UNCLOSED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder to import modules from; they are removed from sys.modules at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("OBSERVED_MODE", raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("lazy_"):
            del sys.modules[name]
    os.environ.pop("OBSERVED_MODE", None)


def function(folder: Path, body: str) -> Callable[[], Any]:
    """Return a user's function with this body."""
    space: dict[str, Any] = {"__name__": "__main__"}
    source = "def read():\n" + "".join(f"    {line}\n" for line in body.splitlines())
    exec(compile(source, str(folder / "program.py"), "exec"), space)
    read: Callable[[], Any] = space["read"]
    return read


def observed(recorder: InputRecorder, read: Callable[[], Any]) -> Observations:
    with recorder:
        read()
    return {subject: digest for some in recorder.fresh() for subject, digest in some.items()}


@UNCLOSED
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_change_of_what_was_read_is_noticed(case: ObservedCase, folder: Path) -> None:
    case.prepare(folder)
    found = observed(InputRecorder(), function(folder, case.read))
    assert present(found) == found
    case.edit(folder)
    assert (present(found) != found) == case.changes, found


def test_code_that_reads_nothing_has_nothing_recorded(folder: Path) -> None:
    def read() -> None:
        import numpy as np
        import torch

        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(net.parameters())
        net(torch.from_numpy(np.ones((4, 3), np.float32))).sum().backward()
        optimizer.step()

    assert observed(InputRecorder(), read) == {}


def test_a_library_that_is_imported_is_not_recorded(folder: Path) -> None:
    assert observed(InputRecorder(), function(folder, "import colorsys, wave, torch.nn.utils.prune")) == {}


@UNCLOSED
def test_ignored_folders_are_not_recorded(folder: Path) -> None:
    (folder / "store").mkdir()
    (folder / "store" / "state").write_text("1")
    read = function(folder, "import os\nos.listdir('store')\nreturn open('store/state').read()")
    assert observed(InputRecorder([str(folder / "store")]), read) == {}
    assert set(observed(InputRecorder(), read)) == {f"file:{folder}/store/state", f"folder:{folder}/store"}


@UNCLOSED
def test_a_subject_is_reported_once_and_again_when_it_has_changed(folder: Path) -> None:
    (folder / "a.txt").write_text("1")
    recorder, read = InputRecorder(), function(folder, "return open('a.txt').read()")
    first = observed(recorder, read)
    assert observed(recorder, read) == {}
    (folder / "a.txt").write_text("2")
    second = observed(recorder, read)
    assert set(first) == set(second) == {f"file:{folder}/a.txt"}
    assert first != second


@UNCLOSED
def test_two_contents_within_one_unit_are_both_reported(folder: Path) -> None:
    (folder / "a.txt").write_text("1")
    (folder / "b.txt").write_text("22")
    recorder = InputRecorder()
    read = "open('a.txt').read()\nimport subprocess\nsubprocess.run(['cp', 'b.txt', 'a.txt'])\nopen('a.txt').read()"
    with recorder:
        function(folder, read)()
    assert [set(some) for some in recorder.fresh()] == [{f"file:{folder}/a.txt"}] * 2


@UNCLOSED
def test_nothing_is_recorded_outside(folder: Path) -> None:
    (folder / "a.txt").write_text("1")
    recorder = InputRecorder()
    with recorder:
        pass
    function(folder, "import os\nos.environ.get('OBSERVED_MODE')\nopen('a.txt').read()")()
    assert recorder.fresh() == []
    assert type(os.environ).__name__ == "_Environ"


def test_an_exception_of_user_code_propagates_and_is_recorded(folder: Path) -> None:
    recorder = InputRecorder()
    with pytest.raises(KeyError, match="OBSERVED_MODE"), recorder:
        function(folder, "import os\nreturn os.environ['OBSERVED_MODE']")()
    assert recorder.fresh() == [{"environment:OBSERVED_MODE": ""}]
    with pytest.raises(ValueError, match="null byte"), recorder:
        function(folder, "open('a\\0b')")()


def test_what_a_forked_process_reads_is_recorded(folder: Path) -> None:
    (folder / "a.txt").write_text("1")

    def read() -> None:
        child = os.fork()
        if not child:
            with open("a.txt") as file:
                file.read()
            os._exit(0)
        os.waitpid(child, 0)

    recorder = InputRecorder()
    assert observed(recorder, read) == present([f"file:{folder}/a.txt"])
    assert observed(recorder, read) == {}


def test_a_copy_of_the_programs_folder_is_named_as_the_folder(folder: Path) -> None:
    (folder / "a.txt").write_text("1")
    read = function(folder, "import os\nos.listdir('.')\nopen('a.txt').close()")
    found = observed(InputRecorder(folder="/program"), read)
    assert set(found) == {"file:/program/a.txt", f"folder:{folder}"}


def test_an_unknown_kind_of_subject_is_refused() -> None:
    with pytest.raises(ValueError, match="'weather:today'"):
        present(["weather:today"])


# --- ht.file ------------------------------------------------------------------------------------------------


def test_a_named_file_counts_by_content_wherever_it_lies(folder: Path) -> None:
    (folder / "a.bin").write_text("1")
    (folder / "moved").mkdir()
    (folder / "moved" / "a.bin").write_text("1")
    weights = ht.file("a.bin")
    before = fingerprint(lambda: weights)
    weights = ht.file("moved/a.bin")
    assert fingerprint(lambda: weights) == before
    (folder / "moved" / "a.bin").write_text("2")
    assert fingerprint(lambda: weights) != before


def test_a_named_file_is_recorded_when_its_path_is_requested(folder: Path) -> None:
    (folder / "a.bin").write_text("1")
    weights = ht.file("a.bin")
    for read in (lambda: os.fspath(weights), lambda: str(weights), lambda: weights.path):
        assert set(observed(InputRecorder(), read)) == {f"file:{folder}/a.bin"}
    assert observed(InputRecorder(), lambda: repr(weights)) == {}


@pytest.mark.parametrize("path", ["missing.pt", Path("missing.pt")])
def test_a_missing_file_is_refused_by_name_and_node(folder: Path, path: Any) -> None:
    import socket

    with pytest.raises(ht.RefusedError, match="missing.pt") as refused:
        ht.file(path)
    assert socket.gethostname() in str(refused.value)


@pytest.mark.parametrize("path", [3, None, b"weights.pt"])
def test_a_value_that_is_not_a_path_is_refused(path: Any) -> None:
    with pytest.raises(ht.RefusedError, match="expected the path of a file"):
        ht.file(path)


def test_a_named_file_is_refused_where_it_is_missing_or_another(folder: Path) -> None:
    (folder / "a.bin").write_text("1")
    sent = pickle.dumps(ht.file("a.bin"))
    assert pickle.loads(sent) == ht.file("a.bin")
    assert str(folder).encode() not in sent  # a worker may run in a copy of the folder
    (folder / "a.bin").write_text("2")
    with pytest.raises(ht.RefusedError, match="other content"):
        pickle.loads(sent)
    (folder / "a.bin").unlink()
    with pytest.raises(ht.RefusedError, match="missing"):
        pickle.loads(sent)
