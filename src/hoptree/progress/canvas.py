"""The canvas: the last lines of a terminal, drawn over themselves."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO, final

from rich.console import Console
from rich.text import Text

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # between them a terminal shows nothing half drawn
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"  # the cursor
_LINE, _REST_OF_LINE, _ALL_BELOW = "\x1b[2K", "\x1b[K", "\x1b[J"  # to erase
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
    """Draws pictures on a terminal, each in one piece over the last one, and lines that stay above it.

    A line is never erased before it is drawn: terminals that do not know how to wait for a whole picture do not
    flicker either. The cursor rests where the last line begins, so that it is known how far up the picture begins
    also after the window has become narrower, where terminals wrap what they show.
    """

    def __init__(self, terminal: TextIO, wraps: bool = True) -> None:
        self._terminal = terminal
        self._wraps = wraps
        self._drawn: list[int] = []  # the columns of every line of the last picture
        self._width = 0
        self._text = io.StringIO()
        self._console = Console(file=self._text, force_terminal=True, legacy_windows=False, highlight=False)

    def size(self) -> tuple[int, int]:
        """Return columns and lines: of a picture, which leaves the last column and one line free."""
        try:
            width, height = os.get_terminal_size(self._terminal.fileno())
        except OSError:
            width, height = 0, 0
        return max(1, (width or 80) - 1), max(1, (height or 24) - 1)

    def draw(self, above: Iterable[Text], picture: Sequence[Text]) -> None:
        """Print lines that stay, and beneath them a picture in the place of the last one."""
        stay = self._printed(above)
        lines = "\n".join(f"{self._ansi(line)}{_REST_OF_LINE}" for line in picture)
        width, _ = self.size()
        top = self._to_the_top(erase=bool(stay) or width != self._width)
        self._write(f"{_HIDE}{top}{stay}{lines}{_ALL_BELOW}\r")
        self._width = width
        self._drawn = [line.cell_len for line in picture]

    def end(self, above: Iterable[Text], last: Iterable[Text]) -> None:
        """Leave some lines in the place of the picture, and give the cursor back."""
        self._write(f"{self._to_the_top(erase=True)}{self._printed([*above, *last])}{_SHOW}")
        self._drawn = []

    def _to_the_top(self, erase: bool) -> str:
        """Go to where the last picture begins; it has to be erased where the terminal wraps lines, or has wrapped.

        It goes line by line: some terminals keep what they erase from the top of the screen on.
        """
        width, height = self.size()
        rows = [max(1, -(-columns // (width + 1))) if self._wraps else 1 for columns in self._drawn]
        up = min(height, sum(rows[:-1]))
        top = f"\r\x1b[{up}A" if up else "\r"
        all_of_it = min(height + 1, sum(rows))
        if not erase or not all_of_it:
            return top
        back = f"\x1b[{all_of_it - 1}A" if all_of_it > 1 else ""
        return f"{top}{_DOWN.join([_LINE] * all_of_it)}{back}"

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
