"""The live view of a terminal: one picture that is drawn over itself, and below what users print."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from typing import TextIO, final

from rich.text import Text

from hoptree.progress.canvas import Canvas, wraps_lines
from hoptree.progress.drawing import draw, draw_end
from hoptree.progress.pace import Pace
from hoptree.progress.scene import Scenes
from hoptree.report.failures import told
from hoptree.report.tables import printable
from hoptree.store.logs import Logs

_PAUSE = 0.25  # seconds between two pictures
_SHARE = 0.02  # of the driver's time at most goes into pictures
_FAILURES = 5


@final
class TerminalDisplay:
    """Draws at most four times a second, in the driver's own thread, between two moments.

    What programs and workers print meanwhile would tear the picture, so their two streams lead into a pipe while
    it is there, and what comes out of that is printed above it.
    """

    def __init__(self) -> None:
        self._pipe: _Streams | None = None
        self._canvas: Canvas | None = None
        self._terminal: TextIO | None = None
        self._pace = Pace(_SHARE, shortest=_PAUSE)
        self._told = 0
        self._logs: Logs | None = None

    def begin(self, scenes: Scenes, logs: Logs) -> None:
        """Take the terminal."""
        self._logs = logs
        self._terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
        self._pipe = _Streams()
        self._canvas = Canvas(self._terminal, wraps_lines(os.environ))
        self._draw(scenes)

    def look(self, scenes: Scenes) -> None:
        """Draw, if the last picture is old enough."""
        if self._pace.is_due:
            self._draw(scenes)

    def end(self, scenes: Scenes) -> None:
        """Leave the last few lines, and give the terminal back."""
        assert self._canvas is not None
        assert self._pipe is not None
        assert self._terminal is not None
        above: list[Text] = []
        last: list[Text] = []
        try:
            self._pipe.give_back()
            above = self._above(scenes)
            last = draw_end(scenes.scene(over=True), self._canvas.size()[0])
        finally:
            self._canvas.end(above, last)
            self._pipe.pass_on(self._terminal)

    def _draw(self, scenes: Scenes) -> None:
        assert self._canvas is not None
        with self._pace:
            above = self._above(scenes)
            self._canvas.draw(above, draw(scenes.scene(), *self._canvas.size()))

    def _above(self, scenes: Scenes) -> list[Text]:
        """Return what is new to be told above the picture."""
        assert self._pipe is not None
        assert self._logs is not None
        found: list[Text] = []
        while self._pipe.lines:
            found.append(Text.from_ansi(self._pipe.lines.popleft()))
        for failure in list(scenes.tally.failures)[self._told : _FAILURES]:
            file = self._logs.of_trial(failure.study, failure.number)
            text = f"trial {failure.number} failed: {told(failure.reason)}; see {file}"
            found.append(Text(printable(text), "red"))
            self._told += 1
        return found


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
        # A return without a new line begins a line anew, as bars of progress do: the last of it is what counts.
        with os.fdopen(descriptor, encoding="utf-8", errors="replace", newline="\n") as pipe:
            for line in pipe:
                if self._output is None:
                    self.lines.append(line.rstrip("\r\n"))
                else:
                    self._output.write(line)
                    self._output.flush()
