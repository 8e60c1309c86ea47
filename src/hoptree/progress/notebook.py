"""Live progress in a notebook: one output that is replaced in place."""

from __future__ import annotations

import time
from typing import Any, final

from hoptree.progress.drawing import number, study_names, told_counts, told_leader, told_progress, told_work
from hoptree.progress.run_view import RunView, RunViews
from hoptree.report.failures import told
from hoptree.report.html import html_bar, html_facts, html_table
from hoptree.report.spark import sparkline
from hoptree.store.logs import Logs

_PAUSE = 0.5  # seconds: every picture is a message to a browser
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

    def begin(self, scenes: RunViews, logs: Logs) -> None:
        """Make the output."""
        page = _page()
        self._logs = logs
        self._handle = page.display(page.HTML(self._html(scenes.scene())), display_id=True)

    def look(self, scenes: RunViews) -> None:
        """Replace it, if it is old enough."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _PAUSE
            self._update(self._html(scenes.scene()))

    def end(self, scenes: RunViews) -> None:
        """Leave how it ended."""
        self._update(self._html(scenes.scene(over=True), over=True))

    def _update(self, text: str) -> None:
        if self._handle is not None:
            self._handle.update(_page().HTML(text))

    def _html(self, scene: RunView, over: bool = False) -> str:
        facts: dict[str, object] = {"trials": told_counts(scene)}
        if scene.leaders:
            facts["best"] = "\n".join(told_leader(scene, i) for i in range(len(scene.leaders)))
        facts["epochs"] = told_work(scene)
        if not over:
            facts["workers"] = ", ".join(f"{hand.name} {hand.doing}" for hand in scene.hands[:16])
        for failure in scene.failures[:_FAILURES]:
            assert self._logs is not None
            file = self._logs.of_trial(failure.study, failure.number)
            facts[f"trial {failure.number} failed"] = f"{told(failure.reason)}; see {file}"
        title = f"{study_names(scene)}: {told_progress(scene, over)}"
        bar = [] if scene.fraction is None else [html_bar(scene.fraction)]
        parts = [*bar, html_facts(title, facts)]
        if not over and scene.rows:
            parts.append(_rows(scene))
        return f"<div>{''.join(parts)}</div>"


def _page() -> Any:
    from IPython import display

    return display


def _rows(scene: RunView) -> str:
    shown = scene.rows[:_ROWS]
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
    more = len(scene.rows) + scene.hidden - len(shown)
    return f"{table}<div>and {more:,} more</div>" if more else table
