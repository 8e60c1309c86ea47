"""Results: what a study found, and what it cost."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.core.errors import HoptreeError, MissingExtraError
from hoptree.core.events import Metrics
from hoptree.core.plan import Trial
from hoptree.core.schedules import Config
from hoptree.core.study_state import StudyState
from hoptree.record.cost import Cost
from hoptree.record.error_format import brief_errors
from hoptree.record.record import Record
from hoptree.record.retrain import Retrainer
from hoptree.report.failures import error_in_one_line
from hoptree.report.spark import sparkline
from hoptree.report.study_timeline import standing
from hoptree.report.tables import size
from hoptree.report.traffic import Traffic
from hoptree.search.protocol import Goal

if TYPE_CHECKING:
    import pandas as pd

    from hoptree.report.study_timeline import StudyTimeline
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import ModelState

log = logging.getLogger("hoptree")

_SHOWN = 50  # trials in a notebook's table


class NoStateError(HoptreeError, LookupError):
    """No trained model exists: no trial has been trained that far."""


class Savings(msgspec.Struct, frozen=True):
    """The work that trials asked for, and the work that was done.

    Of ``epochs_asked`` by all trials, ``epochs_shared`` are common to several trials and needed only once,
    ``epochs_reused`` were in the store, and ``epochs_trained`` were trained in this run. Of these,
    ``epochs_in_vain`` were trained again because their states were lost, or for trials that were stopped before
    they reported. ``merge_rate`` is the number of epochs asked for over the number of distinct ones.
    ``bytes_hopped`` is the size of all states that moved between workers.
    """

    epochs_asked: float
    epochs_trained: float
    epochs_shared: float
    epochs_reused: float
    merge_rate: float
    bytes_hopped: int
    state_bytes: int = 0  # of a state, averaged over the units trained in this run
    bytes_between_nodes: int = 0  # of bytes_hopped, those to a worker on another machine
    epochs_in_vain: float = 0.0

    @classmethod
    def count(
        cls,
        state: StudyState,
        units: int,
        bytes_hopped: int,
        state_bytes: int = 0,
        bytes_between_nodes: int = 0,
        made: Mapping[int, int] | None = None,
    ) -> Savings:
        """Return the work that trials asked for, compared with the units that were trained in this run.

        ``made`` has the trained units by node, one bit each; without it, all count as needed.
        """
        partitions = state.settings.partitions
        trials = state.trials.values()
        work = state.plan.work(trials)
        done = state.plan.work(trials, done=True).unique
        served = min(units, done) if made is None else _served(state, made)
        return cls(
            epochs_asked=work.asked / partitions,
            epochs_trained=units / partitions,
            epochs_shared=(work.asked - work.unique) / partitions,
            epochs_reused=(done - served) / partitions,
            merge_rate=work.merge_rate,
            bytes_hopped=bytes_hopped,
            state_bytes=state_bytes,
            bytes_between_nodes=bytes_between_nodes,
            epochs_in_vain=0.0 if made is None else (units - served) / partitions,
        )

    def __str__(self) -> str:
        between = f", {size(self.bytes_between_nodes)} between nodes" if self.bytes_between_nodes else ""
        vain = f" ({self.epochs_in_vain:g} in vain)" if self.epochs_in_vain else ""
        return (
            f"{self.epochs_asked:g} epochs asked, {self.epochs_trained:g} trained{vain}, "
            f"{self.epochs_shared:g} shared, {self.epochs_reused:g} reused (merge rate {self.merge_rate:.2f}); "
            f"{size(self.bytes_hopped)} hopped{between}"
        )


def _served(state: StudyState, made: Mapping[int, int]) -> int:
    """Return how many of the trained units belong to trials that have reported beyond them."""
    count = 0
    for number, end in state.plan.reach(state.trials.values(), done=True).items():
        start = state.plan.nodes[number].start
        count += (made.get(number, 0) >> start & (1 << (end - start)) - 1).bit_count()
    return count


@final
class TrialResult:
    """One trial: its config, how it ended, and its curve.

    ``state`` is "complete", "stopped", "failed" or "running"; ``curve`` has the metrics by epoch; ``error`` is the
    error of a failed trial.

    Its weights are in the store. If they are missing or damaged, they are trained again in this process when you
    ask for them; the result has the same bits.
    """

    def __init__(
        self, number: int, trial: Trial, record: Record, states: StateStore, retrainer: Retrainer | None
    ) -> None:
        self.number = number
        self.config: Config = dict(trial.history[-1].config)
        self.state = trial.ending or "running"
        self.curve: dict[int, Metrics] = trial.curve
        self.error = trial.reason
        self._trial = trial
        self._place = record.place(trial)
        self._states = states
        self._retrainer = retrainer

    @property
    def epochs(self) -> int:
        """The number of epochs up to the last report."""
        return max(self.curve, default=0)

    @property
    def metrics(self) -> Metrics:
        """The metrics of the last report."""
        return self.curve[self.epochs] if self.curve else {}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the state's arrays in name order: the same if weights and optimizer state are equal."""
        from hoptree.store import fingerprint

        arrays = self._stored()
        return fingerprint(self._retrain()[1].arrays if arrays is None else arrays[0])

    def load(self) -> Any:
        """Return the trained model."""
        from hoptree.trainers.base import ModelState

        retrainer = self._require_retrainer()
        stored = self._stored()
        if stored is None:
            model, _ = self._retrain()
        else:
            model = retrainer.untrained(self._trial)
            retrainer.trainer.load(model, ModelState(*stored))
        return retrainer.trainer.export(model)

    def save(self, path: str | Path) -> Path:
        """Write the trained weights as `.safetensors`, or as `.pt`: a state dict for ``load_state_dict``."""
        from hoptree.trainers.base import ModelState
        from hoptree.trainers.weights import check_weights, save_weights

        check_weights(path)
        stored = self._stored()
        return save_weights(self._retrain()[1] if stored is None else ModelState(*stored), path)

    def _stored(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        from hoptree.store import StateDamagedError, StateMissingError

        if self._place is None:
            why = f" after this error:\n{self.error}" if self.error else ""
            raise NoStateError(f"trial {self.number}: it has no stored state; it is {self.state}{why}")
        try:
            return self._states.get(self._place.node.state_key(self._place.unit))
        except (StateDamagedError, StateMissingError) as error:
            if self._retrainer is None:
                raise
            log.warning("trial %s is trained again: %s", self.number, error)
            return None

    def _retrain(self) -> tuple[Any, ModelState]:
        return self._require_retrainer().train(self._trial, self._states)

    def _require_retrainer(self) -> Retrainer:
        if self._retrainer is None:
            raise NoStateError(
                f"trial {self.number}: loading its model needs the code that trained it; use the study: "
                "study.results().trials[…]"
            )
        return self._retrainer

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.config.items())
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        what = error_in_one_line(self.error) if self.error else metrics
        return f"trial {self.number} ({values}): {self.state} after {self.epochs} epochs: {what}"

    def _repr_html_(self) -> str:
        """Return the trial as HTML for a notebook."""
        from hoptree.report.html import html_facts, html_table, html_text

        facts = {"state": self.state, "epochs": self.epochs, **{n: str(v) for n, v in self.config.items()}}
        parts = [html_facts(f"trial {self.number}", facts)]
        if self.curve:
            names = list(dict.fromkeys(name for metrics in self.curve.values() for name in metrics))
            rows = [[epoch, *map(metrics.get, names)] for epoch, metrics in sorted(self.curve.items())]
            parts.append(html_table(["epoch", *names], rows))
        return "".join([*parts, html_text(self.error)] if self.error else parts)


