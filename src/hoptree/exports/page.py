"""A study as one HTML file: plots, trials, environment and how to reproduce it. It loads nothing from elsewhere."""

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

_VECTORS = 4_000  # spans beyond which a picture is smaller as pixels
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


def to_html(chronicle: StudyTimeline, path: Path, dark: bool = False) -> Path:
    """Write the report; plots that a study has nothing to draw for are left out."""
    chronicle.with_reports("html")
    parts = [
        _head(chronicle),
        *_plots(chronicle, dark),
        _section("Trials", _trials(chronicle)),
        _section("The study", _table(chronicle.facts)),
        _section("Environment", _environments(chronicle)),
        _section("How to reproduce it", _reproduce(chronicle)),
    ]
    name = escape(chronicle.name)
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


def _head(chronicle: StudyTimeline) -> str:
    best, last = chronicle.best, chronicle.moments[-1]
    states = [course.state for course in chronicle.courses]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    saved = 1 - last.trained / last.got if last.got else 0.0
    figures = {
        "trials": f"{len(states):,}<small>{escape(counts)}</small>",
        "epochs that trials got": f"{last.got:,.6g}",
        "epochs trained": f"{last.trained:,.6g}<small>{max(0.0, saved):.0%} saved</small>",
        "time": duration(chronicle.timeline.makespan),
        "time of workers": f"{duration(last.spent)}<small>{duration(last.alone)} for each trial alone</small>",
    }
    if best is not None:
        value = chronicle.value(best.last)
        first = f"{value:.5g}<small>trial {best.number}, {best.epochs} epochs</small>"
        figures = {f"best {chronicle.metric}": first, **figures}
    boxes = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    config = "" if best is None else f"<p class=config>{escape(_told(best))}</p>"
    return f"<header><h1>{escape(chronicle.name)}</h1>{config}<dl>{boxes}</dl></header>\n"


def _told(course: TrialTimeline) -> str:
    return ", ".join(f"{name} = {short(value)}" for name, value in course.config.items())


def _plots(chronicle: StudyTimeline, dark: bool) -> list[str]:
    found = []
    for kind, title in _PLOTS.items():
        try:
            figure = plot.KINDS[kind](chronicle, dark=dark)
        except ReportError:
            continue  # a study without rungs, or with too few trials to compare
        except ImportError as error:
            if kind != "importance":
                raise
            found.append(_section(title, f"<p>{escape(str(error))}</p>"))
            continue
        if kind == "gantt" and len(chronicle.timeline.spans) > _VECTORS:
            data = base64.b64encode(rendered(figure, ".png")).decode()
            image = f'<img alt="{escape(title)}" src="data:image/png;base64,{data}">'
        else:
            text = rendered(figure, ".svg").decode()
            image = text[text.index("<svg") :]
        found.append(_section(title, f"<figure>{image}</figure>"))
    return found


def _trials(chronicle: StudyTimeline) -> str:
    searched, metrics = chronicle.searched, chronicle.metrics
    columns = ["trial", "state", "epochs", *searched, *metrics]
    if any(course.error for course in chronicle.courses):
        columns.append("error")
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    best = chronicle.best
    ordered = sorted(chronicle.courses, key=lambda c: (chronicle.loss(chronicle.value(c.last)), c.number))
    rows = []
    for course in ordered:
        values = [chronicle.value(course.last, metric) for metric in metrics]
        cells = [
            str(course.number),
            course.state,
            str(course.epochs),
            *(short(course.config[name]) if name in course.config else "" for name in searched),
            *("" if math.isnan(value) and course.last is None else f"{value:.5g}" for value in values),
        ]
        if columns[-1] == "error":
            cells.append(_gist(course.error))
        mark = " class=best" if course is best else ""
        rows.append(f"<tr{mark}>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f"<div class=scroll><table class=sortable>{body}</table></div>"


def _gist(error: str) -> str:
    """Return the line of an error that its traceback leads to, else the first."""
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


def _environments(chronicle: StudyTimeline) -> str:
    if not chronicle.environments:
        return "<p>It was run by a Hoptree that did not note where.</p>"
    return "".join(_table(each) for each in chronicle.environments)


def _reproduce(chronicle: StudyTimeline) -> str:
    name = shlex.quote(chronicle.name)
    program = shlex.quote(Path(chronicle.facts.get("program", "")).name or "PROGRAM.py")
    commands = (
        f"# train what is missing; a finished study trains nothing\nhoptree run {program}\n"
        f"# train every trial again, alone, and compare the bits\nhoptree verify {name}\n"
        f"# the same on another machine\nhoptree export {name} --bundle {name}.zip\n"
        f"hoptree verify {name}.zip --program {program}"
    )
    facts = {key: chronicle.facts.get(key, "") for key in ("trainer", "data", "seed", "order", "partitions")}
    return (
        "<p>The weights of a trial follow from its config, the seed, the code and the data alone: not from the "
        "number of workers, the timing, or what was shared.</p>"
        f"<pre>{escape(commands)}</pre>{_table(facts)}"
    )
