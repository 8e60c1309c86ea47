"""Live progress in a notebook: one output that is updated in place."""

from __future__ import annotations

import time
from typing import Any, final

from hoptree.progress.drawing import best_text, counts_text, number, progress_text, study_names, work_text
from hoptree.progress.run_view import RunView, RunViews
from hoptree.report.failures import error_in_one_line
from hoptree.report.html import html_bar, html_facts, html_table
from hoptree.report.spark import sparkline
from hoptree.store.logs import Logs

_PAUSE = 0.5  # seconds between updates: each is a message to a browser
_ROWS = 20
_CURVE = 24
_FAILURES = 5


@final
class NotebookDisplay:
    """Shows a run in the output of the cell that runs it."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._due = 0.0
        self._logs: Logs | None = None

    def begin(self, views: RunViews, logs: Logs) -> None:
        """Create the output."""
        page = _page()
        self._logs = logs
        self._handle = page.display(page.HTML(self._html(views.view())), display_id=True)

    def update(self, views: RunViews) -> None:
        """Update the output, if the last update is old enough."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _PAUSE
            self._update(self._html(views.view()))

    def end(self, views: RunViews) -> None:
        """Show the result."""
        self._update(self._html(views.view(over=True), over=True))

    def _update(self, text: str) -> None:
        if self._handle is not None:
            self._handle.update(_page().HTML(text))

    def _html(self, view: RunView, over: bool = False) -> str:
        facts: dict[str, object] = {"trials": counts_text(view)}
        if view.best_trials:
            facts["best"] = "\n".join(best_text(view, i) for i in range(len(view.best_trials)))
        facts["epochs"] = work_text(view)
        if not over:
            facts["workers"] = ", ".join(f"{worker.name} {worker.doing}" for worker in view.workers[:16])
        for failure in view.failures[:_FAILURES]:
            assert self._logs is not None
            file = self._logs.of_trial(failure.study, failure.number)
            facts[f"trial {failure.number} failed"] = f"{error_in_one_line(failure.reason)}; see {file}"
        title = f"{study_names(view)}: {progress_text(view, over)}"
        bar = [] if view.fraction is None else [html_bar(view.fraction)]
        parts = [*bar, html_facts(title, facts)]
        if not over and view.rows:
            parts.append(_rows(view))
        return f"<div>{''.join(parts)}</div>"


def _page() -> Any:
    from IPython import display

    return display


def _rows(view: RunView) -> str:
    shown = view.rows[:_ROWS]
    table = html_table(
        ["trial", "epochs", "goal", "curve", "now", "config"],
        [
            [
                row.number,
                f"{row.epochs}/{row.until}",
                number(row.values[-1]) if row.values else None,
                sparkline(row.values, _CURVE),
                ", ".join(row.by),
                row.config,
            ]
            for row in shown
        ],
    )
    more = len(view.rows) + view.hidden - len(shown)
    return f"{table}<div>and {more:,} more</div>" if more else table
