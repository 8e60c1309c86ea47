"""A study as one self-contained HTML file: plots, trials, environment and how to reproduce it."""

from __future__ import annotations

import base64
import math
import shlex
from html import escape
from itertools import pairwise
from pathlib import Path

from hoptree.exports.page_style import SCRIPT, style
from hoptree.report import plot
from hoptree.report.page import rendered
from hoptree.report.study_timeline import StudyTimeline, TrialTimeline, short
from hoptree.report.tables import duration
from hoptree.report.timeline import ReportError

_VECTORS = 4_000  # spans above which a PNG is smaller than an SVG
_PLOTS = {
    "best": "The best so far",
    "curves": "Learning curves",
    "tree": "What trials share",
    "savings": "Cost and savings",
    "rungs": "Rungs",
    "importance": "What matters",
    "slices": "Slices",
    "parallel": "Parallel coordinates",
    "gantt": "Workers and hops",
}


def to_html(history: StudyTimeline, path: Path, dark: bool = False) -> Path:
    """Write the report; plots without data are left out."""
    history.with_reports("html")
    parts = [
        _head(history),
        *_plots(history, dark),
        _section("Trials", _trials(history)),
        _section("The study", _table(history.facts)),
        _section("Environment", _environments(history)),
        _section("How to reproduce it", _reproduce(history)),
    ]
    name = escape(history.name)
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name} · Hoptree</title><style>{style(dark)}</style></head>\n"
        f"<body><main>\n{''.join(parts)}</main><script>{SCRIPT}</script></body></html>\n"
    )
    path.write_text(page, encoding="utf-8")
    return path


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n{body}</section>\n"


def _head(history: StudyTimeline) -> str:
    best, last = history.best, history.progress[-1]
    states = [trial.state for trial in history.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    saved = 1 - last.trained / last.got if last.got else 0.0
    figures = {
        "trials": f"{len(states):,}<small>{escape(counts)}</small>",
        "epochs received": f"{last.got:,.6g}",
        "epochs trained": f"{last.trained:,.6g}<small>{max(0.0, saved):.0%} saved</small>",
        "time": duration(history.timeline.makespan),
        "time of workers": f"{duration(last.spent)}<small>{duration(last.alone)} without sharing</small>",
    }
    if best is not None:
        value = history.value(best.last)
        first = f"{value:.5g}<small>trial {best.number}, {best.epochs} epochs</small>"
        figures = {f"best {history.metric}": first, **figures}
    boxes = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    config = "" if best is None else f"<p class=config>{escape(_config_text(best))}</p>"
    return f"<header><h1>{escape(history.name)}</h1>{config}<dl>{boxes}</dl></header>\n"


def _config_text(trial: TrialTimeline) -> str:
    return ", ".join(f"{name} = {short(value)}" for name, value in trial.config.items())


def _plots(history: StudyTimeline, dark: bool) -> list[str]:
    found = []
    for kind, title in _PLOTS.items():
        try:
            figure = plot.KINDS[kind](history, dark=dark)
        except ReportError:
            continue  # a study without rungs, or with too few trials to compare
        except ImportError as error:
            if kind != "importance":
                raise
            found.append(_section(title, f"<p>{escape(str(error))}</p>"))
            continue
        if kind == "gantt" and len(history.timeline.spans) > _VECTORS:
            data = base64.b64encode(rendered(figure, ".png")).decode()
            image = f'<img alt="{escape(title)}" src="data:image/png;base64,{data}">'
        else:
            text = rendered(figure, ".svg").decode()
            image = text[text.index("<svg") :]
        found.append(_section(title, f"<figure>{image}</figure>"))
    return found


def _trials(history: StudyTimeline) -> str:
    searched, metrics = history.searched, history.metrics
    columns = ["trial", "state", "epochs", *searched, *metrics]
    if any(trial.error for trial in history.trials):
        columns.append("error")
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    best = history.best
    ordered = sorted(history.trials, key=lambda c: (history.loss(history.value(c.last)), c.number))
    rows = []
    for trial in ordered:
        values = [history.value(trial.last, metric) for metric in metrics]
        cells = [
            str(trial.number),
            trial.state,
            str(trial.epochs),
            *(short(trial.config[name]) if name in trial.config else "" for name in searched),
            *("" if math.isnan(value) and trial.last is None else f"{value:.5g}" for value in values),
        ]
        if columns[-1] == "error":
            cells.append(_gist(trial.error))
        mark = " class=best" if trial is best else ""
        rows.append(f"<tr{mark}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"<div class=scroll><table class=sortable>{body}</table></div>"


def _gist(error: str) -> str:
    """Return the last line of an error's traceback, else its first line."""
    lines = [line for line in error.splitlines() if line.strip()]
    ends = [line for before, line in pairwise(lines) if before.startswith("  ") and not line.startswith("  ")]
    return (ends[-1] if ends else next(iter(lines), ""))[:200]


def _table(facts: dict[str, str]) -> str:
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value).replace(chr(10), '<br>')}</td></tr>"
        for name, value in facts.items()
        if value
    )
    return f"<table class=facts>{rows}</table>"


def _environments(history: StudyTimeline) -> str:
    if not history.environments:
        return "<p>Unknown: the study was run by a version of Hoptree that did not record it.</p>"
    return "".join(_table(each) for each in history.environments)


def _reproduce(history: StudyTimeline) -> str:
    name = shlex.quote(history.name)
    program = shlex.quote(Path(history.facts.get("program", "")).name or "PROGRAM.py")
    commands = (
        f"# train what is missing; a finished study trains nothing\nhoptree run {program}\n"
        f"# train every trial again in a fresh process, and compare the bits\nhoptree verify {name}\n"
        f"# the same on another machine\nhoptree export {name} --bundle {name}.zip\n"
        f"hoptree verify {name}.zip --program {program}"
    )
    facts = {key: history.facts.get(key, "") for key in ("trainer", "data", "seed", "order", "partitions")}
    return (
        "<p>The weights of a trial depend only on its config, the seed, the code and the data: not on the "
        "number of workers, the timing, or sharing.</p>"
        f"<pre>{escape(commands)}</pre>{_table(facts)}"
    )
