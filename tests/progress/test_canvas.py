"""The canvas on a real (pseudo) terminal: what it sends, and what a screen makes of it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator

import pyte
import pytest
from rich.text import Text

from hoptree.progress.canvas import Canvas, wraps_lines


class Window:
    """A terminal of some size, and a canvas on it."""

    def __init__(self, columns: int, lines: int, wraps: bool = True) -> None:
        self.master, self.slave = pty.openpty()
        self.screen = pyte.HistoryScreen(columns, lines, history=100, ratio=0.5)
        self.stream = pyte.ByteStream(self.screen)
        self.resize(columns, lines)
        self.file = os.fdopen(os.dup(self.slave), "w", encoding="utf-8")
        self.canvas = Canvas(self.file, wraps)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def draw(self, above: list[str], *picture: str) -> bytes:
        self.canvas.draw(map(Text, above), list(map(Text, picture)))
        return self.read()

    def end(self, *last: str) -> None:
        self.canvas.end([], list(map(Text, last)))
        self.read()

    def close(self) -> None:
        self.file.close()
        for descriptor in (self.master, self.slave):
            os.close(descriptor)

    def read(self) -> bytes:
        sent = os.read(self.master, 65536)
        self.stream.feed(sent)
        return sent

    @property
    def shown(self) -> list[str]:
        gone = ["".join(row[x].data for x in range(self.screen.columns)) for row in self.screen.history.top]
        return [line.rstrip() for line in [*gone, *self.screen.display] if line.strip()]


@pytest.fixture
def window() -> Iterator[Window]:
    window = Window(20, 6)
    yield window
    window.close()


@pytest.fixture
def cutting_window() -> Iterator[Window]:
    window = Window(20, 6, wraps=False)
    yield window
    window.close()


def test_a_picture_stands_in_the_place_of_the_last_one(window: Window) -> None:
    window.draw([], "one", "two", "three")
    window.draw([], "1", "2")
    assert window.shown == ["1", "2"]
    assert window.screen.cursor.hidden
    window.draw(["printed, and far too long for one line of it"], "first", "second")
    assert window.shown == ["printed, and far too", " long for one line o", "f it", "first", "second"]
    window.end("done")
    assert window.shown == ["printed, and far too", " long for one line o", "f it", "done"]
    assert not window.screen.cursor.hidden


def test_it_is_never_erased_before_it_is_drawn(window: Window) -> None:
    window.draw([], "one", "two")
    sent = window.draw([], "uno", "dos")
    assert b"\x1b[2K" not in sent
    assert sent.index(b"uno") < sent.index(b"\x1b[K") < sent.index(b"dos") < sent.index(b"\x1b[J")


def test_lines_wrapped_by_a_narrower_window_are_overwritten(window: Window) -> None:
    window.draw([], "nineteen letters wide", "short", "last")
    window.resize(8, 6)
    sent = window.draw([], "one", "two", "three")
    assert sent.count(b"\x1b[2K") == 5  # the first line has become three
    assert b"\r\x1b[4A" in sent


def test_where_lines_are_cut_what_is_printed_above_stays(cutting_window: Window) -> None:
    cutting_window.draw(["printed", "as well"], "nineteen letters wi", "last")
    cutting_window.resize(8, 6)
    cutting_window.screen.resize(6, 8)
    cutting_window.draw([], "one", "two")
    assert cutting_window.shown == ["printed", "as well", "one", "two"]


@pytest.mark.parametrize(
    ("environment", "wraps"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(390)"}, False),
        ({"TERM": "screen", "XTERM_VERSION": "XTerm(390)", "TMUX": "/tmp/tmux-0/default,1,0"}, True),
        ({"TERM": "linux"}, False),
    ],
)
def test_terminals_that_cut_lines_are_known(environment: dict[str, str], wraps: bool) -> None:
    assert wraps_lines(environment) is wraps


def test_a_window_without_a_size_is_taken_for_a_usual_one(window: Window) -> None:
    window.resize(0, 0)
    assert window.canvas.size() == (79, 23)
    window.resize(1, 1)
    assert window.canvas.size() == (1, 1)
