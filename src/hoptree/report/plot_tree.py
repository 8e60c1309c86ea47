"""The stage tree: epochs that trials share, where they branch, and their results."""

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

_NAMED = 48  # leaves up to which every node is labelled
_THICKEST = 9.0
_ENDINGS = {"failed": "failed", "stopped": "were stopped", "complete": "ended", "running": "wait"}


class _Drawn(NamedTuple):
    """A node and its row; ``ends`` holds the trials that end in it, each with its last epoch."""

    tree_node: TreeNode
    row: float
    children: list[int]
    ends: dict[int, float]


def figure(history: StudyTimeline, dark: bool = False) -> Figure:
    """Draw epochs from left to right, with a bar per node: wider for more trials, coloured by the best of them."""
    if not history.tree:
        raise ReportError(f"tree: no trial of {history.name!r} was granted an epoch yet; run the study first")
    drawn, leaves = _laid_out(history)
    with pages.drawing(dark, 11, min(11.0, max(3.6, 1.9 + 0.34 * leaves))) as (page, theme):
        axes = page.add_subplot()
        pages.frame(axes, theme, x="epoch", grid="x")
        losses = {c.number: history.loss(history.value(c.last)) for c in history.trials}
        _bars(axes, drawn, losses, theme, leaves)
        _frame(axes, drawn, leaves)
        if leaves <= _NAMED:
            _words(axes, history, drawn, theme)
        else:
            _best_leaf(axes, history, drawn, theme)
        finite = [loss for loss in losses.values() if math.isfinite(loss)]
        if len(finite) > 1:
            pages.bar(page, theme, axes, finite, f"best {history.metric}", history.maximize)
        pages.title(page, theme, _headline(history), _caption(history, leaves))
    return page


def _headline(history: StudyTimeline) -> str:
    asked = math.fsum((tree_node.end - tree_node.start) * len(tree_node.trials) for tree_node in _whole(history))
    unique = math.fsum(tree_node.end - tree_node.start for tree_node in history.tree)
    number = len({trial for tree_node in history.tree for trial in tree_node.trials})
    trials = counted(number, "trial")
    if asked <= unique:
        return f"{history.name}: {trials}{' without shared epochs' if number > 1 else ', without shared epochs'}"
    return (
        f"{history.name}: {trials} request {asked:,.6g} epochs; {unique:,.6g} are "
        f"left after sharing ({percent(1 - unique / asked)} less)"
    )


def _whole(history: StudyTimeline) -> list[TreeNode]:
    """Return the requested epochs by node and trial: a trial passes a node up to where it ends or branches."""
    starts: dict[tuple[int, int], float] = {}
    for tree_node in history.tree:
        for trial in tree_node.trials:
            if tree_node.parent is not None:
                starts[tree_node.parent, trial] = tree_node.start
    epochs = {c.number: _granted(c.state, c.epochs, c.grants) for c in history.trials}
    parts = []
    for tree_node in history.tree:
        for trial in tree_node.trials:
            end = starts.get((tree_node.node, trial), min(tree_node.end, epochs[trial]))
            parts.append(
                TreeNode(tree_node.node, tree_node.parent, tree_node.start, max(tree_node.start, end), (trial,), {})
            )
    return parts


def _granted(state: str, reached: int, grants: Sequence[tuple[float, int]]) -> float:
    return float(
        reached if state in ("stopped", "failed") else max((until for _, until in grants), default=reached)
    )


def _caption(history: StudyTimeline, leaves: int) -> str:
    written = "Labels: number of trials · changed values; at the end the last metric." if leaves <= _NAMED else ""
    shared = sum(len(tree_node.trials) > 1 for tree_node in history.tree)
    drawn = {trial for tree_node in history.tree for trial in tree_node.trials}
    left = [trial_timeline.state for trial_timeline in history.trials if trial_timeline.number not in drawn]
    states = " and ".join(f"{count(left.count(state))} that {_ENDINGS[state]}" for state in dict.fromkeys(left))
    silent = f" Not drawn: {states} before the first report." if left else ""
    return (
        f"{counted(len(history.tree), 'node')}, {count(shared)} of them shared; bars are as thick as trials "
        f"pass them. {written}"
    ).rstrip() + silent


def _laid_out(history: StudyTimeline) -> tuple[dict[int, _Drawn], int]:
    """Assign a row to every node: leaves one after the other, a node in the middle of its children."""
    tree_nodes = {tree_node.node: tree_node for tree_node in history.tree}
    children: dict[int | None, list[int]] = {}
    for tree_node in history.tree:
        parent = tree_node.parent if tree_node.parent in tree_nodes else None
        children.setdefault(parent, []).append(tree_node.node)
    best = {c.number: history.loss(history.value(c.last)) for c in history.trials}
    epochs = {c.number: _granted(c.state, c.epochs, c.grants) for c in history.trials}

    def rank(node: int) -> tuple[float, int]:
        return min(best[trial] for trial in tree_nodes[node].trials), node

    drawn: dict[int, _Drawn] = {}
    row = 0
    # Not recursive, because chains of nodes may be deep.
    stack = [(node, False) for node in sorted(children.get(None, ()), key=rank, reverse=True)]
    while stack:
        node, entered = stack.pop()
        below = sorted(children.get(node, ()), key=lambda child: (tree_nodes[child].start, *rank(child)))
        if below and not entered:
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(below))
            continue
        inner = [drawn[child].row for child in below]
        continued = {trial for child in below for trial in tree_nodes[child].trials}
        ends = {t: min(tree_nodes[node].end, epochs[t]) for t in tree_nodes[node].trials if t not in continued}
        # A node in which trials end gets its own row, else the middle of its children's rows.
        place = float(row) if ends else math.fsum(inner) / len(inner)
        row += bool(ends)
        drawn[node] = _Drawn(tree_nodes[node], place, below, ends)
    return drawn, row


