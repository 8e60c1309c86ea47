import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from hoptree.report import ReportError, Span, Timeline, gantt
from hoptree.report.axis import time_axis
from hoptree.report.gantt_text import LEAST_WIDTH, MOST_ROWS
from tests.report.timelines import hopping, patient, timelines


def rows(chart: str) -> list[str]:
    """The rows of workers: those that end with a utilisation, after the headline."""
    return [line for line in chart.splitlines()[1:] if line.endswith(" %") and not line.startswith("…")]


@patient
@given(timelines(), st.integers(LEAST_WIDTH, 220), st.booleans())
def test_no_line_is_wider_than_asked_with_or_without_colour(timeline, width, legend):
    plain = gantt.terminal(timeline, width, colour=False, legend=legend)
    assert "\x1b" not in plain
    if timeline.workers:
        assert max(cell_len(line) for line in plain.split("\n")) <= width
    coloured = Text.from_ansi(gantt.terminal(timeline, width, colour=True, legend=legend)).plain
    assert [line.rstrip() for line in coloured.splitlines()] == [line.rstrip() for line in plain.split("\n")]


@patient
@given(timelines())
def test_every_worker_has_a_row_or_is_folded(timeline):
    lines = gantt.terminal(timeline, colour=False, legend=False).splitlines()
    shown = min(len(timeline.workers), MOST_ROWS)
    folded = len(timeline.workers) - shown
    expected = 1 + shown + (folded > 0) + 2 if timeline.workers else 1
    assert len(lines) == expected
    assert all(line.endswith(" %") for line in lines[1 : 1 + shown])
    if folded:
        assert lines[1 + shown].startswith(f"… {folded} more worker")


def test_a_thousand_workers_fold():
    names = tuple(f"w{i}" for i in range(1000))
    timeline = Timeline.of(
        [Span(name, 0, 93, "unit", 0, "trial 0", 0, 0) for name in names]
        + [Span("w0", 93, 100, "hop", 0, "trial 0", 0, 0)]
    )
    chart = gantt.terminal(timeline, colour=False)
    assert len(rows(chart)) == 40
    assert "… 960 more workers, mean utilisation 93 %" in chart.splitlines()


def test_a_chart_is_read_without_colour():
    chart = gantt.terminal(hopping(), width=9 + 36 + 6, colour=False)
    assert chart.splitlines()[0] == "4 workers · makespan 1 min 30 s · mean utilisation…"
    first = rows(chart)[0]
    assert first.startswith("worker 0 0000++++2222333344445555xxxx▒▒▒▒▒▒▒▒")
    assert first.endswith("60 %")
    assert "· idle   + evaluation   x failed   ▒ down" in chart
    assert "5 trial 5" in chart


def test_a_cell_shows_the_lineage_that_fills_most_of_it():
    spans = [Span("w", i, i + 0.2, "unit", 1, "b", 0, 0) for i in range(80)]
    spans += [Span("w", i + 0.2, i + 1, "unit", 2, "c", 0, 0) for i in range(80)]
    assert rows(gantt.terminal(Timeline.of(spans), width=28, colour=False)) == ["w " + "2" * 20 + " 100 %"]


def test_lineages_that_do_not_fit_are_counted_in_the_legend():
    timeline = Timeline.of([Span("w", i, i + 1, "unit", i, f"trial {i}", 0, 0) for i in range(256)])
    legend = gantt.terminal(timeline, colour=False).splitlines()[-4:]
    named = sum(line.count("trial") for line in legend)
    assert legend[-1].endswith(f"… {256 - named} more")


def test_nothing_is_drawn_of_nothing():
    assert gantt.terminal(Timeline((), 0.0, ())) == "No worker has joined yet, so there is nothing to draw."
    assert "  0 %" in gantt.terminal(Timeline((), 0.0, ("w",)), colour=False)


def test_too_narrow_is_refused():
    with pytest.raises(ReportError, match="width: 10 columns; a chart needs at least 24"):
        gantt.terminal(hopping(), width=10)


def test_two_hundred_thousand_spans_are_quick():
    spans = [Span(f"w{w}", i, i + 0.9, "unit", (i + w) % 300, "", 0, 0) for w in range(40) for i in range(5000)]
    timeline = Timeline.of(spans)
    start = time.process_time()
    gantt.terminal(timeline)
    # Measured at 0.5 s; a pass over the spans for every cell would take minutes.
    assert time.process_time() - start < 5


@patient
@given(st.floats(0, 1e9), st.integers(1, 30))
def test_ticks_are_few_rise_and_stay_within_the_makespan(makespan, at_most):
    axis = time_axis(makespan, at_most)
    assert 1 <= len(axis.seconds) == len(axis.labels) <= at_most + 1
    assert list(axis.seconds) == sorted(set(axis.seconds))
    assert axis.seconds[0] == 0
    assert axis.seconds[-1] <= makespan * (1 + 1e-6)


@pytest.mark.parametrize(
    ("makespan", "unit"), [(0, "s"), (0.2, "ms"), (1, "s"), (119, "s"), (3600, "min"), (7200, "h"), (1e7, "h")]
)
def test_the_unit_suits_the_makespan(makespan, unit):
    assert time_axis(makespan, 8).unit == unit
