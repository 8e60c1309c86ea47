"""The importance of hyper-parameters, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoptree.report import page as pages
from hoptree.report.importance import importance
from hoptree.report.study_timeline import StudyTimeline
from hoptree.report.tables import count, percent, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 20
_NAMES = {"fanova": "fANOVA", "mean-decrease": "mean decrease of impurity", "ped-anova": "PED-ANOVA"}


def figure(history: StudyTimeline, evaluator: str = "ped-anova", dark: bool = False) -> Figure:
    """Draw one bar per hyper-parameter, the most important on top."""
    found = importance(history, evaluator)
    shares = list(found.shares.items())[:_MOST]
    with pages.drawing(dark, 9, min(8.0, 1.7 + 0.42 * len(shares))) as (page, theme):
        axes = page.add_subplot()
        pages.frame(axes, theme, x="importance (total: 100 %)", grid="x")
        rows = range(len(shares))
        colour = theme.few[4] if theme.dark else theme.few[0]
        axes.barh(rows, [share for _, share in shares], height=0.62, color=colour, zorder=2)
        axes.set_yticks(list(rows), labels=[printable(name) for name, _ in shares], parse_math=False)
        axes.set_ylim(len(shares) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, labelsize=10)
        highest = max(share for _, share in shares) or 1.0
        axes.set_xlim(0, 1.12 * highest)
        axes.xaxis.set_major_formatter(lambda value, _: percent(value))
        for row, (_, share) in zip(rows, shares, strict=True):
            axes.text(share + 0.012 * highest, row, percent(share), va="center", fontsize=9, color=theme.ink)
        name, share = shares[0]
        heading = (
            f"{history.name}: {name} matters most for {history.metric}, with {percent(share)} of the importance"
        )
        caption = (
            f"{_NAMES[found.evaluator]} by Optuna, from the {count(found.trials)} trials that reported epoch "
            f"{found.epoch}."
        )
        for reason in dict.fromkeys(found.left_out.values()):
            names = [name for name, why in found.left_out.items() if why == reason]
            caption += f" {reason.capitalize()}, so not compared: {pages.listed(names)}."
        pages.title(page, theme, heading, caption)
    return page
