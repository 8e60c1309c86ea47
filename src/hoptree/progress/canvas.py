"""Draws and redraws the last lines of a terminal."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO, final

from rich.console import Console
from rich.text import Text

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # synchronized output: the terminal shows the text between them at once
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor
_LINE, _REST_OF_LINE, _ALL_BELOW = "\x1b[2K", "\x1b[K", "\x1b[J"  # codes that erase
_DOWN = "\x1b[1B"
_INSIDE_XTERM = (
    "TMUX",
    "STY",
    "TERM_PROGRAM",
    "VTE_VERSION",
)  # set by terminals that may run inside or beside xterm


def wraps_lines(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal wraps the lines it shows when its window becomes narrower.

    Most terminals do. xterm and the Linux console cut the lines instead. No terminal can be asked.
    """
    if environment.get("TERM") == "linux":
        return False
    return "XTERM_VERSION" not in environment or any(name in environment for name in _INSIDE_XTERM)


@final
class Canvas:
    """Draws a picture over the previous one, and permanent lines above it.

    A line is never erased before it is redrawn, so that terminals without synchronized output do not flicker. The
    cursor stays at the start of the last line, so that the top of the picture can be found even after the window
    has become narrower and the terminal has wrapped lines.
    """

    def __init__(self, terminal: TextIO, wraps: bool = True) -> None:
        self._terminal = terminal
        self._wraps = wraps
        self._drawn: list[int] = []  # the width of every line of the previous picture
        self._width = 0
        self._text = io.StringIO()
        self._console = Console(file=self._text, force_terminal=True, legacy_windows=False, highlight=False)

    def size(self) -> tuple[int, int]:
        """Return the columns and lines of a picture, which leaves the last column and one line free."""
        try:
            width, height = os.get_terminal_size(self._terminal.fileno())
        except OSError:
            width, height = 0, 0
        return max(1, (width or 80) - 1), max(1, (height or 24) - 1)

    def draw(self, above: Iterable[Text], picture: Sequence[Text]) -> None:
        """Print permanent lines, and below them a picture that replaces the previous one."""
        stay = self._printed(above)
        lines = "\n".join(f"{self._ansi(line)}{_REST_OF_LINE}" for line in picture)
        width, _ = self.size()
        top = self._move_to_top(erase=bool(stay) or width != self._width)
        self._write(f"{_HIDE}{top}{stay}{lines}{_ALL_BELOW}\r")
        self._width = width
        self._drawn = [line.cell_len for line in picture]

    def end(self, above: Iterable[Text], last: Iterable[Text]) -> None:
        """Replace the picture by permanent lines, and show the cursor again."""
        self._write(f"{self._move_to_top(erase=True)}{self._printed([*above, *last])}{_SHOW}")
        self._drawn = []

    def _move_to_top(self, erase: bool) -> str:
        """Return codes that move to the top of the previous picture, and erase it if lines may be wrapped.

        It erases line by line: some terminals keep in their history what is erased from the top of the screen.
        """
        width, height = self.size()
        rows = [max(1, -(-columns // (width + 1))) if self._wraps else 1 for columns in self._drawn]
        up = min(height, sum(rows[:-1]))
        top = f"\r\x1b[{up}A" if up else "\r"
        total = min(height + 1, sum(rows))
        if not erase or not total:
            return top
        back = f"\x1b[{total - 1}A" if total > 1 else ""
        return f"{top}{_DOWN.join([_LINE] * total)}{back}"

    def _printed(self, lines: Iterable[Text]) -> str:
        return "".join(f"{self._ansi(line)}\n" for line in lines)

    def _ansi(self, line: Text) -> str:
        self._text.seek(0)
        self._text.truncate()
        self._console.print(line, soft_wrap=True, end="")
        return self._text.getvalue()

    def _write(self, text: str) -> None:
        self._terminal.write(f"{_BEGIN}{text}{_END}")
        self._terminal.flush()
