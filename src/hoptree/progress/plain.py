"""Progress as a few plain lines for logs, pipes and CI, fewer the longer a run takes."""

from __future__ import annotations

import sys
from typing import TextIO, final

from hoptree.progress.drawing import best_text, counts_text, progress_text, study_names, work_text
from hoptree.progress.run_view import RunView, RunViews
from hoptree.report.failures import error_in_one_line
from hoptree.report.tables import duration, printable
from hoptree.store.logs import Logs

_PAUSES = ((60.0, 10.0), (600.0, 30.0))  # until this many seconds have elapsed, the seconds between two lines
_LAST_PAUSE = 60.0
_FAILURES = 10  # failures that are shown one by one


@final
class PlainDisplay:
    """Prints a line from time to time while a run lasts, and when it ends."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._next = _PAUSES[0][1]
        self._shown = 0
        self._logs: Logs | None = None

    def begin(self, views: RunViews, logs: Logs) -> None:
        """Remember where the logs are."""
        self._logs = logs

    def update(self, views: RunViews) -> None:
        """Print the progress, if the last line is old enough."""
        self._report_failures(views)
        if views.elapsed >= self._next:
            elapsed = views.elapsed
            self._next = elapsed + next((pause for until, pause in _PAUSES if elapsed < until), _LAST_PAUSE)
            view = views.view()
            self._print(view, f"{progress_text(view)}; {counts_text(view)}{_best(view)}")

    def end(self, views: RunViews) -> None:
        """Print the result; nothing for a run without trials."""
        self._report_failures(views)
        view = views.view(over=True)
        if not any(view.counts.values()):
            return
        done = f"{counts_text(view)} in {duration(view.elapsed)}"
        self._print(view, f"{done}{_best(view)}; epochs: {work_text(view)}")

    def _report_failures(self, views: RunViews) -> None:
        stats = views.stats
        new = list(stats.failures)[self._shown :] if self._shown < _FAILURES else []
        for failure in new:
            self._shown += 1
            assert self._logs is not None
            file = self._logs.of_trial(failure.study, failure.number)
            trial = f"{failure.study}: trial {failure.number}"
            self._line(f"{trial} failed: {error_in_one_line(failure.reason)}; see {file}")
            if self._shown == _FAILURES:
                self._line("further failures are not shown; hoptree trials lists them")
                return

    def _print(self, view: RunView, text: str) -> None:
        self._line(f"{study_names(view)}: {text}")

    def _line(self, text: str) -> None:
        stream: TextIO | None = self._stream or sys.stderr
        if stream is None:  # the program was started without a stderr
            return
        stream.write(f"{printable(text)}\n")
        stream.flush()


def _best(view: RunView) -> str:
    return f"; best {best_text(view)}" if view.best_trials else ""
