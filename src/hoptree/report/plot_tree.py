"""The stage tree: which epochs trials share, where they part, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from hoptree.report import page as pages
from hoptree.report.page import Theme
from hoptree.report.study_timeline import StudyTimeline, TreeNode, short
from hoptree.report.tables import count, counted, percent, printable
from hoptree.report.timeline import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMED = 48  # leaves up to which every node is written on
_THICKEST = 9.0
_ENDINGS = {"failed": "failed", "stopped": "were stopped", "complete": "ended", "running": "wait"}


class _Drawn(NamedTuple):
    """A node and its row; ``ends`` are the trials that end in it, each with its last epoch."""

    twig: TreeNode
    row: float
    children: list[int]
    ends: dict[int, float]


def figure(chronicle: StudyTimeline, dark: bool = False) -> Figure:
    """Draw epochs from left to right, a bar per node as thick as trials pass it, coloured by the best of them."""
    if not chronicle.twigs:
        raise ReportError(f"tree: no trial of {chronicle.name!r} was granted an epoch yet; run the study first")
    drawn, leaves = _laid_out(chronicle)
    with pages.drawing(dark, 11, min(11.0, max(3.6, 1.9 + 0.34 * leaves))) as (page, theme):
        axes = page.add_subplot()
        pages.frame(axes, theme, x="epoch", grid="x")
        losses = {c.number: chronicle.loss(chronicle.value(c.last)) for c in chronicle.courses}
        _bars(axes, drawn, losses, theme, leaves)
        _frame(axes, drawn, leaves)
        if leaves <= _NAMED:
            _words(axes, chronicle, drawn, theme)
        else:
            _best_leaf(axes, chronicle, drawn, theme)
        finite = [loss for loss in losses.values() if math.isfinite(loss)]
        if len(finite) > 1:
            pages.bar(page, theme, axes, finite, f"best {chronicle.metric}", chronicle.maximize)
        pages.title(page, theme, _headline(chronicle), _beneath(chronicle, leaves))
    return page


def _headline(chronicle: StudyTimeline) -> str:
    asked = math.fsum((twig.end - twig.start) * len(twig.trials) for twig in _whole(chronicle))
    unique = math.fsum(twig.end - twig.start for twig in chronicle.twigs)
    number = len({trial for twig in chronicle.twigs for trial in twig.trials})
    trials = counted(number, "trial")
    if asked <= unique:
        return f"{chronicle.name}: {trials}{' that share nothing' if number > 1 else ', which shares nothing'}"
    return (
        f"{chronicle.name}: {trials} ask for {asked:,.6g} epochs; {unique:,.6g} are "
        f"left after sharing ({percent(1 - unique / asked)} less)"
    )


def _whole(chronicle: StudyTimeline) -> list[TreeNode]:
    """Return what trials ask for, node by node: a trial passes a node up to where it ends or goes on."""
    starts: dict[tuple[int, int], float] = {}
    for twig in chronicle.twigs:
        for trial in twig.trials:
            if twig.parent is not None:
                starts[twig.parent, trial] = twig.start
    epochs = {c.number: _granted(c.state, c.epochs, c.grants) for c in chronicle.courses}
    parts = []
    for twig in chronicle.twigs:
        for trial in twig.trials:
            end = starts.get((twig.node, trial), min(twig.end, epochs[trial]))
            parts.append(TreeNode(twig.node, twig.parent, twig.start, max(twig.start, end), (trial,), {}))
    return parts


def _granted(state: str, reached: int, grants: Sequence[tuple[float, int]]) -> float:
    return float(
        reached if state in ("stopped", "failed") else max((until for _, until in grants), default=reached)
    )


def _beneath(chronicle: StudyTimeline, leaves: int) -> str:
    written = (
        "Written: how many trials · what parts them, and at the end the last metric." if leaves <= _NAMED else ""
    )
    shared = sum(len(twig.trials) > 1 for twig in chronicle.twigs)
    drawn = {trial for twig in chronicle.twigs for trial in twig.trials}
    left = [course.state for course in chronicle.courses if course.number not in drawn]
    states = " and ".join(f"{count(left.count(state))} that {_ENDINGS[state]}" for state in dict.fromkeys(left))
    silent = f" Not drawn: {states} before the first report." if left else ""
    return (
        f"{counted(len(chronicle.twigs), 'node')}, {count(shared)} of them shared; bars are as thick as trials "
        f"pass them. {written}"
    ).rstrip() + silent


def _laid_out(chronicle: StudyTimeline) -> tuple[dict[int, _Drawn], int]:
    """Give every node a row: leaves one after the other, a node amid its children."""
    twigs = {twig.node: twig for twig in chronicle.twigs}
    children: dict[int | None, list[int]] = {}
    for twig in chronicle.twigs:
        parent = twig.parent if twig.parent in twigs else None
        children.setdefault(parent, []).append(twig.node)
    best = {c.number: chronicle.loss(chronicle.value(c.last)) for c in chronicle.courses}
    epochs = {c.number: _granted(c.state, c.epochs, c.grants) for c in chronicle.courses}

    def rank(node: int) -> tuple[float, int]:
        return min(best[trial] for trial in twigs[node].trials), node

    drawn: dict[int, _Drawn] = {}
    row = 0
    # Deep chains of nodes would be too much for recursion.
    stack = [(node, False) for node in sorted(children.get(None, ()), key=rank, reverse=True)]
    while stack:
        node, entered = stack.pop()
        below = sorted(children.get(node, ()), key=lambda child: (twigs[child].start, *rank(child)))
        if below and not entered:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(below))
            continue
        inner = [drawn[child].row for child in below]
        gone_on = {trial for child in below for trial in twigs[child].trials}
        ends = {t: min(twigs[node].end, epochs[t]) for t in twigs[node].trials if t not in gone_on}
        # Trials that end in a node have a row, in which they go straight on; else it lies amid its children.
        place = float(row) if ends else math.fsum(inner) / len(inner)
        row += bool(ends)
        drawn[node] = _Drawn(twigs[node], place, below, ends)
    return drawn, row


def _bars(axes: Axes, drawn: dict[int, _Drawn], losses: dict[int, float], theme: Theme, leaves: int) -> None:
    from matplotlib.collections import LineCollection

    norm, scale = pages.norm_of(list(losses.values())), pages.scale_of(theme)
    most = max(len(each.twig.trials) for each in drawn.values())
    thinnest, thickest = _widths(leaves)
    parts = []
    for each in drawn.values():
        for start, end, trials in _cuts(drawn, each):
            share = math.log(len(trials)) / math.log(most) if most > 1 else 0.0
            best = min(losses[trial] for trial in trials)
            colour = scale(norm(-best)) if math.isfinite(best) else theme.down
            parts.append((-best, thinnest + (thickest - thinnest) * share, colour, start, end, each.row))
    parts.sort(key=lambda part: part[0])
    forks = [
        [(drawn[child].twig.start, each.row), (drawn[child].twig.start, drawn[child].row)]
        for each in drawn.values()
        for child in each.children
    ]
    thin = 0.9 if leaves <= _NAMED else 0.4
    axes.add_collection(LineCollection(forks, colors=theme.muted, linewidths=thin, zorder=2))
    axes.add_collection(
        LineCollection(
            [[(start, row), (end, row)] for _, _, _, start, end, row in parts],
            colors=[part[2] for part in parts],
            linewidths=[part[1] for part in parts],
            capstyle="butt",
            zorder=3,
        )
    )


def _widths(leaves: int) -> tuple[float, float]:
    """Return how thick bars are, in points: those of many leaves fill their rows."""
    if leaves <= _NAMED:
        return 2.4, _THICKEST
    row = 11.0 * 72 * 0.86 / leaves
    return 1.1 * row, max(4.0, 1.6 * row)


def _cuts(drawn: dict[int, _Drawn], each: _Drawn) -> list[tuple[float, float, list[int]]]:
    """Return the stretches of a node's bar, each with the trials that pass it: it thins where trials leave."""
    leaving = {t: drawn[child].twig.start for child in each.children for t in drawn[child].twig.trials}
    leaving.update(each.ends)
    cuts = sorted({each.twig.start, *leaving.values()})
    found = []
    for start, end in pairwise(cuts):
        found.append((start, end, [trial for trial, left in leaving.items() if left >= end]))
    return found


