"""A display shows a run to whoever looks on: the drive loop tells it what happens, and it decides when to draw."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, final

from hoptree.core.engine import Engine
from hoptree.core.steps import Step
from hoptree.estimate import Estimator
from hoptree.progress.remaining_budget import BudgetTracker
from hoptree.progress.run_stats import RunStats
from hoptree.progress.run_view import RunView, RunViews
from hoptree.search.protocol import Goal
from hoptree.store.logs import Logs


class Display(Protocol):
    """What a run is shown with."""

    def begin(self, scenes: RunViews, logs: Logs) -> None:
        """Show that a run begins."""
        ...

    def look(self, scenes: RunViews) -> None:
        """Show what there is to see, if it is time to."""
        ...

    def end(self, scenes: RunViews) -> None:
        """Show how it ended; nothing is drawn afterwards."""
        ...


@final
class NoDisplay:
    """Shows nothing at all."""

    def begin(self, scenes: RunViews, logs: Logs) -> None:
        """Show nothing."""

    def look(self, scenes: RunViews) -> None:
        """Show nothing."""

    def end(self, scenes: RunViews) -> None:
        """Show nothing."""


@final
class ProgressReporter:
    """Stands between a driver and a display: keeps the tally, and lets the display look after every moment."""

    def __init__(
        self, display: Display, goals: Mapping[str, Goal], workers: int, logs: Path, asking: BudgetTracker
    ) -> None:
        self._display = display
        self._asking = asking
        self._goals = goals
        self._workers = workers
        self._logs = Logs(logs)
        self._scenes: RunViews | None = None

    def begin(self, engine: Engine, estimator: Estimator) -> None:
        """Look on from here; the estimator goes on learning."""
        if not isinstance(self._display, NoDisplay):
            self._scenes = RunViews(RunStats(engine, self._goals), self._workers, estimator, self._asking)
            scenes, logs = self._scenes, self._logs
            if not self._drawn(lambda: self._display.begin(scenes, logs)):
                self._scenes = None

    def see(self, step: Step) -> None:
        """Take in what happens: a watch of the drive loop."""
        if self._scenes is not None:
            self._scenes.tally.see(step)
            if not step.more:
                self.tick()

    def tick(self) -> None:
        """Look again although nothing has happened."""
        scenes = self._scenes
        if scenes is not None and not self._drawn(lambda: self._display.look(scenes)):
            self.end()

    def view(self) -> RunView | None:
        """Return what there is to see now; None when nothing is shown."""
        return None if self._scenes is None else self._scenes.scene()

    def end(self) -> None:
        """Show how it ended."""
        scenes, self._scenes = self._scenes, None
        if scenes is not None:
            self._drawn(lambda: self._display.end(scenes))

    def _drawn(self, draw: Callable[[], None]) -> bool:
        """Draw; where nobody reads any more (``python study/study.py | head``) return False: the run goes on unseen."""
        try:
            draw()
        except OSError:
            return False
        return True


def choose_display(quiet: bool = False) -> Display:
    """Return what suits whoever looks on: a terminal, a notebook, or a log."""
    if quiet:
        return NoDisplay()
    if _in_notebook():
        from hoptree.progress.notebook import NotebookDisplay

        return NotebookDisplay()
    if _on_a_terminal():
        from hoptree.progress.terminal import TerminalDisplay

        return TerminalDisplay()
    from hoptree.progress.plain import PlainDisplay

    return PlainDisplay()


def _on_a_terminal() -> bool:
    """Whether somebody sees the cursor move: both streams are terminals, and no robot runs us."""
    if os.environ.get("TERM", "dumb") == "dumb" or os.environ.get("CI"):
        return False
    try:
        streams = (sys.stdout.fileno(), sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # replaced by something without a file
        return False
    return streams == (1, 2) and all(map(os.isatty, streams))


def _in_notebook() -> bool:
    """Whether this is a notebook's kernel; IPython is not imported to find out."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and hasattr(shell, "kernel")
