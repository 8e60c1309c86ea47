"""Timelines for the tests of the pictures."""

from hypothesis import settings
from hypothesis import strategies as st

from hoptree.report import KINDS, Span, Timeline

NAMES = st.text(max_size=30)
# A busy machine may be slow; that is not what these tests are about.
patient = settings(max_examples=40, deadline=None)


@st.composite
def timelines(draw, overlapping=True):
    """Any timeline; with overlapping=False each worker does one thing at a time."""
    workers = draw(st.lists(NAMES, max_size=60, unique=True))
    spans = []
    for worker in draw(st.lists(st.sampled_from(workers), max_size=8, unique=True)) if workers else []:
        count = draw(st.integers(1, 6))
        times = draw(st.lists(st.floats(0, 1e7), min_size=2 * count, max_size=2 * count))
        if not overlapping:
            times.sort()
        for start, end in zip(times[::2], times[1::2], strict=True):
            lane = draw(st.integers(0, 300))
            kind = draw(st.sampled_from(KINDS))
            spans.append(
                Span(worker, min(start, end), max(start, end), kind, lane, draw(NAMES), lane % 4, lane // 4)
            )
    return Timeline.of(draw(st.permutations(spans)), workers)


def hopping(workers: int = 4, trials: int = 6, seconds: float = 10.0) -> Timeline:
    """One epoch in which every trial visits every worker, with an evaluation, a failure and an absence."""
    names = [f"worker {i}" for i in range(workers)]
    spans = []
    for slot in range(max(workers, trials)):
        for i in range(workers):
            trial = (slot + i) % max(workers, trials)
            if trial < trials:
                start = slot * seconds
                kind = "evaluation" if slot == 1 else "unit"
                spans.append(Span(names[i], start, start + seconds * 0.9, kind, trial, f"trial {trial}", i, 0))
                spans.append(Span(names[i], start + seconds * 0.9, start + seconds, "hop", trial, "", i, 0))
    end = max(workers, trials) * seconds
    spans.append(Span(names[0], end, end + seconds, "failed", 0, "trial 0", 0, 1))
    spans.append(Span(names[0], end + seconds, end + 3 * seconds, "down", 0, "", 0, 1))
    return Timeline.of(spans, names)
