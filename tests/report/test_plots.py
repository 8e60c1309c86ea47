"""Every plot of every kind of study: drawn, light and dark, with what it says in its words and marks."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

import hoptree as ht
from hoptree.core.errors import MissingExtraError
from hoptree.record.node_history import node_timeline
from hoptree.report import ReportError, Timeline
from hoptree.report.columns import columns
from hoptree.report.importance import importance
from hoptree.report.page import apart, value_limits
from hoptree.report.study_timeline import StudyTimeline, TrialTimeline
from tests.record.test_cost import two_stages
from tests.report.study_timelines import CONDITIONAL, MIXED, STEPPED, WIDE, history

STUDIES: dict[str, Callable[[], StudyTimeline]] = {
    "grid": lambda: history(ht.Grid(epochs=12), STEPPED),
    "minimize": lambda: history(ht.Grid(epochs=3), STEPPED, maximize=False),
    "few": lambda: history(ht.Random(3, epochs=4), WIDE),
    "one": lambda: history(ht.Random(1, epochs=2), WIDE),
    "halving": lambda: history(ht.SuccessiveHalving(27, max_epochs=9), WIDE, seed=2),
    "conditional": lambda: history(ht.Random(20, epochs=3), CONDITIONAL),
    "pbt": lambda: history(ht.PBT(population=6, epochs=6, interval=2), {"lr": ht.log(1e-4, 0.1)}),
    "mixed": lambda: history(ht.Random(200, epochs=2), MIXED),
    "500": lambda: history(ht.ASHA(500, max_epochs=27), WIDE, workers=8, partitions=8),
}
REFUSED = {
    ("one", "parallel"), ("one", "slices"), ("one", "importance"), ("few", "importance"),
}  # fmt: skip
HALVING = ("halving", "500", "pbt")  # who grants more to some, or in parts


@pytest.fixture(scope="session")
def studies() -> Callable[[str], StudyTimeline]:
    known: dict[str, StudyTimeline] = {}

    def get(name: str) -> StudyTimeline:
        if name not in known:
            known[name] = STUDIES[name]()
        return known[name]

    return get


@pytest.mark.parametrize("kind", ht.plot.KINDS)
@pytest.mark.parametrize("name", STUDIES)
def test_every_plot_of_every_study(
    studies: Callable[[str], StudyTimeline], name: str, kind: str, tmp_path: Path
) -> None:
    told = studies(name)
    draw = ht.plot.KINDS[kind]
    if (name, kind) in REFUSED or kind == "nodes" or (kind == "rungs" and name not in HALVING):
        with pytest.raises(ReportError, match="expected"):
            draw(told)
        return
    dark = name in ("grid", "500")
    figure = draw(told, dark=dark)
    assert isinstance(figure, Figure)
    assert "made-up" in _title(figure)
    ht.plot.save(figure, tmp_path / "plot.svg")
    assert ET.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")
    assert "nan" not in _title(figure)


def _title(figure: Figure) -> str:
    return (figure.get_suptitle() or figure.axes[0].get_title(loc="left")).strip()


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_light_and_dark_have_other_pages(studies: Callable[[str], StudyTimeline]) -> None:
    light, dark = (ht.plot.curves(studies("few"), dark=dark).get_facecolor() for dark in (False, True))
    assert sum(light[:3]) > 2.9
    assert sum(dark[:3]) < 0.5


def test_equal_studies_give_equal_files(studies: Callable[[str], StudyTimeline], tmp_path: Path) -> None:
    for name in ("a", "b"):
        ht.plot.save(ht.plot.tree(studies("grid")), tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_curves_have_a_line_per_trial(studies: Callable[[str], StudyTimeline]) -> None:
    few = ht.plot.curves(studies("few"), metric="loss").axes[0]
    assert [line.get_xdata().tolist() for line in few.lines] == [[1, 2, 3, 4]] * 3
    assert few.get_ylabel() == "loss"
    many = ht.plot.curves(studies("500")).axes[0]
    assert len(many.collections[0].get_segments()) == 500
    with pytest.raises(ReportError, match="metric: 'speed'; expected one of accuracy, loss"):
        ht.plot.curves(studies("few"), metric="speed")


def test_the_best_is_a_staircase_that_ends_at_the_best(studies: Callable[[str], StudyTimeline]) -> None:
    told = studies("halving")
    values = [told.value(report) for trial in told.trials for report in trial.reports]
    left, right = ht.plot.best(told).axes
    for axes in (left, right):
        stairs = axes.lines[0].get_ydata()
        assert list(stairs) == sorted(stairs)
        assert stairs[-1] == max(values)


def test_a_tree_says_what_is_shared_and_who_ends_where(studies: Callable[[str], StudyTimeline]) -> None:
    figure = ht.plot.tree(studies("grid"))
    assert "12 trials request 144 epochs; 96 are left after sharing (33 % less)" in _title(figure)
    words = " ".join(_texts(figure))
    assert all(f"trial {number}:" in words for number in range(12))
    assert "3 trials · " in words
    assert "lr=0.001" in words


def test_savings_name_both_lines(studies: Callable[[str], StudyTimeline]) -> None:
    figure = ht.plot.savings(studies("grid"))
    assert "33 % of 144 epochs did not have to be trained" in _title(figure)
    assert {"144 received", "96 trained"} <= set(_texts(figure))


def test_rungs_have_as_many_dots_as_trials(studies: Callable[[str], StudyTimeline]) -> None:
    axes = ht.plot.rungs(studies("halving")).axes[0]
    dots = [len(each.get_offsets()) for each in axes.collections if hasattr(each, "get_sizes")]
    assert sum(dots) == 27 + 9 + 3
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1\n27 trials", "3\n9 trials", "9\n3 trials"]


def test_a_grid_with_trials_that_users_added_has_no_rungs(studies: Callable[[str], StudyTimeline]) -> None:
    told = studies("grid")
    added = msgspec.structs.replace(told.trials[0], number=len(told.trials), grants=((0.0, 3),))
    with pytest.raises(ReportError, match="granted their epochs at once; expected a search"):
        ht.plot.rungs(msgspec.structs.replace(told, trials=(*told.trials, added)))


def test_curves_note_what_is_out_of_range_and_what_a_mark_means(studies: Callable[[str], StudyTimeline]) -> None:
    told = studies("halving")
    trial = told.trials[0]
    far = [msgspec.structs.replace(report, metrics={"accuracy": -1e9}) for report in trial.reports]
    bad = msgspec.structs.replace(trial, reports=tuple(far), state="failed")
    figure = ht.plot.curves(msgspec.structs.replace(told, trials=(bad, *told.trials[1:])))
    heading = " ".join(text.get_text() for text in figure.texts)
    assert f"{len(far)} value{'s are' if len(far) > 1 else ' is'} outside of the plot." in heading
    assert "A red x marks where a trial failed." in heading


def test_a_tree_counts_what_it_draws_and_says_what_it_does_not(studies: Callable[[str], StudyTimeline]) -> None:
    told = studies("grid")
    lost = msgspec.structs.replace(told.trials[0], number=len(told.trials), state="failed", reports=())
    figure = ht.plot.tree(msgspec.structs.replace(told, trials=(*told.trials, lost)))
    assert "12 trials request 144 epochs" in _title(figure)
    heading = [" ".join(text.get_text().split()) for text in figure.texts]  # in however many lines
    assert any("Not drawn: 1 that failed before the first report." in text for text in heading)


def test_nodes_of_the_same_trials_have_one_name_and_one_colour(studies: Callable[[str], StudyTimeline]) -> None:
    labels = list(studies("grid").timeline.lanes().values())
    assert len(set(labels)) == len(labels)
    assert any(label.startswith("trials ") for label in labels)


def test_hops_are_lines_while_they_can_be_distinguished(studies: Callable[[str], StudyTimeline]) -> None:
    told = studies("few")
    assert 0 < len(told.hops) <= 400
    axes = ht.plot.gantt(told).axes[0]
    assert len(axes.collections[-1].get_segments()) == len(told.hops)
    assert f"{len(told.hops)} hops" in axes.get_title(loc="left")


@pytest.mark.parametrize("evaluator", ["ped-anova", "fanova", "mean-decrease"])
def test_importance_by_optuna(studies: Callable[[str], StudyTimeline], evaluator: str) -> None:
    found = importance(studies("halving"), evaluator)
    assert (found.trials, found.epoch) == (27, 1)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert next(iter(found.shares)) == "lr"


def test_importance_of_what_only_some_trials_have(studies: Callable[[str], StudyTimeline]) -> None:
    told = studies("conditional")
    (conditional,) = (name for name in told.searched if "momentum" in name)
    assert conditional in importance(told).shares
    assert importance(told, "fanova").left_out == {conditional: "not set in all trials"}


def test_a_choice_of_numbers_and_schedules_is_shown_by_start_and_form(
    studies: Callable[[str], StudyTimeline],
) -> None:
    told = studies("mixed")
    found = importance(told)
    start, form = columns("lr", told.trials)
    configs = [{**c.config, "lr": n} for c, n in zip(told.trials, start.numbers, strict=True)]
    plain = [msgspec.structs.replace(c, config=x) for c, x in zip(told.trials, configs, strict=True)]
    share = importance(msgspec.structs.replace(told, trials=tuple(plain))).shares["lr"]
    assert found.shares["lr: start"] == pytest.approx(share, abs=0.05)
    assert importance(told, "fanova").shares["lr: start"] > 0.5
    assert "lr" not in found.shares
    assert (start.kind, form.kind) == ("log", "options")
    assert form.labels == ("constant", "multistep([1], 0.…")
    names = [label.get_text() for label in ht.plot.parallel(told).axes[0].get_xticklabels()]
    assert names == ["drop", "lr: start", "lr: form", "width", "accuracy"]
    assert [axes.get_xlabel() for axes in ht.plot.slices(told, names=["lr"]).axes[:2]] == ["lr: start", "lr: form"]


def test_options_stand_in_their_order() -> None:
    configs = [{"act": value} for value in (0.1, "tanh", True, 0.01, "gelu", 2)]
    trials = [TrialTimeline(i, config, "complete", "", 0.0, 1.0, (), (), ()) for i, config in enumerate(configs)]
    assert columns("act", trials)[0].labels == ("True", "0.01", "0.1", "2", "gelu", "tanh")


def test_a_warm_up_is_shown_by_the_schedule_that_follows() -> None:
    rates = [ht.warmup(0.0, 2, ht.constant(0.01)), ht.warmup(0.0, 2, ht.cosine(0.02, period=4)), 0.03]
    trials = [TrialTimeline(i, {"lr": rate}, "complete", "", 0.0, 1.0, (), (), ()) for i, rate in enumerate(rates)]
    start, form = columns("lr", trials, longest=40)
    assert start.labels == ("0.01", "0.02", "0.03")
    assert form.labels == ("constant", "warmup(2), constant", "warmup(2), cosine(0.0, 4, 1.0)")


def test_importance_says_why_a_parameter_cannot_be_compared() -> None:
    words = [f"word {i}" for i in range(60)]
    space = {"lr": ht.log(1e-4, 0.1), "word": ht.choice(*words), "depth": ht.choice(1, 2)}
    told = history(ht.Random(40, epochs=1), space)
    same = [msgspec.structs.replace(trial, config={**trial.config, "depth": 1}) for trial in told.trials]
    lost = msgspec.structs.replace(same[0], config={**same[0].config, "depth": 2}, reports=())
    told = msgspec.structs.replace(told, trials=(lost, *same[1:]))
    assert importance(told).left_out == {
        "word": "different in nearly every trial",
        "depth": "the same in all trials",
    }
    figure = ht.plot.importance(told)
    assert any("The same in all trials, so not compared: depth." in text.get_text() for text in figure.texts)
    drawn = ht.plot.parallel(told)
    assert [label.get_text() for label in drawn.axes[0].get_xticklabels()] == ["lr", "word", "accuracy"]
    assert any("Not drawn, because all trials agree: depth." in text.get_text() for text in drawn.texts)


def test_fanova_that_would_take_minutes_is_refused() -> None:
    rates = [ht.multistep(0.01, at=[1], gamma=round(0.01 * step, 2)) for step in range(1, 15)]
    told = history(ht.Grid(epochs=2), {"lr": ht.choice(*rates), "width": ht.choice(32, 64)})
    with pytest.raises(ReportError, match="'fanova' would take minutes for 'lr'.*use 'ped-anova'"):
        importance(told, "fanova")
    with pytest.raises(ReportError, match="evaluator: 'magic'; expected one of ped-anova, fanova, mean-decrease"):
        importance(told, "magic")


def test_names_choose_hyper_parameters(studies: Callable[[str], StudyTimeline]) -> None:
    axes = ht.plot.parallel(studies("halving"), names=["width", "lr"]).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["width", "lr", "accuracy"]
    assert len([axes for axes in ht.plot.slices(studies("halving"), names=["drop"]).axes if axes.collections]) >= 1
    with pytest.raises(ReportError, match="names: 'speed'; expected hyper-parameters of the study: act, depth"):
        ht.plot.slices(studies("halving"), names=["speed"])


def test_plots_of_a_study_without_reports_raise_an_error() -> None:
    empty = StudyTimeline("quiet", "loss", False, 2, (), Timeline((), 0.0, ()))
    for kind, draw in ht.plot.KINDS.items():
        with pytest.raises(ReportError, match="run the study first|expected"):
            draw(empty)
        assert kind


def test_the_axis_of_a_single_epoch_has_that_epoch_alone() -> None:
    axes = ht.plot.curves(history(ht.Random(9, epochs=1), WIDE)).axes[0]
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1.0]


def test_the_error_says_that_all_trials_failed(studies: Callable[[str], StudyTimeline]) -> None:
    told = studies("few")
    failed = tuple(msgspec.structs.replace(trial, state="failed", reports=()) for trial in told.trials)
    with pytest.raises(ReportError, match="all trials failed; `hoptree trials` shows the errors"):
        ht.plot.curves(msgspec.structs.replace(told, trials=failed))


def test_values_that_are_no_numbers_are_left_out(studies: Callable[[str], StudyTimeline], tmp_path: Path) -> None:
    told = studies("few")
    trial = told.trials[0]
    lost = [msgspec.structs.replace(r, metrics={"accuracy": math.nan, "loss": math.inf}) for r in trial.reports]
    bad = msgspec.structs.replace(trial, reports=tuple(lost))
    broken = msgspec.structs.replace(told, trials=(bad, *told.trials[1:]))
    for kind in ("curves", "best", "parallel", "slices", "tree", "savings", "gantt"):
        ht.plot.save(ht.plot.KINDS[kind](broken), tmp_path / f"{kind}.png")


def test_the_best_is_the_one_that_results_name() -> None:
    """Complete trials that diverged are not better than one that was stopped."""
    told = history(ht.Grid(epochs=2), {"lr": ht.choice(0.1, 0.01, 0.02, 0.03)})
    nothing = {"accuracy": math.nan, "loss": math.inf}
    trials = [
        msgspec.structs.replace(c, reports=tuple(msgspec.structs.replace(r, metrics=nothing) for r in c.reports))
        for c in told.trials
    ]
    trials[1] = msgspec.structs.replace(told.trials[1], state="stopped")
    for place in (2, 3):
        trials[place] = msgspec.structs.replace(told.trials[place], state="failed")
    broken = msgspec.structs.replace(told, trials=tuple(trials))
    assert broken.best is broken.trials[1]
    assert "trial 1 is the best" in _title(ht.plot.parallel(broken))
    trials[1] = trials[0]
    lost = msgspec.structs.replace(told, trials=tuple(trials))
    assert "is the best" not in _title(ht.plot.parallel(lost))  # it diverged, as all did that have not failed


def test_names_of_users_are_text_not_markup(tmp_path: Path) -> None:
    space = {"lr": ht.choice(0.01, 0.02), "a$b^{": ht.choice("<&>", "$x$", "_\\frac")}
    told = history(ht.Grid(epochs=2), space)
    for kind in ("curves", "parallel", "slices", "tree", "importance"):
        ht.plot.save(ht.plot.KINDS[kind](told), tmp_path / f"{kind}.svg")
        ET.parse(tmp_path / f"{kind}.svg")


def test_an_unknown_suffix_is_refused(studies: Callable[[str], StudyTimeline], tmp_path: Path) -> None:
    figure = ht.plot.curves(studies("few"))
    with pytest.raises(ReportError, match=r"plot\.jpg: suffix is '\.jpg'; expected \.svg or \.png or \.pdf"):
        ht.plot.save(figure, tmp_path / "plot.jpg")
    with pytest.raises(ReportError, match="does not exist; create it first"):
        ht.plot.save(figure, tmp_path / "nowhere" / "plot.svg")


def test_without_optuna_the_message_names_the_extra(
    studies: Callable[[str], StudyTimeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hoptree\[optuna\]'"):
        ht.plot.importance(studies("halving"))


def test_no_figure_is_registered_with_pyplot(studies: Callable[[str], StudyTimeline]) -> None:
    ht.plot.slices(studies("few"))
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_columns_choose_their_scale(studies: Callable[[str], StudyTimeline]) -> None:
    trials = studies("500").trials
    kinds: dict[str, Any] = {name: columns(name, trials)[0].kind for name in WIDE}
    assert kinds == {"lr": "log", "width": "options", "act": "options", "drop": "linear", "depth": "linear"}
    assert all(float(label).is_integer() for label in columns("depth", trials)[0].labels)


def test_axis_limits_exclude_outliers_but_never_required_values() -> None:
    values = [*(0.01 * i for i in range(100)), 1e9]
    assert value_limits(values)[1] < 5
    assert value_limits(values, keep=[1e9])[1] > 1e9
    assert value_limits([math.nan]) == value_limits([])
    assert apart([3.0, 3.0, 3.0], 1.0, 0.0, 4.0) == [2.0, 3.0, 4.0]


def test_text_in_plots_fits(studies: Callable[[str], StudyTimeline]) -> None:
    """Long names and notes are wrapped, and cut at no edge."""
    told = msgspec.structs.replace(studies("halving"), name="a study whose name goes on and on " * 4)
    told = msgspec.structs.replace(told, nodes=node_timeline(two_stages(), now=340.0))
    for kind, draw in ht.plot.KINDS.items():
        figure = draw(told)
        figure.draw_without_rendering()
        edge = figure.get_window_extent().x1
        words = [part for axes in figure.axes for part in axes.get_children() if isinstance(part, Text)]
        shown = [text for text in (*figure.texts, *words) if text.get_text()]
        beyond = [text.get_text() for text in shown if text.get_window_extent().x1 > edge]
        assert not beyond, kind
