"""Scenes as pictures: whatever is in them, no line is too long and no picture too high."""

from __future__ import annotations

import io
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from hoptree.progress.drawing import draw, draw_end
from hoptree.progress.remaining import TimeLeft
from hoptree.progress.run_view import BestTrialView, RunView, TrialView, WorkerView
from hoptree.report.tables import NOTHING

names = st.text(min_size=1, max_size=60)
numbers = st.floats(allow_nan=True, allow_infinity=True)
seconds = st.floats(0, 1e7)
rows = st.builds(
    TrialView,
    number=st.integers(0, 100_000),
    study=names,
    epochs=st.integers(0, 10_000),
    until=st.integers(1, 10_000),
    values=st.lists(numbers, max_size=40).map(tuple),
    config=st.text(max_size=300),
    by=st.lists(st.sampled_from(["w0", "w1", "w15"]), max_size=3).map(tuple),
)
views = st.builds(
    RunView,
    studies=st.lists(names, min_size=1, max_size=3).map(tuple),
    metrics=st.lists(names, min_size=1, max_size=2).map(tuple),
    elapsed=seconds,
    fraction=st.none() | st.floats(0, 1),
    left=st.none() | st.builds(TimeLeft, seconds, seconds, seconds),
    counts=st.dictionaries(st.sampled_from(["complete", "failed", "waiting"]), st.integers(0, 10_000)),
    best_trials=st.lists(
        st.builds(BestTrialView, st.integers(0, 999), names, names, numbers, names), max_size=3
    ).map(tuple),
    workers=st.lists(st.builds(WorkerView, names, names), max_size=40).map(tuple),
    rows=st.lists(rows, max_size=30).map(tuple),
    hidden=st.integers(0, 1000),
    epochs_asked=st.floats(0, 1e6),
    epochs_unique=st.floats(0, 1e6),
    epochs_trained=st.floats(0, 1e6),
)


def lines(picture: list[Text], width: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=1000, force_terminal=False, _environ={})
    for line in picture:
        console.print(line)
    return out.getvalue().splitlines()


@settings(max_examples=80, deadline=None)
@given(view=views, width=st.integers(1, 220), height=st.integers(1, 60))
def test_a_picture_fits(view: RunView, width: int, height: int) -> None:
    drawn = draw(view, width, height)
    assert len(drawn) <= height
    assert len(lines(drawn, width)) == len(drawn)  # no line was folded
    assert all(cell_len(line) <= width for line in lines(drawn, width))
    assert len(lines(draw_end(view, width), width)) == len(draw_end(view, width))


def digits(**other: Any) -> RunView:
    view = RunView(
        studies=("digits",),
        metrics=("accuracy",),
        elapsed=63.0,
        fraction=0.62,
        left=TimeLeft(30.0, 40.0, 55.0),
        counts={"complete": 3, "stopped": 0, "failed": 1, "running": 1, "waiting": 2},
        best_trials=(BestTrialView(3, "digits", "accuracy", 0.98125, "lr=0.003, width=128"),),
        workers=(WorkerView("w0", "trial 3 +1: epoch 4, 2 of 4"), WorkerView("w1", "idle")),
        rows=(
            TrialView(3, "digits", 3, 6, (0.5, 0.75, 0.98125), "lr=0.003, width=128", ("w0",)),
            TrialView(4, "digits", 0, 6, (), "lr=0.003, width=32"),
        ),
        hidden=0,
        epochs_asked=48,
        epochs_unique=34,
        epochs_trained=20.25,
    )
    return msgspec.structs.replace(view, **other)


def test_a_picture_at_80_columns() -> None:
    view = digits()
    assert [line.rstrip() for line in lines(draw(view, 80, 24), 80)] == [
        f"digits  {'━' * 8}{'─' * 5}  62 %  1 min 3 s elapsed, 40 s left (30 s to 55 s)",
        "trials   3 complete, 1 failed, 1 running, 2 waiting",
        "best     trial 3: accuracy 0.9812 (lr=0.003, width=128)",
        "epochs   48 requested, 14 shared (29 % saved), 20.25 trained in this run",
        "workers  w0 trial 3 +1: epoch 4, 2 of 4     w1 idle",
        "trial     epochs    accuracy  curve         now      config",
        "    3        3/6      0.9812  ▁▅█           w0       lr=0.003, width=128",
        f"    4        0/6           {NOTHING}                         lr=0.003, width=32",
    ]


def test_the_bar_keeps_its_width_and_is_full_at_the_end() -> None:
    for left in (None, TimeLeft(3.0, 4.0, 5.0), TimeLeft(600.0, 3000.0, 3500.0)):
        head = lines(draw(digits(left=left, elapsed=600.0), 80, 24), 80)[0]
        assert head.count("━") + head.count("─") == 13, head
    assert lines(draw_end(digits(fraction=1.0), 80), 80)[0].startswith(f"digits  {'━' * 13} 100 %  in ")


def test_without_a_budget_estimate_only_the_minimum_is_shown() -> None:
    head = lines(draw(digits(fraction=None, open_ended=True), 80, 24), 80)[0]
    assert head.rstrip() == "digits  1 min 3 s elapsed, at least 40 s left"


def test_the_display_says_that_workers_start() -> None:
    starting = digits(
        counts={"complete": 0},
        best_trials=(),
        rows=(),
        workers=(WorkerView("w0", "starting"), WorkerView("w1", "starting")),
    )
    assert lines(draw(starting, 80, 24), 80)[1].rstrip() == "trials   none yet, workers are starting"
