import math

import pytest
from hypothesis import given

from hoptree.report import ReportError, Span, Timeline
from tests.report.timelines import patient, timelines


def unit(worker: str, start: float, end: float, kind: str = "unit") -> Span:
    return Span(worker, start, end, kind, 0, "trial 0", 0, 0)


@patient
@given(timelines())
def test_utilisation_is_a_share_and_busy_adds_up(timeline):
    shares = timeline.utilisation()
    assert tuple(shares) == timeline.workers
    assert all(0 <= share <= 1 for share in shares.values())
    assert timeline.total_busy() == pytest.approx(sum(timeline.busy().values()))


@patient
@given(timelines(overlapping=False))
def test_busy_is_the_sum_of_spans_that_do_not_overlap(timeline):
    lengths = [span.end - span.start for span in timeline.spans if span.kind in ("unit", "evaluation")]
    assert timeline.total_busy() == pytest.approx(math.fsum(lengths), abs=1e-6)


@patient
@given(timelines())
def test_order_of_spans_does_not_matter_to_busy_time(timeline):
    turned = Timeline(timeline.spans[::-1], timeline.makespan, timeline.workers)
    assert turned.busy() == pytest.approx(timeline.busy())


def test_a_bundle_counts_once_and_hops_and_absence_do_not_count():
    timeline = Timeline.of([unit("a", 0, 4), unit("a", 1, 5), unit("a", 5, 8, "hop"), unit("a", 8, 10, "down")])
    assert timeline.utilisation() == {"a": 0.5}


def test_spans_beyond_the_makespan_are_not_counted():
    assert Timeline((unit("a", 0, 4), unit("a", 6, 7)), 2.0, ("a",)).utilisation() == {"a": 1.0}


@pytest.mark.parametrize(("start", "end"), [(2, 1), (-1, 1), (0, math.inf), (math.nan, 1), (0, math.nan)])
def test_an_impossible_span_is_refused(start, end):
    with pytest.raises(ReportError, match=r"span of a: .*expected 0 <= start <= end"):
        unit("a", start, end)


def test_unknown_kinds_lanes_and_workers_are_refused():
    with pytest.raises(ReportError, match="kind is 'nap'; expected one of unit, evaluation"):
        unit("a", 0, 1, "nap")
    with pytest.raises(ReportError, match="lane is -1; number the lanes from 0"):
        Span("a", 0, 1, "unit", -1, "", 0, 0)
    with pytest.raises(ReportError, match="'a' has a span but is not listed"):
        Timeline((unit("a", 0, 1),), 1.0, ("b",))
    with pytest.raises(ReportError, match="'b' is listed twice"):
        Timeline((), 1.0, ("b", "b"))
    with pytest.raises(ReportError, match="makespan: nan"):
        Timeline((), math.nan, ())
