"""The displays that are compared: ours, and two that draw the same pictures with rich's `Live`."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import TextIO, final

from rich.console import Console, Group
from rich.text import Text

from hoptree.progress.display import Display
from hoptree.progress.drawing import draw, draw_end
from hoptree.progress.rate_limit import RateLimit
from hoptree.progress.run_view import RunViews
from hoptree.progress.terminal import TerminalDisplay, _Streams
from hoptree.store.logs import Logs

_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"


@final
class LiveDisplay:
    """Uses `Live` as documented: it replaces `sys.stdout` and `sys.stderr` and writes to the terminal itself."""

    def __init__(self) -> None:
        from rich.live import Live  # here, so that ours starts without it

        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")

    def begin(self, views: RunViews, logs: Logs) -> None:
        """Take the terminal."""
        self._live.start()
        self.update(views)

    def update(self, views: RunViews) -> None:
        """Draw."""
        width, height = self._console.size
        self._live.update(Group(*draw(views.view(), max(1, width - 1), max(1, height - 1))), refresh=True)

    def end(self, views: RunViews) -> None:
        """Leave the last few lines, and give the terminal back."""
        self._live.update(Group(*draw_end(views.view(over=True), max(1, self._console.width - 1))))
        self._live.stop()


@final
class LiveDisplayWithPipe:
    """Uses `Live` for the cursor alone.

    The streams of all processes go through our pipe, and each picture is one write within a synchronized update.
    """

    def __init__(self) -> None:
        from rich.live import Live

        self._buffer = io.StringIO()
        self._console = Console(file=self._buffer, force_terminal=True, legacy_windows=False, highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._terminal: TextIO | None = None
        self._pipe: _Streams | None = None

    def begin(self, views: RunViews, logs: Logs) -> None:
        """Take the terminal."""
        self._terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
        self._pipe = _Streams()
        self._resize()
        self._live.start()
        self.update(views)

    def update(self, views: RunViews) -> None:
        """Draw."""
        width, height = self._resize()
        self._print_above()
        self._live.update(Group(*draw(views.view(), width, height)), refresh=True)
        self._write()

    def end(self, views: RunViews) -> None:
        """Leave the last few lines, and give the terminal back."""
        assert self._pipe is not None
        assert self._terminal is not None
        self._pipe.give_back()
        width, _ = self._resize()
        self._live.stop()
        self._print_above()
        for line in draw_end(views.view(over=True), width):
            self._console.print(line, soft_wrap=True)
        self._write()
        self._pipe.pass_on(self._terminal)

    def _resize(self) -> tuple[int, int]:
        assert self._terminal is not None
        width, height = os.get_terminal_size(self._terminal.fileno())
        self._console.size = (width, height)
        return max(1, width - 1), max(1, height - 1)

    def _print_above(self) -> None:
        assert self._pipe is not None
        lines = self._pipe.lines
        above = [lines.popleft() for _ in range(len(lines))]
        if above:
            self._console.print(Text.from_ansi("\n".join(above)), soft_wrap=True)

    def _write(self) -> None:
        assert self._terminal is not None
        self._terminal.write(f"{_BEGIN}{self._buffer.getvalue()}{_END}")
        self._terminal.flush()
        self._buffer.seek(0)
        self._buffer.truncate()


def our_display() -> TerminalDisplay:
    """Return the display that users get, but one that draws whenever it is asked to."""
    display = TerminalDisplay()
    display._limit = RateLimit(share=float("inf"))
    return display


DISPLAYS: dict[str, Callable[[], Display]] = {
    "ours": our_display,
    "Live": LiveDisplay,
    "Live + our pipe": LiveDisplayWithPipe,
}
