"""Warnings about NaN and infinity in data and metrics: once each, with the column, or the metric and its trial."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from hoptree.core.actions import Report
from hoptree.core.steps import Step
from hoptree.driver.request_validation import shown_number
from hoptree.record.record import Record
from hoptree.search.protocol import Goal

if TYPE_CHECKING:
    from hoptree.data import Dataset

log = logging.getLogger("hoptree")


@final
class NotFiniteMetrics:
    """Observes the drive loop; warns once per metric, about the first trial that reports NaN or infinity for it."""

    def __init__(self, record: Record, goals: Mapping[str, Goal]) -> None:
        self._record = record
        self._goals = goals
        self._warned: set[tuple[str, str]] = set()  # studies and metrics

    def note(self, step: Step) -> None:
        """Check the reports of a step."""
        for action in step.actions:
            if isinstance(action, Report):
                for metric, value in action.metrics.items():
                    if not math.isfinite(value):
                        self._warn(action, metric, value)

    def _warn(self, report: Report, metric: str, value: float) -> None:
        trial = self._record.by_number[report.trial]
        if (trial.study, metric) in self._warned:
            return
        self._warned.add((trial.study, metric))
        goal = self._goals.get(trial.study)
        decides = goal is not None and goal.metric == metric
        log.warning(
            "trial %s of %r: %s is %s after epoch %s%s; Hoptree does not warn about other trials with such values",
            shown_number(self._record, trial),
            trial.study,
            metric,
            value,
            report.epoch,
            ", so the trial cannot be the best while this is its last report" if decides else "",
        )


def warn_of_data(data: Dataset) -> None:
    """Warn about columns with NaN or infinity, as counted when the dataset was built."""
    for part, columns in (data.manifest.not_finite or {}).items():
        for column, count in columns.items():
            log.warning(
                "data: column %r of the %s data has %s values that are NaN or infinite", column, part, count
            )
