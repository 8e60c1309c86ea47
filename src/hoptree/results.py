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
from hoptree.error_look import in_one_look
from hoptree.record.record import Record
from hoptree.record.solo import Soloist
from hoptree.report.chronicle import standing
from hoptree.report.failures import told
from hoptree.report.spark import sparkline
from hoptree.report.tables import size
from hoptree.report.traffic import Traffic
from hoptree.search.protocol import Goal

if TYPE_CHECKING:
    import pandas as pd

    from hoptree.report.chronicle import Chronicle
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import ModelState

log = logging.getLogger("hoptree")

_SHOWN = 50  # trials in a notebook's table


class NoStateError(HoptreeError, LookupError):
    """There is no trained model to give: nothing has got that far."""


class Savings(msgspec.Struct, frozen=True):
    """The work that trials asked for, and the work that was done.

    Of ``epochs_asked`` by all trials, ``epochs_shared`` are those that trials have in common and need once only,
    ``epochs_reused`` were in the store, and ``epochs_trained`` in this run. Of these, ``epochs_in_vain`` were
    trained again, since their states were gone, or for trials that were given up before they reported.
    ``merge_rate`` is what was asked over what differs. ``bytes_hopped`` are those of all states that moved between
    workers.
    """

    epochs_asked: float
    epochs_trained: float
    epochs_shared: float
    epochs_reused: float
    merge_rate: float
    bytes_hopped: int
    state_bytes: int = 0  # of a state, on average over the units that were trained now
    bytes_between_nodes: int = 0  # of those that hopped, to a worker on another machine
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
        """Return what trials asked for against the units that were trained for them now.

        ``made`` says which: by node, a bit for each. Without it, all are taken for needed.
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
    """Return how many of the units that were made trials have behind them."""
    count = 0
    for number, end in state.plan.reach(state.trials.values(), done=True).items():
        start = state.plan.nodes[number].start
        count += (made.get(number, 0) >> start & (1 << (end - start)) - 1).bit_count()
    return count


@final
class TrialResult:
    """One trial: what it was, how it ended, and its curve.

    It has its ``number``, its ``config``, its ``state`` ("complete", "stopped", "failed" or "running"), the metrics
    by epoch as its ``curve``, and of a failed one the ``error``.

    Its weights are in the store. Should they be gone or damaged, they are trained again, alone in this process,
    when they are asked for: the same bits come out.
    """

    def __init__(
        self, number: int, trial: Trial, record: Record, states: StateStore, soloist: Soloist | None
    ) -> None:
        self.number = number
        self.config: Config = dict(trial.history[-1].config)
        self.state = trial.ending or "running"
        self.curve: dict[int, Metrics] = trial.curve
        self.error = trial.reason
        self._trial = trial
        self._place = record.place(trial)
        self._states = states
        self._soloist = soloist

    @property
    def epochs(self) -> int:
        """How many epochs have been reported."""
        return max(self.curve, default=0)

    @property
    def metrics(self) -> Metrics:
        """The metrics of the last report."""
        return self.curve[self.epochs] if self.curve else {}

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the state's arrays in name order: equal fingerprints are equal weights and optimizer."""
        from hoptree.store import fingerprint

        arrays = self._stored()
        return fingerprint(self._again()[1].arrays if arrays is None else arrays[0])

    def load(self) -> Any:
        """Return the trained model."""
        from hoptree.trainers.base import ModelState

        soloist = self._needed()
        stored = self._stored()
        if stored is None:
            model, _ = self._again()
        else:
            model = soloist.untrained(self._trial)
            soloist.trainer.load(model, ModelState(*stored))
        return soloist.trainer.export(model)

    def save(self, path: str | Path) -> Path:
        """Write the trained weights as `.safetensors`, or as `.pt`: a state dict for ``load_state_dict``."""
        from hoptree.trainers.base import ModelState
        from hoptree.trainers.weights import check_weights, save_weights

        check_weights(path)
        stored = self._stored()
        return save_weights(self._again()[1] if stored is None else ModelState(*stored), path)

    def _stored(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        from hoptree.store import StateDamagedError, StateMissingError

        if self._place is None:
            why = f" after this:\n{self.error}" if self.error else ""
            raise NoStateError(f"trial {self.number}: no state is stored of it; it is {self.state}{why}")
        try:
            return self._states.get(self._place.node.state_key(self._place.unit))
        except (StateDamagedError, StateMissingError) as error:
            if self._soloist is None:
                raise
            log.warning("trial %s is trained again: %s", self.number, error)
            return None

    def _again(self) -> tuple[Any, ModelState]:
        return self._needed().train(self._trial, self._states)

    def _needed(self) -> Soloist:
        if self._soloist is None:
            raise NoStateError(
                f"trial {self.number}: its model needs the program that trained it; ask the study: "
                "study.results().trials[…]"
            )
        return self._soloist

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.config.items())
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        what = told(self.error) if self.error else metrics
        return f"trial {self.number} ({values}): {self.state} after {self.epochs} epochs: {what}"

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it."""
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
        tell: Callable[[], Chronicle] | None = None,
    ) -> None:
        self.trials = list(trials)
        self.savings = savings
        self.traffic = traffic  # what was moved, and what other ways would have; None: nothing was trained
        self._goal = goal
        self._tell = tell

    @property
    def best(self) -> TrialResult:
        """The complete trial with the best last report, or the best that was stopped if none is complete.

        A trial whose last report of the goal is NaN or infinite is never the best; NoStateError if all are so.
        """
        best = self.find_best()
        if best is None:
            with in_one_look():
                raise NoStateError(self._why_none())
        return best

    def find_best(self) -> TrialResult | None:
        """Return the best trial, None if there is none."""
        ended = [trial for trial in self.trials if trial.state in ("complete", "stopped")]
        finite = [trial for trial in ended if math.isfinite(self._goal.loss(trial.metrics))]
        return min(finite, key=self._rank, default=None)

    def _rank(self, trial: TrialResult) -> tuple[int, float, int]:
        loss = self._goal.loss(trial.metrics)
        return standing(trial.state, loss), loss, trial.number

    def _why_none(self) -> str:
        metric = self._goal.metric
        ended = [trial for trial in self.trials if trial.state in ("complete", "stopped") and trial.curve]
        if ended:
            values = ", ".join(str(value) for value in dict.fromkeys(t.metrics.get(metric) for t in ended))
            return (
                f"no trial ended with a finite {metric!r}, so there is no best one; the last reports of "
                f"{len(ended)} trials are {values}: look for NaN in the data and for a division by zero or a "
                f"logarithm of zero in {metric!r}, or search smaller learning rates"
            )
        failed = [trial for trial in self.trials if trial.error]
        if not failed:
            return "no trial is complete, so there is no best one; run the study again: it goes on"
        first = failed[0]
        return (
            f"no trial is complete, so there is no best one; {len(failed)} of {len(self.trials)} failed, such as "
            f"trial {first.number}: {told(first.error)}; trials[{first.number}].error has all of it"
        )

    def chronicle(self) -> Chronicle:
        """Return what happened and when, as the journal tells it: what plots and exports are drawn from."""
        if self._tell is None:
            raise NoStateError("results: they were read without their journal; ask the study: study.results()")
        return self._tell()

    def export(self, kind: str, path: str | Path, **options: Any) -> Path:
        """Write the results for other programs, and return where they are.

        ``kind`` is "csv", "parquet" (``reports=True`` for a row per report), "tensorboard", "mlflow", "html"
        (``dark=True``), or "safetensors" and "pt" for the weights of the best model.
        """
        from hoptree.exports import export

        if kind in ("safetensors", "pt"):
            target = Path(path)
            return self.best.save(target if target.suffix else target.with_suffix(f".{kind}"))
        return export(self.chronicle(), kind, path, **options)

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
        return f"{len(self.trials)} trials: {counts}; {self.savings}"

    def _repr_html_(self) -> str:
        """Return them as a notebook shows them: a table of the trials, the best in bold and first."""
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
                told(trial.error) if trial.error else "",
            ]
            for trial in shown
        ]
        columns = ["trial", "state", "epochs", *(searched or values), *metrics, self._goal.metric + " by epoch", ""]
        best = None if first is None else 0
        more = f"<div>and {len(self.trials) - len(shown):,} more</div>" if len(self.trials) > len(shown) else ""
        return f"{html_table(columns, rows, best)}{more}{html_text(str(self.savings))}"