def _bars(axes: Axes, drawn: dict[int, _Drawn], losses: dict[int, float], theme: Theme, leaves: int) -> None:
    from matplotlib.collections import LineCollection

    norm, scale = pages.norm_of(list(losses.values())), pages.scale_of(theme)
    most = max(len(each.tree_node.trials) for each in drawn.values())
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
        [(drawn[child].tree_node.start, each.row), (drawn[child].tree_node.start, drawn[child].row)]
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
    """Return the smallest and largest width of bars in points: with many leaves they fill their rows."""
    if leaves <= _NAMED:
        return 2.4, _THICKEST
    row = 11.0 * 72 * 0.86 / leaves
    return 1.1 * row, max(4.0, 1.6 * row)


def _cuts(drawn: dict[int, _Drawn], each: _Drawn) -> list[tuple[float, float, list[int]]]:
    """Return the segments of a node's bar with the trials that pass them: it gets thinner where trials leave."""
    leaving = {t: drawn[child].tree_node.start for child in each.children for t in drawn[child].tree_node.trials}
    leaving.update(each.ends)
    cuts = sorted({each.tree_node.start, *leaving.values()})
    found = []
    for start, end in pairwise(cuts):
        found.append((start, end, [trial for trial, left in leaving.items() if left >= end]))
    return found


def _frame(axes: Axes, drawn: dict[int, _Drawn], leaves: int) -> None:
    from matplotlib.ticker import MaxNLocator

    end = max(each.tree_node.end for each in drawn.values())
    axes.set_xlim(-0.01 * end, end * (1.30 if leaves <= _NAMED else 1.10))
    axes.set_ylim(leaves - 0.3, -0.8)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= end])


def _words(axes: Axes, history: StudyTimeline, drawn: dict[int, _Drawn], theme: Theme) -> None:
    """Label a bar with its number of trials and changed values, and its end with the trials that end there."""
    width = max(each.tree_node.end for each in drawn.values())
    trial_timelines = {trial_timeline.number: trial_timeline for trial_timeline in history.trials}
    best = history.best
    for each in drawn.values():
        tree_node = each.tree_node
        stretch = _cuts(drawn, each)[0][1] if each.children else tree_node.end
        shared = f"{count(len(tree_node.trials))} trials" if len(tree_node.trials) > 1 else ""
        word = " · ".join(part for part in (shared, _parting(drawn, each)) if part)
        letters = int((stretch - tree_node.start) / width * 96)
        colour = theme.ink if shared else theme.muted
        _text(axes, tree_node.start, each.row - 0.2, _cut(word, letters), colour, "bottom", 0.004 * width)
        ends = [trial for trial in each.ends if each.ends[trial] == max(each.ends.values())]
        if not ends:
            continue
        is_best = best is not None and best.number in ends
        value = history.value(trial_timelines[ends[0]].last)
        named = ", ".join(map(str, ends[:3])) + (", …" if len(ends) > 3 else "")
        named = f"trial{'s' if len(ends) > 1 else ''} {named}"
        word = f"{named}: {value:.4g}" if math.isfinite(value) else f"{named}: {trial_timelines[ends[0]].state}"
        colour = theme.best if is_best else theme.ink
        end = max(each.ends.values())
        _text(axes, end, each.row, word, colour, "center_baseline", 0.008 * width, bold=is_best)


def _parting(drawn: dict[int, _Drawn], each: _Drawn) -> str:
    """Return the values that differ from the parent node, or from the other roots."""
    tree_node = each.tree_node
    before = drawn.get(-1 if tree_node.parent is None else tree_node.parent)
    if before is not None:
        old = before.tree_node.values
        changed = [name for name in tree_node.values if repr(tree_node.values[name]) != repr(old.get(name))]
    else:
        roots = [other.tree_node.values for other in drawn.values() if other.tree_node.parent is None]
        changed = [
            name
            for name in tree_node.values
            if len({repr(other.get(name)) for other in roots}) > 1 or len(roots) == 1
        ]
    if not changed:  # the values are equal here, and differ later
        return "not shared from here on" if before is not None and len(tree_node.trials) == 1 else ""
    return printable(" ".join(f"{name}={short(tree_node.values[name])}" for name in changed))


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


def _best_leaf(axes: Axes, history: StudyTimeline, drawn: dict[int, _Drawn], theme: Theme) -> None:
    """Highlight the best trial in a tree that is too large for labels."""
    best = history.best
    if best is None:
        return
    path = sorted(
        (each for each in drawn.values() if best.number in each.tree_node.trials), key=lambda e: e.tree_node.start
    )
    line: list[tuple[float, float]] = []
    for each in path:
        if line:  # the previous node ends where this one starts
            line[-1] = (each.tree_node.start, line[-1][1])
        line += [(each.tree_node.start, each.row), (each.tree_node.end, each.row)]
    line[-1] = (path[-1].ends.get(best.number, line[-1][0]), line[-1][1])
    x, y = zip(*line, strict=True)
    axes.plot(x, y, color=theme.best, linewidth=1.8, zorder=6)
    axes.annotate(
        f"trial {best.number}: {history.value(best.last):.4g}",
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