def _frame(axes: Axes, drawn: dict[int, _Drawn], leaves: int) -> None:
    from matplotlib.ticker import MaxNLocator

    end = max(each.twig.end for each in drawn.values())
    axes.set_xlim(-0.01 * end, end * (1.30 if leaves <= _NAMED else 1.10))
    axes.set_ylim(leaves - 0.3, -0.8)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= end])


def _words(axes: Axes, chronicle: StudyTimeline, drawn: dict[int, _Drawn], theme: Theme) -> None:
    """Write on a bar how many trials share it and what parts it, and at its end who ends there and how well."""
    width = max(each.twig.end for each in drawn.values())
    courses = {course.number: course for course in chronicle.courses}
    best = chronicle.best
    for each in drawn.values():
        twig = each.twig
        stretch = _cuts(drawn, each)[0][1] if each.children else twig.end
        shared = f"{count(len(twig.trials))} trials" if len(twig.trials) > 1 else ""
        word = " · ".join(part for part in (shared, _parting(drawn, each)) if part)
        letters = int((stretch - twig.start) / width * 96)
        colour = theme.ink if shared else theme.muted
        _text(axes, twig.start, each.row - 0.2, _cut(word, letters), colour, "bottom", 0.004 * width)
        ends = [trial for trial in each.ends if each.ends[trial] == max(each.ends.values())]
        if not ends:
            continue
        is_best = best is not None and best.number in ends
        value = chronicle.value(courses[ends[0]].last)
        named = ", ".join(map(str, ends[:3])) + (", …" if len(ends) > 3 else "")
        named = f"trial{'s' if len(ends) > 1 else ''} {named}"
        word = f"{named}: {value:.4g}" if math.isfinite(value) else f"{named}: {courses[ends[0]].state}"
        colour = theme.best if is_best else theme.ink
        end = max(each.ends.values())
        _text(axes, end, each.row, word, colour, "center_baseline", 0.008 * width, bold=is_best)