@final
class Results:
    """All trials of a study."""

    def __init__(
        self,
        trials: Sequence[TrialResult],
        goal: Goal,
        savings: Savings,
        traffic: Traffic | None = None,
        timeline: Callable[[], StudyTimeline] | None = None,
        cost: Cost | None = None,
    ) -> None:
        self.trials = list(trials)
        self.savings = savings
        self.traffic = traffic  # bytes moved, also by other methods; None: nothing was trained
        self.cost = cost  # of the nodes of all studies that ran together; None: no instance was given
        self.limit_reached = False  # whether the time limit of the run has ended it before all trials had
        self._goal = goal
        self._timeline = timeline

    @property
    def best(self) -> TrialResult:
        """The complete trial with the best last report, or the best of the others if none is complete.

        These are stopped trials, and those that a time limit or an interrupt has left unfinished. A trial whose
        last report of the goal is NaN or infinite is never the best; raise ``NoStateError`` if all are so.
        """
        best = self.find_best()
        if best is None:
            with brief_errors():
                raise NoStateError(self._why_none())
        return best

    def find_best(self) -> TrialResult | None:
        """Return the best trial; None if there is none."""
        ended = [trial for trial in self.trials if trial.state != "failed"]
        finite = [trial for trial in ended if math.isfinite(self._goal.loss(trial.metrics))]
        return min(finite, key=self._rank, default=None)

    def _rank(self, trial: TrialResult) -> tuple[int, float, int]:
        loss = self._goal.loss(trial.metrics)
        return standing(trial.state, loss), loss, trial.number

    def _why_none(self) -> str:
        metric = self._goal.metric
        ended = [trial for trial in self.trials if trial.state != "failed" and trial.curve]
        if ended:
            values = ", ".join(str(value) for value in dict.fromkeys(t.metrics.get(metric) for t in ended))
            return (
                f"no trial ended with a finite {metric!r}, so there is no best one; the last reports of "
                f"{len(ended)} trials are {values}: look for NaN in the data and for a division by zero or a "
                f"logarithm of zero in {metric!r}, or search smaller learning rates"
            )
        failed = [trial for trial in self.trials if trial.error]
        if not failed:
            return "no trial is complete, so there is no best one; run the study again to resume it"
        first = failed[0]
        return (
            f"no trial is complete, so there is no best one; {len(failed)} of {len(self.trials)} failed, such as "
            f"trial {first.number}: {error_in_one_line(first.error)}; "
            f"trials[{first.number}].error has the full error"
        )

    def study_timeline(self) -> StudyTimeline:
        """Return the timeline of the study from its journal, from which plots and exports are made."""
        if self._timeline is None:
            raise NoStateError("results: they were read without the journal; use study.results()")
        return self._timeline()

    def export(self, kind: str, path: str | Path, **options: Any) -> Path:
        """Write the results to a file for other programs, and return its path.

        ``kind`` is "csv", "parquet" (``reports=True`` for a row per report), "tensorboard", "mlflow", "html"
        (``dark=True``), or "safetensors" and "pt" for the weights of the best model.
        """
        from hoptree.exports import export

        if kind in ("safetensors", "pt"):
            target = Path(path)
            return self.best.save(target if target.suffix else target.with_suffix(f".{kind}"))
        return export(self.study_timeline(), kind, path, **options)

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame, one row per trial; it needs pandas (``hoptree[pandas]``)."""
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "to_frame: needs pandas, which is not installed; pip install 'hoptree[pandas]', or "
                "results.export('csv', PATH)"
            ) from error

        rows = [
            {
                "number": trial.number,
                "state": trial.state,
                "epochs": trial.epochs,
                **{name: value if isinstance(value, int | float | str) else str(value)
                   for name, value in trial.config.items()},
                **{f"metric.{name}": value for name, value in trial.metrics.items()},
                "error": trial.error,
            }
            for trial in self.trials
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        states = [trial.state for trial in self.trials]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        ended = "; the time limit is over, the next run goes on from here" if self.limit_reached else ""
        cost = "" if self.cost is None else f"; {self.cost.summary()}"
        return f"{len(self.trials)} trials: {counts}{ended}; {self.savings}{cost}"

    def _repr_html_(self) -> str:
        """Return the trials as an HTML table for a notebook, the best one first and in bold."""
        from hoptree.report.html import html_table, html_text

        first = self.find_best()
        shown = sorted(self.trials, key=lambda trial: (trial is not first, *self._rank(trial)))[:_SHOWN]
        values = list(dict.fromkeys(name for trial in shown for name in trial.config))
        searched = [name for name in values if len({str(trial.config.get(name)) for trial in self.trials}) > 1]
        metrics = list(dict.fromkeys(name for trial in shown for name in trial.metrics))
        rows = [
            [
                trial.number,
                trial.state,
                trial.epochs,
                *(None if name not in trial.config else str(trial.config[name]) for name in searched or values),
                *map(trial.metrics.get, metrics),
                sparkline([m.get(self._goal.metric, math.nan) for _, m in sorted(trial.curve.items())], 16),
                error_in_one_line(trial.error) if trial.error else "",
            ]
            for trial in shown
        ]
        columns = ["trial", "state", "epochs", *(searched or values), *metrics, self._goal.metric + " by epoch", ""]
        best = None if first is None else 0
        more = f"<div>and {len(self.trials) - len(shown):,} more</div>" if len(self.trials) > len(shown) else ""
        cost = "" if self.cost is None else html_text(str(self.cost))
        return f"{html_table(columns, rows, best)}{more}{html_text(str(self.savings))}{cost}"
