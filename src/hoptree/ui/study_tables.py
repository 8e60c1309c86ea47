"""Studies and trials as text tables for a terminal."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from hoptree.core.errors import HoptreeError
from hoptree.core.schedules import Schedule, Value
from hoptree.report.failures import gist
from hoptree.report.spark import sparkline
from hoptree.report.tables import fitted_table, printable, size, text_table

if TYPE_CHECKING:
    from hoptree.record.results import TrialResult
    from hoptree.record.spec import StudySpec
    from hoptree.ui.studies_view import StudyHead, StudyView

_CURVE = 16  # columns of a sparkline
_DECIMAL = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")
_SHORT = 12  # characters of a fingerprint that tell two apart


def studies_table(lines: Sequence[Sequence[object]]) -> str:
    """Return the catalog of a store."""
    columns = ["study", "status", "trials", "best", "created", "driver"]
    if all(line[-1] is None for line in lines):
        columns, lines = columns[:-1], [line[:-1] for line in lines]
    return fitted_table(columns, lines, terminal_width(), drop=["created", "driver"])


def study_line(head: StudyHead, view: StudyView | HoptreeError) -> list[object]:
    """Return a study's line in the catalog; for one that cannot be read, only what the catalog knows."""
    trials, best = "cannot be read", None
    if not isinstance(view, HoptreeError):
        trials, best = counted(view.counts, view.head), _best(view)
    return [printable(head.name), head.status, trials, best, _date(head.created), _driver(head)]


def study_tables(view: StudyView) -> str:
    """Return a study's definition, and all of its trials."""
    spec, driver, savings = view.spec, _driver(view.head), view.savings
    space = [f"{name}: {values}" for name, values in spec.space["names"]]
    work = (
        f"{savings.epochs_asked:g} requested, {savings.epochs_shared:g} of them shared "
        f"(merge rate {savings.merge_rate:.2f}), {savings.epochs_trained:g} trained so far"
    )
    facts = {
        "status": view.head.status + (f", driven by {driver}" if driver else ""),
        "created": _date(view.head.created),
        "goal": f"{'maximize' if spec.goal.maximize else 'minimize'} {spec.goal.metric}",
        "space": "\n".join(space),
        "search": spec.search,
        "seed": str(spec.seed),
        "order": f"{spec.settings.order}, with {'shared' if spec.share else 'no shared'} prefixes",
        "data": f"{short(spec.data)}, in {spec.settings.partitions} partitions",
        **_nodes(view),
        "trainer": short(spec.trainer),
        **({"variant": _variant(spec)} if spec.variant else {}),
        "program": spec.program or "none: run in a notebook or at a prompt",
        "trials": counted(view.counts, view.head),
        "epochs": work,
        **({"cost": view.cost.summary()} if view.cost else {}),
    }
    return "\n\n".join([_facts(view.name, facts), *([trials_table(view, view.trials)] if view.trials else [])])


def trial_tables(view: StudyView, trial: TrialResult) -> str:
    """Return one trial with its full curve and error."""
    facts = {
        "state": _state_name(trial.state, view.head),
        "epochs": str(trial.epochs),
        **_followed(view, trial),
        **_config(trial),
        **_fingerprint(view, trial),
    }
    parts = [_facts(f"trial {trial.number} of {view.name}", facts)]
    if trial.curve:
        names = list(dict.fromkeys(name for metrics in trial.curve.values() for name in metrics))
        rows = [[epoch, *map(metrics.get, names)] for epoch, metrics in sorted(trial.curve.items())]
        parts.append(fitted_table(["epoch", *names], rows, terminal_width(), drop=names[:0:-1]))
    parts.append(_state(view, trial))
    return "\n\n".join([*parts, trial.error] if trial.error else parts)


def best_table(view: StudyView, trial: TrialResult) -> str:
    """Return the best trial: config, metrics, and where its state is."""
    metrics = {name: _number(value) for name, value in trial.metrics.items()}
    facts = {**_config(trial), "epochs": str(trial.epochs), **metrics, **_fingerprint(view, trial)}
    so_far = "" if view.head.status == "finished" else " so far"
    return f"{_facts(f'trial {trial.number}, the best of {view.name}{so_far}', facts)}\n\n{_state(view, trial)}"


def counted(counts: Mapping[str, int], head: StudyHead | None = None) -> str:
    """Return the number of trials per state as text."""
    found = [f"{count} {_state_name(state, head)}" for state, count in counts.items() if count]
    return ", ".join(found) or "no trials yet"


def short(fingerprint: str) -> str:
    """Return the first characters of a fingerprint."""
    return fingerprint[:_SHORT]


