import gzip
import itertools
from collections import defaultdict

import msgspec
import pytest
from hypothesis import given

from hoptree.report import ReportError, Span, Timeline, perfetto, save_trace
from tests.report.timelines import hopping, patient, timelines


def by_phase(timeline: Timeline) -> dict[str, list[dict]]:
    phases = defaultdict(list)
    for event in perfetto(timeline)["traceEvents"]:
        phases[event["ph"]].append(event)
    return phases


def overlaps(slices: list[dict]) -> bool:
    threads = defaultdict(list)
    for event in slices:
        threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return any(
        before[1] > after[0] for spans in threads.values() for before, after in itertools.pairwise(sorted(spans))
    )


@patient
@given(timelines())
def test_events_are_in_order_and_no_thread_does_two_things_at_once(timeline):
    events = perfetto(timeline)["traceEvents"]
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)
    assert all(time >= 0 for time in times)
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    phases = by_phase(timeline)
    assert len(phases["X"]) == len(timeline.spans)
    assert not overlaps(phases["X"])


@patient
@given(timelines(overlapping=False))
def test_each_worker_is_one_thread_when_its_spans_do_not_overlap(timeline):
    names = [e["args"]["name"] for e in by_phase(timeline)["M"] if e["name"] == "thread_name"]
    assert tuple(names) == timeline.workers


@patient
@given(timelines())
def test_the_counter_begins_at_the_start_and_ends_at_zero(timeline):
    counts = [(event["ts"], event["args"]["busy"]) for event in by_phase(timeline)["C"]]
    assert counts[0][0] == 0
    assert counts[-1][1] == 0
    assert all(0 <= busy <= len(timeline.workers) for _, busy in counts)


@patient
@given(timelines())
def test_arrows_come_in_pairs_and_lie_within_slices_of_their_threads(timeline):
    phases = by_phase(timeline)
    assert sorted(e["id"] for e in phases["s"]) == sorted(e["id"] for e in phases["f"])
    for event in phases["s"] + phases["f"]:
        assert any(s["tid"] == event["tid"] and s["ts"] <= event["ts"] <= s["ts"] + s["dur"] for s in phases["X"])


def test_a_unit_says_what_it_was_and_a_hop_is_an_arrow():
    timeline = Timeline.of(
        [Span("a", 0, 1, "unit", 3, "trial 3", 0, 2), Span("b", 1.5, 2, "unit", 3, "trial 3", 1, 2)]
    )
    phases = by_phase(timeline)
    unit = phases["X"][1]
    assert (unit["name"], unit["cat"], unit["ts"], unit["dur"]) == ("trial 3", "unit", 1_500_000, 500_000)
    assert unit["args"] == {"trial": "trial 3", "lane": 3, "epoch": 2, "partition": 1}
    assert [(e["ph"], e["tid"], e["ts"]) for e in phases["s"] + phases["f"]] == [
        ("s", 1, 999_999),
        ("f", 2, 1_500_000),
    ]


def test_the_file_is_json_that_holds_the_trace(tmp_path):
    timeline = hopping()
    save_trace(timeline, tmp_path / "trace.json")
    save_trace(timeline, str(tmp_path / "trace.json.gz"))
    plain = (tmp_path / "trace.json").read_bytes()
    assert msgspec.json.decode(plain) == perfetto(timeline)
    assert gzip.decompress((tmp_path / "trace.json.gz").read_bytes()) == plain


def test_an_empty_timeline_is_a_trace():
    assert [e["ph"] for e in perfetto(Timeline((), 0.0, ()))["traceEvents"]] == ["M", "C"]


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(ReportError, match=r"trace\.html: suffix is '\.html'; expected \.json or \.json\.gz"):
        save_trace(hopping(), tmp_path / "trace.html")
