"""Studies and trials as people read them in a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from hoptree.core.errors import HoptreeError
from hoptree.report.failures import gist
from hoptree.report.spark import sparkline
from hoptree.report.tables import printable, size, text_table

if TYPE_CHECKING:
    from hoptree.results import TrialResult
    from hoptree.ui.studies_view import StudyHead, StudyView

_CURVE = 16  # columns of a sparkline
_SHORT = 12  # characters of a fingerprint that tell two apart


def studies_table(lines: Sequence[Sequence[object]]) -> str:
    """Return the catalog of a store."""
    return _table(["study", "status", "trials", "best", "begun", "driver"], lines)


def study_line(head: StudyHead, view: StudyView | HoptreeError) -> list[object]:
    """Return a study's line in the catalog; of one that cannot be read, what is known all the same."""
    trials, best = "cannot be read", None
    if not isinstance(view, HoptreeError):
        trials, best = counted(view.counts, view.head), _best(view)
    return [printable(head.name), head.status, trials, best, _date(head.created), _driver(head)]


def study_tables(view: StudyView) -> str:
    """Return what a study is made of, and all of its trials."""
    spec, driver, savings = view.spec, _driver(view.head), view.savings
    space = [f"{name}: {values}" for name, values in spec.space["names"]]
    work = (
        f"{savings.epochs_asked:g} asked, {savings.epochs_shared:g} of them shared "
        f"(merge rate {savings.merge_rate:.2f}), {savings.epochs_trained:g} trained so far"
    )
    facts = {
        "status": view.head.status + (f", driven by {driver}" if driver else ""),
        "begun": _date(view.head.created),
        "goal": f"{'maximize' if spec.goal.maximize else 'minimize'} {spec.goal.metric}",
        "space": "\n".join(space),
        "search": spec.search,
        "seed": str(spec.seed),
        "order": f"{spec.settings.order}, with {'shared' if spec.share else 'no shared'} beginnings",
        "data": f"{short(spec.data)}, in {spec.settings.partitions} partitions",
        "trainer": short(spec.trainer),
        "program": spec.program or "none: a notebook or a prompt",
        "trials": counted(view.counts, view.head),
        "epochs": work,
    }
    return f"{_facts(view.name, facts)}\n\n{trials_table(view, view.trials)}"


def trial_tables(view: StudyView, trial: TrialResult) -> str:
    """Return one trial with its whole curve and its whole error."""
    facts = {
        "state": _word(trial.state, view.head),
        "epochs": str(trial.epochs),
        **_config(trial),
        **_stored(view, trial),
    }
    parts = [_facts(f"trial {trial.number} of {view.name}", facts)]
    if trial.curve:
        names = list(dict.fromkeys(name for metrics in trial.curve.values() for name in metrics))
        rows = [[epoch, *map(metrics.get, names)] for epoch, metrics in sorted(trial.curve.items())]
        parts.append(_table(["epoch", *names], rows))
    return "\n\n".join([*parts, trial.error] if trial.error else parts)


def best_table(view: StudyView, trial: TrialResult) -> str:
    """Return the best trial: config, metrics, and where its state is."""
    metrics = {name: _number(value) for name, value in trial.metrics.items()}
    facts = {**_config(trial), "epochs": str(trial.epochs), **metrics, **_stored(view, trial)}
    so_far = "" if view.head.status == "finished" else " so far"
    return _facts(f"trial {trial.number}, the best of {view.name}{so_far}", facts)


def counted(counts: Mapping[str, int], head: StudyHead | None = None) -> str:
    """Say how many trials are in which state."""
    found = [f"{count} {_word(state, head)}" for state, count in counts.items() if count]
    return ", ".join(found) or "no trials yet"


def short(fingerprint: str) -> str:
    """Return as much of a fingerprint as tells two apart."""
    return fingerprint[:_SHORT]


def trials_table(view: StudyView, trials: Sequence[TrialResult], columns: Sequence[str] = ()) -> str:
    """Return trials, by default without the hyper-parameters that the space fixes."""
    names = columns or default_columns(view)
    rows = [[trial.number, *(_cell(view, trial, name) for name in names)] for trial in trials]
    return _table(["trial", *names], rows)


def default_columns(view: StudyView) -> list[str]:
    """Return what tells trials apart: what is searched, what is measured, and what failed."""
    configs = {name: value for trial in view.trials for name, value in trial.config.items()}
    space = dict(view.spec.space["names"])
    searched = [name for name, value in configs.items() if space.get(name) not in (str(value), repr(value))]
    metrics = dict.fromkeys([view.spec.goal.metric, *(name for trial in view.trials for name in trial.metrics)])
    failed = any(trial.error for trial in view.trials)
    return ["state", "epochs", *searched, *metrics, *(["error"] if failed else [])]


def _cell(view: StudyView, trial: TrialResult, name: str) -> object:
    match name:
        case "state":
            return _word(trial.state, view.head)
        case "epochs":
            return trial.epochs
        case "error":
            return gist(trial.error)
        case "curve":
            metric = view.spec.goal.metric
            values = [metrics.get(metric, float("nan")) for _, metrics in sorted(trial.curve.items())]
            return sparkline(values, _CURVE)
    return trial.metrics[name] if name in trial.metrics else _config(trial).get(name)


def _best(view: StudyView) -> str | None:
    trial, metric = view.best, view.spec.goal.metric
    return None if trial is None else f"{metric} {_number(trial.metrics.get(metric))} (trial {trial.number})"


def _stored(view: StudyView, trial: TrialResult) -> dict[str, str]:
    file, fingerprint = view.state_file(trial), view.fingerprint(trial)
    if file is None:
        return {"state file": "none is stored"}
    return {
        "fingerprint": fingerprint or "its state is damaged; study.results() trains it again",
        "state file": f"{file} ({size(view.state_size(trial))})",
    }


def _config(trial: TrialResult) -> dict[str, str]:
    return {name: str(value) for name, value in trial.config.items()}


def _word(state: str, head: StudyHead | None) -> str:
    """Say a trial's state: what nobody drives now does not run."""
    driven = head is not None and head.driver is not None
    return "unfinished" if state == "running" and not driven else state


def _driver(head: StudyHead) -> str | None:
    return None if head.driver is None else f"process {head.driver.pid} on {head.driver.host}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _facts(title: str, facts: Mapping[str, str]) -> str:
    return _table(["", printable(title)], [[name, value] for name, value in facts.items()])


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Draw a table as wide as the terminal allows; what goes to a file or a pipe is not folded."""
    return text_table(columns, rows, width=shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
