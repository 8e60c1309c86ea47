"""Displays show the progress of a run: the event loop passes them every step, and they decide when to draw."""

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
    """Shows the progress of a run."""

    def begin(self, views: RunViews, logs: Logs) -> None:
        """Show that a run starts."""
        ...

    def update(self, views: RunViews) -> None:
        """Show the current state, if the last update is old enough."""
        ...

    def end(self, views: RunViews) -> None:
        """Show the result; nothing is drawn afterwards."""
        ...


@final
class NoDisplay:
    """Shows nothing."""

    def begin(self, views: RunViews, logs: Logs) -> None:
        """Show nothing."""

    def update(self, views: RunViews) -> None:
        """Show nothing."""

    def end(self, views: RunViews) -> None:
        """Show nothing."""


@final
class ProgressReporter:
    """Connects a driver with a display: updates the statistics, then the display, after every event."""

    def __init__(
        self, display: Display, goals: Mapping[str, Goal], workers: int, logs: Path, budget: BudgetTracker
    ) -> None:
        self._display = display
        self._budget = budget
        self._goals = goals
        self._workers = workers
        self._logs = Logs(logs)
        self._views: RunViews | None = None

    def begin(self, engine: Engine, estimator: Estimator) -> None:
        """Start to show the run; the estimator keeps learning."""
        if not isinstance(self._display, NoDisplay):
            self._views = RunViews(RunStats(engine, self._goals), self._workers, estimator, self._budget)
            views, logs = self._views, self._logs
            if not self._drawn(lambda: self._display.begin(views, logs)):
                self._views = None

    def see(self, step: Step) -> None:
        """Process a step: an observer of the event loop."""
        if self._views is not None:
            self._views.stats.see(step)
            if not step.more:
                self.tick()

    def tick(self) -> None:
        """Update the display although no event has occurred."""
        views = self._views
        if views is not None and not self._drawn(lambda: self._display.update(views)):
            self.end()

    def view(self) -> RunView | None:
        """Return the current view; None if nothing is shown."""
        return None if self._views is None else self._views.view()

    def end(self) -> None:
        """Show the result."""
        views, self._views = self._views, None
        if views is not None:
            self._drawn(lambda: self._display.end(views))

    def _drawn(self, draw: Callable[[], None]) -> bool:
        """Draw; return False if the output was closed (``python study.py | head``): the run continues anyway."""
        try:
            draw()
        except OSError:
            return False
        return True


def choose_display(quiet: bool = False) -> Display:
    """Return the display for the current environment: a terminal, a notebook, or a log."""
    if quiet:
        return NoDisplay()
    if _in_notebook():
        from hoptree.progress.notebook import NotebookDisplay

        return NotebookDisplay()
    if _in_terminal():
        from hoptree.progress.terminal import TerminalDisplay

        return TerminalDisplay()
    from hoptree.progress.plain import PlainDisplay

    return PlainDisplay()


def _in_terminal() -> bool:
    """Return whether stdout and stderr are interactive terminals, outside of CI."""
    if os.environ.get("TERM", "dumb") == "dumb" or os.environ.get("CI"):
        return False
    try:
        streams = (sys.stdout.fileno(), sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # replaced by an object without a file descriptor
        return False
    return streams == (1, 2) and all(map(os.isatty, streams))


def _in_notebook() -> bool:
    """Return whether this is a notebook's kernel, without importing IPython."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and hasattr(shell, "kernel")