def trials_table(view: StudyView, trials: Sequence[TrialResult], columns: Sequence[str] = ()) -> str:
    """Return a table of trials, by default without the hyper-parameters that the space fixes.

    If the terminal is too narrow, columns are dropped from the last; by default metrics other than the goal first.
    """
    names = list(columns or default_columns(view))
    rows = [[trial.number, *(_cell(view, trial, name) for name in names)] for trial in trials]
    last = names[::-1]
    if not columns:
        metrics = {name for trial in view.trials for name in trial.metrics}
        kept = {"state": 3, "error": 2, view.spec.goal.metric: 3}
        last.sort(
            key=lambda name: kept.get(name, 0 if name in metrics else 1)
        )  # stable: the last of equals is dropped first
    return fitted_table(["trial", *names], rows, terminal_width(), drop=last)


def default_columns(view: StudyView) -> list[str]:
    """Return the columns in which trials differ: searched hyper-parameters, metrics, and errors."""
    configs = {name: value for trial in view.trials for name, value in trial.config.items()}
    space = dict(view.spec.space["names"])
    searched = [name for name, value in configs.items() if space.get(name) not in (str(value), repr(value))]
    metrics = dict.fromkeys([view.spec.goal.metric, *(name for trial in view.trials for name in trial.metrics)])
    failed = any(trial.error for trial in view.trials)
    branched = ["from"] if view.sources else []
    return ["state", "epochs", *branched, *searched, *metrics, *(["error"] if failed else [])]


def _cell(view: StudyView, trial: TrialResult, name: str) -> object:
    match name:
        case "state":
            return _state_name(trial.state, view.head)
        case "epochs":
            return trial.epochs
        case "error":
            return gist(trial.error)
        case "from":
            source = view.sources.get(trial.number)
            return None if source is None else f"trial {source[0]}, epoch {source[1]}"
        case "curve":
            metric = view.spec.goal.metric
            values = [metrics.get(metric, float("nan")) for _, metrics in sorted(trial.curve.items())]
            return sparkline(values, _CURVE)
    if name in trial.metrics:
        return trial.metrics[name]
    return brief(trial.config[name]) if name in trial.config else None


def _best(view: StudyView) -> str | None:
    goal = view.spec.goal
    trial = view.best
    if trial is not None:
        return f"{goal.metric} {_number(trial.metrics.get(goal.metric))} (trial {trial.number})"
    reported = [
        (value, each.number)
        for each in view.trials
        if math.isfinite(value := each.metrics.get(goal.metric, math.nan))
    ]
    if not reported:
        return None
    value, number = (max if goal.maximize else min)(reported, key=lambda pair: pair[0])
    return f"{goal.metric} {_number(value)} so far (trial {number})"


def _followed(view: StudyView, trial: TrialResult) -> dict[str, str]:
    """Return the trial that this one branched from, and the values that differed before that epoch."""
    if trial.number not in view.sources:
        return {}
    source, at = view.sources[trial.number]
    before = view.config_before(trial)
    others = [f"{name}={value}" for name, value in before.items() if trial.config.get(name) != value]
    until = f", with {', '.join(others)} until then" if others else ""
    return {"from": f"trial {source} at epoch {at}{until}"}


def _fingerprint(view: StudyView, trial: TrialResult) -> dict[str, str]:
    if view.state_file(trial) is None:
        return {}
    return {"fingerprint": view.fingerprint(trial) or "the state is damaged; study.results() trains it again"}


def _state(view: StudyView, trial: TrialResult) -> str:
    """Return where a state is stored, on a line of its own: a table would wrap the path."""
    file = view.state_file(trial)
    if file is None:
        return "State: none is stored"
    return f"State ({size(view.state_size(trial))}): {file}"


def _nodes(view: StudyView) -> dict[str, str]:
    """Return the workers and partitions of each node of a cluster."""
    lines = [
        f"{node}: {count} worker{'s' * (count > 1)}, partitions {', '.join(map(str, held))}"
        for node, (count, held) in view.nodes.items()
    ]
    return {"nodes": "\n".join(lines)} if lines else {}


def _config(trial: TrialResult) -> dict[str, str]:
    return {name: str(value) for name, value in trial.config.items()}


def brief(value: Value) -> str:
    """Return a value as short text: numbers with four digits, also within a schedule.

    >>> brief(0.0031234567), brief(1024), brief("adam")
    ('0.003123', '1024', 'adam')
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return _DECIMAL.sub(lambda number: f"{float(number[0]):.4g}", text) if isinstance(value, Schedule) else text


def _state_name(state: str, head: StudyHead | None) -> str:
    """Return a trial's state: without a driver, a running trial is unfinished."""
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
    return text_table(columns, rows, width=terminal_width())


def terminal_width() -> int | None:
    """Return the width of the terminal; None for a file or a pipe, where tables are not fitted."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _variant(spec: StudySpec) -> str:
    """Return what its state keys depend on besides code, data and seed."""
    platform = ", ".join(f"{name} {value}" for name, value in sorted(spec.platform.items()))
    before = f"; {len(spec.variants) - 1} before accepted changes" if len(spec.variants) > 1 else ""
    return f"{short(spec.variant)} ({platform}){before}" if platform else f"{short(spec.variant)}{before}"
