"""The live view on a real (pseudo) terminal, every picture of it looked at; and what a pipe gets instead."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyte
import pytest

from hoptree.report.tables import NOTHING

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parents[1] / "system" / "many_study.py"
BEGIN, END = b"\x1b[?2026h", b"\x1b[?2026l"  # around every picture


LEFT = re.compile(r" elapsed, .+ left \(.+ to .+\)$")


class Terminal:
    """A program on a terminal of some size; what it draws is followed picture by picture."""

    def __init__(self, folder: Path, trials: int, columns: int, lines: int, *more: str) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=10_000, ratio=0.5)
        self.stream = pyte.ByteStream(self.screen)
        self.columns = columns
        self.rest = b""
        self.size = struct.pack("HHHH", lines, columns, 0, 0)
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, self.size)
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)}
        for name in ("CI", "COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder), str(trials), *more],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it as from a keyboard
        )
        os.close(slave)
        self.master = master

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def pictures(self) -> Iterator[list[str]]:
        """Yield the screen after every picture, until the program has ended."""
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the other end is closed
                data = b""
            if not data:
                break
            self.rest += data
            while (end := self.rest.find(END)) >= 0:
                picture, self.rest = self.rest[: end + len(END)], self.rest[end + len(END) :]
                self.stream.feed(picture)
                yield self.lines
        self.stream.feed(self.rest)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def everything(self) -> list[str]:
        """All that was printed, with what has scrolled away."""
        width = self.columns
        gone = ["".join(row[x].data for x in range(width)).rstrip() for row in self.screen.history.top]
        return [line for line in [*gone, *self.lines] if line]


@contextmanager
def on_a_terminal(folder: Path, trials: int, columns: int, lines: int, *more: str) -> Iterator[Terminal]:
    terminal = Terminal(folder, trials, columns, lines, *more)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)


def check(lines: list[str], columns: int) -> None:
    """See that a picture is whole: each part is there once, in its place, and nothing stands below it."""
    heads = [i for i, line in enumerate(lines) if line.startswith("many  ")]
    assert len(heads) == 1, lines
    picture = lines[heads[0] :]
    while picture and not picture[-1]:
        picture.pop()
    labels = [line.split()[0] for line in picture]
    assert labels[0] == "many", lines
    for label in ("trials", "best", "epochs", "workers", "trial"):
        assert labels.count(label) <= 1, lines
    assert "trials" in labels, lines
    assert "" not in picture, lines  # no line is blank: nothing was erased and not drawn again
    rows = picture[labels.index("trial") + 1 :] if "trial" in labels else []
    for row in rows:
        assert re.match(r" *[\d,]+ +\d+/\d+ |and [\d,]+ more$", row), lines
    assert not any(line.startswith("builds") for line in picture), lines
    assert all(len(line) <= columns for line in picture)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), pytest.param(200, 50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("trials", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_nothing_wraps_or_flickers(tmp_path: Path, columns: int, lines: int, trials: int) -> None:
    seen = 0
    with on_a_terminal(tmp_path, trials, columns, lines) as terminal:
        for screen in terminal.pictures():
            check(screen, columns)
            seen += 1
        assert terminal.process.wait(timeout=900) == 0, terminal.everything
    assert seen >= 2
    text = terminal.everything
    assert sum(line.startswith("many  ") for line in text) == 1  # the last picture stays, and no other
    assert f"trials   {trials} complete" in text
    printed = re.findall(r"builds number (\d+?)(?=builds|$)", "\n".join(text), re.MULTILINE)
    assert {int(number) for number in printed} == set(range(trials))  # two workers may share a line
    assert not any("10 %\r" in line or line == "builds: 10 %" for line in text)  # a bar of progress is one line
    assert any(line.startswith("the best: trial ") for line in text)


def test_a_small_window_is_not_torn(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, 2, 12, 4) as terminal:
        for screen in terminal.pictures():
            assert sum(line.startswith("many") for line in screen) <= 1
        assert terminal.process.wait(timeout=900) == 0
    text = terminal.everything
    at = next(i for i, line in enumerate(text) if line.startswith("many"))
    assert [line[:6] for line in text[at : at + 4]] == ["many  ", "trials", "best  ", "epochs"]
    assert sum(line.startswith("many") for line in text) == 1


@pytest.mark.slow
def test_a_running_trial_is_shown_with_its_worker(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    holder = os.open(gate, os.O_RDWR)  # so that neither end waits to be opened; a reader waits for the end of it
    expected = [  # the other worker may still train when the last trial begins: a later picture shows all of it
        re.compile(rf" +7 +0/3 +{NOTHING} +w\d +number=7$"),
        re.compile("best  "),
        re.compile(r"workers  w\d (idle|trial 7: epoch 1, 1 of 2)"),
        re.compile("trials   7 complete, 1 running$"),
        re.compile(rf"many  .*{LEFT.pattern}"),
    ]
    with on_a_terminal(tmp_path, 8, 80, 24) as terminal:
        for screen in terminal.pictures():
            check(screen, 80)
            seen = [any(pattern.match(line) for line in screen) for pattern in expected]
            if all(seen):
                break
        else:
            raise AssertionError(terminal.lines)
        gate.unlink()
        os.close(holder)
        for screen in terminal.pictures():
            check(screen, 80)
        assert terminal.process.wait(timeout=900) == 0
    assert "trials   8 complete" in terminal.everything


@pytest.mark.slow
def test_the_time_left_of_studies_that_run_together(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    holder = os.open(gate, os.O_RDWR)
    with on_a_terminal(tmp_path, 8, 80, 24, "more") as terminal:
        for screen in terminal.pictures():
            head = next(line for line in screen if line.startswith("many + more  "))
            if "trials   14 complete, 2 running" in screen and LEFT.search(head):
                break
        else:
            raise AssertionError(terminal.lines)
        gate.unlink()
        os.close(holder)
        assert list(terminal.pictures())
        assert terminal.process.wait(timeout=900) == 0
    assert "trials   16 complete" in terminal.everything


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_is_as_without_a_picture(tmp_path: Path, presses: int) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    holder = os.open(gate, os.O_RDWR)
    with on_a_terminal(tmp_path, 8, 80, 24) as terminal:
        pictures = terminal.pictures()
        for screen in pictures:
            if "trials   7 complete, 1 running" in screen:
                break
        terminal.press(b"\x03")
        for screen in pictures:
            check(screen, 80)
            if any("interrupt again to stop at once" in line for line in terminal.everything):
                break
        if presses == 2:
            terminal.press(b"\x03")  # at once: the gate is still closed
            for screen in pictures:
                check(screen, 80)
        gate.unlink()
        os.close(holder)
        for screen in pictures:
            check(screen, 80)
        code = terminal.process.wait(timeout=900)
    assert not terminal.screen.cursor.hidden
    text = terminal.everything
    assert sum(line.startswith("many  ") for line in text) == 1
    if presses == 1:
        assert code == 0  # a run that was interrupted once returns what there is
        assert any(line.startswith("the best: trial ") for line in text)
    else:
        assert code != 0
        assert "KeyboardInterrupt" in text


def test_a_pipe_gets_plain_lines(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(tmp_path), "8"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    last = done.stderr.splitlines()[-1]
    assert re.match(r"many: 8 complete in .*; best trial \d: loss .*; epochs: 24 requested, 24 trained in", last)
    assert len(done.stderr.splitlines()) < 10
    again = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert again.stderr == ""  # nothing was trained, so there is nothing to tell
