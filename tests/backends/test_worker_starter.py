"""Processes that starters start: they are as good as new interpreters, and nothing outlives its driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from hoptree.backends.processes import make_channel
from hoptree.backends.worker_starter import StartedProcess, end_starters, start_process
from tests.system.processes import alive


@contextmanager
def started(
    turn: int = 0, modules: tuple[str, ...] = (), threads: int = 1
) -> Iterator[tuple[StartedProcess, Connection, dict[str, Any]]]:
    ours, theirs = make_channel()
    process = start_process("tests.backends.started", [theirs], modules=[*modules], threads=threads, turn=turn)
    theirs.close()
    with Connection(ours.detach()) as channel:
        yield process, channel, channel.recv()
    process.reap()


def told(**options: Any) -> dict[str, Any]:
    with started(**options) as (_, _, answer):
        return answer


def test_forks_of_one_starter_draw_different_numbers_and_two_starters_hash_differently() -> None:
    first, second, other = told(turn=0), told(turn=2), told(turn=1)
    assert first["forked"]
    assert second["forked"]
    assert first["starter"] == second["starter"] != other["starter"]
    assert first["hash"] == second["hash"] != other["hash"]
    assert len({first["draw"], second["draw"], other["draw"]}) == 3
    assert first["group"] == first["pid"]


def test_a_process_has_the_environment_of_its_driver_now(monkeypatch: pytest.MonkeyPatch) -> None:
    before = told(threads=1)
    monkeypatch.setenv("HOPTREE_TEST_VARIABLE", "now")
    after = told(threads=2)
    assert (before["variable"], before["threads"]) == (None, "1")
    assert (after["variable"], after["threads"]) == ("now", "2")


def test_exit_codes_and_signals_are_reported() -> None:
    with started() as (process, channel, _):
        channel.close()
        assert process.has_exited(60.0)
        assert process.reap() == 3
    with started() as (process, _, answer):
        assert process.pid == answer["pid"]
        assert not process.has_exited()
        process.kill()
        assert process.has_exited(60.0)
        assert process.reap() == -signal.SIGKILL
        process.kill()  # its number may be another's by now


def test_a_users_file_that_a_library_imports_makes_workers_new_interpreters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hoptree_test_module.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", os.getcwd())  # a new interpreter gets its paths with its first message
    answer = told(modules=("hoptree_test_module",))
    assert not answer["forked"]
    assert answer["group"] == answer["pid"]


def test_a_fork_of_the_program_leaves_its_starters_alone() -> None:
    with started() as (process, _, _):
        child = os.fork()
        if not child:
            end_starters()  # it has none
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert not process.has_exited()


_PROGRAM = """
import os, time
from tests.backends.test_worker_starter import started, told
from tests.system.processes import starters_of, workers_of
"""


def test_nothing_is_left_of_a_program_that_has_exited() -> None:
    program = _PROGRAM + "told(); told(turn=1); print(*starters_of(os.getpid()))"
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    starters = [int(pid) for pid in printed.split()]
    assert len(starters) == 2
    assert not alive(starters, 60.0)


def test_a_program_that_is_killed_takes_all_with_it() -> None:
    program = _PROGRAM + "with started():\n"
    program += "    print(*starters_of(os.getpid()), *workers_of(os.getpid()), flush=True)\n    time.sleep(900)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as printed:
        pids = [int(pid) for pid in printed.readline().split()]
        assert len(pids) == 2
        process.kill()
        process.wait()
    assert not alive(pids, 60.0)
