"""The live view of a terminal: one picture that is drawn over itself, and below what users print."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections import deque
from typing import TextIO, final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hoptree.progress.drawing import draw, draw_end
from hoptree.progress.pace import Pace
from hoptree.progress.scene import Scenes
from hoptree.report.failures import told
from hoptree.report.tables import printable
from hoptree.store.logs import Logs

_PAUSE = 0.25  # seconds between two pictures
_SHARE = 0.02  # of the driver's time at most goes into pictures
_FAILURES = 5
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # between them a terminal shows nothing half drawn


@final
class TerminalDisplay:
    """Draws at most four times a second, in the driver's own thread, between two moments.

    What programs and workers print meanwhile would tear the picture, so their two streams lead into a pipe while
    it is there, and what comes out of that is printed above it.
    """

    def __init__(self) -> None:
        self._pipe: _Streams | None = None
        self._live: Live | None = None
        self._terminal: TextIO | None = None
        self._picture = io.StringIO()
        self._pace = Pace(_SHARE, shortest=_PAUSE)
        self._told = 0
        self._logs: Logs | None = None

    def begin(self, scenes: Scenes, logs: Logs) -> None:
        """Take the terminal."""
        self._logs = logs
        self._terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
        console = Console(file=self._picture, force_terminal=True, legacy_windows=False, highlight=False)
        self._live = Live(
            console=console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._pipe = _Streams()
        self._resize(console)
        self._live.start()
        self._draw(scenes)

    def look(self, scenes: Scenes) -> None:
        """Draw, if the last picture is old enough."""
        if self._pace.is_due:
            self._draw(scenes)

    def end(self, scenes: Scenes) -> None:
        """Leave the last few lines, and give the terminal back."""
        assert self._live is not None
        assert self._pipe is not None
        assert self._terminal is not None
        try:
            self._pipe.give_back()
            self._print_above(scenes)
            width, _ = self._resize(self._live.console)
            self._live.update(draw_end(scenes.scene(over=True), width), refresh=True)
        finally:
            self._live.stop()
            self._put()
            self._pipe.pass_on(self._terminal)

    def _draw(self, scenes: Scenes) -> None:
        assert self._live is not None
        with self._pace:
            self._print_above(scenes)
            width, height = self._resize(self._live.console)
            self._live.update(draw(scenes.scene(), width, height - 1), refresh=True)
            self._put()

    def _put(self) -> None:
        """Give the terminal a whole picture in one piece, so that it never shows half of one."""
        assert self._terminal is not None
        text = self._picture.getvalue()
        self._picture.seek(0)
        self._picture.truncate()
        self._terminal.write(f"{_BEGIN}{text}{_END}")
        self._terminal.flush()

    def _resize(self, console: Console) -> tuple[int, int]:
        assert self._terminal is not None
        try:
            width, height = os.get_terminal_size(self._terminal.fileno())
        except OSError:
            width, height = 80, 24
        console.size = (max(20, width), max(4, height))
        return console.width, console.height

    def _print_above(self, scenes: Scenes) -> None:
        assert self._pipe is not None
        assert self._live is not None
        lines = self._pipe.lines
        while lines:
            self._live.console.print(Text.from_ansi(lines.popleft()))
        failures = list(scenes.tally.failures)
        for failure in failures[self._told : _FAILURES]:
            assert self._logs is not None
            file = self._logs.of_trial(failure.study, failure.number)
            text = f"trial {failure.number} failed: {told(failure.reason)}; see {file}"
            self._live.console.print(Text(printable(text), "red"))
            self._told += 1


@final
class _Streams:
    """Standard output and error of this process and of those that it starts, led through a pipe."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=10_000)
        self._output: TextIO | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self._saved = [(number, os.dup(number)) for number in (1, 2)]
        reading, writing = os.pipe()
        for number, _ in self._saved:
            os.dup2(writing, number)
        os.close(writing)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(reading,), name="hoptree-output", daemon=True)
        self._thread.start()

    def give_back(self) -> None:
        """Let the streams be what they were; what workers have printed by now is read to its end."""
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in self._saved:
            os.dup2(saved, number)
            os.close(saved)
        self._thread.join(timeout=1.0)  # somebody may still hold the pipe: a process that outlives its worker

    def pass_on(self, output: TextIO) -> None:
        """Print what still comes, from whoever still holds the pipe."""
        self._output = output
        while self.lines:
            output.write(f"{self.lines.popleft()}\n")
        output.flush()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as pipe:
            for line in pipe:
                if self._output is None:
                    self.lines.append(line.rstrip("\n"))
                else:
                    self._output.write(line)
                    self._output.flush()