def _parting(drawn: dict[int, _Drawn], each: _Drawn) -> str:
    """Say what is different from the node before, or from the others that begin with it."""
    twig = each.twig
    before = drawn.get(-1 if twig.parent is None else twig.parent)
    if before is not None:
        old = before.twig.values
        changed = [name for name in twig.values if repr(twig.values[name]) != repr(old.get(name))]
    else:
        roots = [other.twig.values for other in drawn.values() if other.twig.parent is None]
        changed = [
            name for name in twig.values if len({repr(other.get(name)) for other in roots}) > 1 or len(roots) == 1
        ]
    if not changed:  # the same value now, and another course from here
        return "from here on alone" if before is not None and len(twig.trials) == 1 else ""
    return printable(" ".join(f"{name}={short(twig.values[name])}" for name in changed))


def _cut(text: str, letters: int) -> str:
    if len(text) <= letters:
        return text
    return f"{text[: letters - 1]}…" if letters > 4 else ""


def _text(
    axes: Axes, x: float, y: float, word: str, colour: str, vertical: str, room: float, bold: bool = False
) -> None:
    if word:
        axes.text(
            x + room,
            y,
            word,
            fontsize=8,
            color=colour,
            va=vertical,
            ha="left",
            weight="bold" if bold else "normal",
            parse_math=False,
            zorder=5,
        )


def _best_leaf(axes: Axes, chronicle: StudyTimeline, drawn: dict[int, _Drawn], theme: Theme) -> None:
    """Follow the best trial through a tree that is too large to be written on."""
    best = chronicle.best
    if best is None:
        return
    way = sorted((each for each in drawn.values() if best.number in each.twig.trials), key=lambda e: e.twig.start)
    line: list[tuple[float, float]] = []
    for each in way:
        if line:  # the one before is left where this one begins
            line[-1] = (each.twig.start, line[-1][1])
        line += [(each.twig.start, each.row), (each.twig.end, each.row)]
    line[-1] = (way[-1].ends.get(best.number, line[-1][0]), line[-1][1])
    x, y = zip(*line, strict=True)
    axes.plot(x, y, color=theme.best, linewidth=1.8, zorder=6)
    axes.annotate(
        f"trial {best.number}: {chronicle.value(best.last):.4g}",
        line[-1],
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=9,
        weight="bold",
        color=theme.best,
        zorder=7,
        annotation_clip=False,
    )
