"""The live view in a terminal: one picture that is redrawn in place, below what user code prints."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from typing import TextIO, final

from rich.text import Text

from hoptree.progress.canvas import Canvas, wraps_lines
from hoptree.progress.drawing import draw, draw_end
from hoptree.progress.rate_limit import RateLimit
from hoptree.progress.run_view import RunViews
from hoptree.report.failures import error_in_one_line
from hoptree.report.tables import printable
from hoptree.store.logs import Logs

_PAUSE = 0.25  # seconds between two pictures
_SHARE = 0.02  # share of the driver's time that may be spent on pictures
_FAILURES = 5


@final
class TerminalDisplay:
    """Draws at most four times a second, in the driver's own thread, between two events.

    Output of the program and of workers would break the picture, so stdout and stderr are redirected into a pipe
    meanwhile, and what they print is shown above the picture.
    """

    def __init__(self) -> None:
        self._pipe: _Streams | None = None
        self._canvas: Canvas | None = None
        self._terminal: TextIO | None = None
        self._limit = RateLimit(_SHARE, shortest=_PAUSE)
        self._shown = 0
        self._logs: Logs | None = None

    def begin(self, views: RunViews, logs: Logs) -> None:
        """Redirect stdout and stderr, and draw the first picture."""
        self._logs = logs
        self._terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
        self._pipe = _Streams()
        self._canvas = Canvas(self._terminal, wraps_lines(os.environ))
        self._draw(views)

    def update(self, views: RunViews) -> None:
        """Draw, if the last picture is old enough."""
        if self._limit.is_due:
            self._draw(views)

    def end(self, views: RunViews) -> None:
        """Print the last few lines, and restore stdout and stderr."""
        assert self._canvas is not None
        assert self._pipe is not None
        assert self._terminal is not None
        above: list[Text] = []
        last: list[Text] = []
        try:
            self._pipe.restore()
            above = self._above(views)
            last = draw_end(views.view(over=True), self._canvas.size()[0])
        finally:
            self._canvas.end(above, last)
            self._pipe.pass_on(self._terminal)

    def _draw(self, views: RunViews) -> None:
        assert self._canvas is not None
        with self._limit:
            above = self._above(views)
            self._canvas.draw(above, draw(views.view(), *self._canvas.size()))

    def _above(self, views: RunViews) -> list[Text]:
        """Return new output and failures, which are printed above the picture."""
        assert self._pipe is not None
        assert self._logs is not None
        found: list[Text] = []
        while self._pipe.lines:
            found.append(Text.from_ansi(self._pipe.lines.popleft()))
        for failure in list(views.stats.failures)[self._shown : _FAILURES]:
            file = self._logs.of_trial(failure.study, failure.number)
            text = f"trial {failure.number} failed: {error_in_one_line(failure.reason)}; see {file}"
            found.append(Text(printable(text), "red"))
            self._shown += 1
        return found


@final
class _Streams:
    """Redirects stdout and stderr of this process and its child processes into a pipe."""

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

    def restore(self) -> None:
        """Restore the streams, after reading everything that workers have printed so far."""
        sys.stdout.flush()
        sys.stderr.flush()
        for number, saved in self._saved:
            os.dup2(saved, number)
            os.close(saved)
        self._thread.join(timeout=1.0)  # a process that outlives its worker may still hold the pipe

    def pass_on(self, output: TextIO) -> None:
        """Print later output of processes that still hold the pipe."""
        self._output = output
        while self.lines:
            output.write(f"{self.lines.popleft()}\n")
        output.flush()

    def _read(self, descriptor: int) -> None:
        # A carriage return without a newline restarts a line, as progress bars do: only its last version counts.
        with os.fdopen(descriptor, encoding="utf-8", errors="replace", newline="\n") as pipe:
            for line in pipe:
                if self._output is None:
                    self.lines.append(line.rstrip("\r\n"))
                else:
                    self._output.write(line)
                    self._output.flush()
