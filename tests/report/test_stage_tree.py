"""The stage tree as text."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hoptree.core.engine import Engine
from hoptree.core.events import TrialAsked
from hoptree.core.lineage import config_items
from hoptree.core.schedules import Config, cosine, multistep
from hoptree.core.settings import Settings
from hoptree.report.stage_tree import branches, stage_tree


def engine_for(configs: list[Config], epochs: int = 6, **options: Any) -> Engine:
    engine = Engine(Settings(partitions=2))
    for number, config in enumerate(configs):
        engine.step(TrialAsked(number, config_items(config), epochs, **options), 0.0)
    return engine


def drawn(engine: Engine, lines: int = 30) -> str:
    return stage_tree(engine.plan, list(engine.trials.values()), lines)


def test_shared_epochs_and_where_trials_diverge() -> None:
    cut = [multistep(0.1, at=[at], gamma=0.1) for at in (2, 4)]
    engine = engine_for(
        [{"lr": 0.1, "width": 8}, *({"lr": lr, "width": 8} for lr in cut), {"lr": 0.1, "width": 16}]
    )
    assert drawn(engine) == (
        "├─ epochs 0 to 6, 3 trials share 0 to 2: width=8\n"
        "│  ├─ epochs 2 to 6: lr=0.01\n"
        "│  └─ epochs 4 to 6: lr=0.01\n"
        "└─ epochs 0 to 6: width=16"
    )


def test_trials_that_share_nothing_are_folded() -> None:
    text = drawn(engine_for([{"lr": 0.001 * number} for number in range(1, 201)])).splitlines()
    assert len(text) == 8
    assert text[-1] == "└─ … 193 more, 1158 epochs"


def test_a_single_lineage_shows_all_of_its_values() -> None:
    assert drawn(engine_for([{"lr": cosine(0.1, period=6), "net": "mlp"}])) == (
        "└─ epochs 0 to 6: lr=cosine, net=mlp"
    )


def test_nothing_is_drawn_of_nothing() -> None:
    assert drawn(Engine(Settings(partitions=2))) == ""


def test_a_large_tree_is_folded_and_its_epochs_are_shown() -> None:
    configs = [{"lr": multistep(0.1, at=[at], gamma=0.1), "width": w} for w in range(1, 41) for at in (1, 2, 3)]
    text = drawn(engine_for(configs), lines=10)
    assert len(text.splitlines()) <= 20
    assert "… 31 more" in text or "more" in text.splitlines()[-1]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0.1, 0.2])), min_size=1, max_size=30, unique=True),
    st.integers(1, 40),
)
def test_all_units_are_in_the_tree_and_the_text_keeps_within_bounds(
    some: list[tuple[int, float]], lines: int
) -> None:
    engine = engine_for([{"lr": multistep(lr, at=[at], gamma=0.1)} for at, lr in some])
    trials = list(engine.trials.values())
    assert sum(branch.units for branch in branches(engine.plan, trials)) == engine.plan.work(trials).unique
    text = drawn(engine, lines).splitlines()
    assert 1 <= len(text) <= 2 * lines + 1
    assert all(len(line) <= 100 for line in text)


def test_long_lines_are_truncated_in_the_values() -> None:
    long = {f"name_{number}": 0.5 for number in range(20)}
    engine = engine_for([{**long, "lr": 0.1}, {**long, "lr": multistep(0.1, at=[3], gamma=0.1)}])
    first = stage_tree(engine.plan, list(engine.trials.values()), width=60).splitlines()[0]
    assert first.startswith("└─ epochs 0 to 6, 2 trials share 0 to 3: ")
    assert len(first) == 60
    assert first.endswith("…")
