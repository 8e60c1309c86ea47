"""Plain lines for logs, pipes and CI: a few of them, and fewer the longer it takes."""

from __future__ import annotations

import sys
from typing import TextIO, final

from hoptree.progress.drawing import study_names, told_counts, told_leader, told_progress, told_work
from hoptree.progress.run_view import RunView, RunViews
from hoptree.report.failures import told
from hoptree.report.tables import duration, printable
from hoptree.store.logs import Logs

_PAUSES = ((60.0, 10.0), (600.0, 30.0))  # until so many seconds have passed, so many between two lines
_LAST_PAUSE = 60.0
_FAILURES = 10  # that are told one by one


@final
class PlainDisplay:
    """Prints a line when a run begins, now and then while it lasts, and when it ends."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._next = _PAUSES[0][1]
        self._told = 0
        self._logs: Logs | None = None

    def begin(self, scenes: RunViews, logs: Logs) -> None:
        """Say that it begins."""
        self._logs = logs

    def look(self, scenes: RunViews) -> None:
        """Say how far it is, if that was not said just before."""
        self._tell_failures(scenes)
        if scenes.elapsed >= self._next:
            elapsed = scenes.elapsed
            self._next = elapsed + next((pause for until, pause in _PAUSES if elapsed < until), _LAST_PAUSE)
            scene = scenes.scene()
            self._print(scene, f"{told_progress(scene)}; {told_counts(scene)}{_best(scene)}")

    def end(self, scenes: RunViews) -> None:
        """Say how it ended; of a run that was refused there is nothing to say."""
        self._tell_failures(scenes)
        scene = scenes.scene(over=True)
        if not any(scene.counts.values()):
            return
        done = f"{told_counts(scene)} in {duration(scene.elapsed)}"
        self._print(scene, f"{done}{_best(scene)}; epochs: {told_work(scene)}")

    def _tell_failures(self, scenes: RunViews) -> None:
        tally = scenes.tally
        new = list(tally.failures)[self._told :] if self._told < _FAILURES else []
        for failure in new:
            self._told += 1
            assert self._logs is not None
            file = self._logs.of_trial(failure.study, failure.number)
            trial = f"{failure.study}: trial {failure.number}"
            self._line(f"{trial} failed: {told(failure.reason)}; see {file}")
            if self._told == _FAILURES:
                self._line("more failures are not told one by one; hoptree trials lists them")
                return

    def _print(self, scene: RunView, text: str) -> None:
        self._line(f"{study_names(scene)}: {text}")

    def _line(self, text: str) -> None:
        stream: TextIO | None = self._stream or sys.stderr
        if stream is None:  # the program was started without
            return
        stream.write(f"{printable(text)}\n")
        stream.flush()


def _best(scene: RunView) -> str:
    return f"; best {told_leader(scene)}" if scene.leaders else ""
