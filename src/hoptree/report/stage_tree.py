"""The stage tree as text: which epochs trials share, folded if it is large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import final

from hoptree.core.lineage import Content, Values
from hoptree.core.plan import Node, Plan, Trial
from hoptree.core.schedules import Form
from hoptree.report.tables import count, printable

_ALONE = 8  # lines for trials that share nothing


@final
class StageBranch:
    """A range of units that the same trials share, and the branches after it."""

    def __init__(self, node: Node, before: Values | None) -> None:
        self.values = node.values
        self.before = before
        self.start = node.start
        self.end = node.start
        self.parting: int | None = None  # the unit at which the first of its trials leaves it or ends
        self.trials = 0
        self.ending = 0  # trials that end in it
        self.children: list[StageBranch] = []

    @property
    def units(self) -> int:
        """The units of this branch and all below it."""
        return self.end - self.start + sum(child.units for child in self.children)

    @property
    def size(self) -> int:
        """The number of branches, with all below it."""
        return 1 + sum(child.size for child in self.children)


def branches(plan: Plan, trials: Iterable[Trial]) -> list[StageBranch]:
    """Return the tree of requested epochs: every node that trials pass, in the order of the plan."""
    found: dict[int, StageBranch] = {}
    roots: list[StageBranch] = []
    for trial in trials:
        path = plan.path_with_ends(trial, trial.epochs * plan.partitions)
        for index, (node, end) in enumerate(path):
            branch = found.get(node.id)
            if branch is None:
                above = found[path[index - 1][0].id] if index else None
                branch = found[node.id] = StageBranch(node, above.values if above is not None else None)
                (roots if above is None else above.children).append(branch)
            branch.end = max(branch.end, end)
            branch.parting = end if branch.parting is None else min(branch.parting, end)
            branch.trials += 1
        if path:
            found[path[-1][0].id].ending += 1
    return roots


def stage_tree(plan: Plan, trials: Sequence[Trial], lines: int = 30, width: int = 100) -> str:
    """Draw the requested epochs, one line for each range of units that the same trials share.

    Beyond ``lines`` lines, deeper and later branches are folded into one line with their total epochs. If no trials
    share epochs, only a few lines are drawn.
    """
    roots = branches(plan, trials)
    if all(branch.trials == 1 for branch in roots):
        lines = min(lines, _ALONE)
    names = {name for branch in roots for name, _ in branch.values.items}
    same = {
        name for name in names
        if len({repr(dict(branch.values.items).get(name)) for branch in roots}) == 1
    } if len(roots) > 1 else set()  # fmt: skip
    return cut("\n".join(_draw(roots, lines, plan.partitions, "", same)), width)


def cut(drawn: str, width: int) -> str:
    """Truncate the lines of a drawing to a width."""
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in drawn.splitlines())


def _draw(siblings: list[StageBranch], room: int, partitions: int, margin: str, hidden: set[str]) -> Iterator[str]:
    """Draw a line per branch, and split the remaining lines among their children in proportion; fold the rest."""
    shown = siblings
    if len(shown) > max(1, room):
        shown = sorted(shown, key=lambda branch: -branch.size)[: max(1, room - 1)]
        shown = [branch for branch in siblings if branch in shown]
    folded = [branch for branch in siblings if branch not in shown]
    left = max(0, room - len(shown) - bool(folded))
    below = sum(branch.size - 1 for branch in shown)
    for branch in shown:
        last = branch is shown[-1] and not folded
        yield f"{margin}{'└─ ' if last else '├─ '}{_line(branch, partitions, hidden)}"
        under = margin + ("   " if last else "│  ")
        share = left * (branch.size - 1) // below if below else 0
        if branch.children and share:
            yield from _draw(branch.children, share, partitions, under, set())
        elif branch.children:
            yield f"{under}└─ {_folded(branch.children, partitions)}"
    if folded:
        yield f"{margin}└─ {_folded(folded, partitions)}"


def _line(branch: StageBranch, partitions: int, hidden: set[str]) -> str:
    before = dict(branch.before.items) if branch.before is not None else {}
    changed = [
        f"{name}={_value(content)}"
        for name, content in branch.values.items
        if name not in hidden and before.get(name) != content
    ]
    removed = [f"no {name}" for name in before if name not in dict(branch.values.items)]
    first, last = branch.start / partitions, branch.end / partitions
    epochs = f"epochs {first:g} to {last:g}"
    parting = branch.end if branch.parting is None else branch.parting
    what = "it" if parting == branch.end else f"{first:g} to {parting / partitions:g}"
    whose = f", {count(branch.trials)} trials share {what}" if branch.trials > 1 else ""
    return f"{epochs}{whose}: {printable(', '.join([*changed, *removed])) or 'the same values'}"


def _folded(hidden: Sequence[StageBranch], partitions: int) -> str:
    number = sum(branch.size for branch in hidden)
    epochs = sum(branch.units for branch in hidden) / partitions
    return f"… {count(number)} more, {epochs:g} epochs"


def _value(content: Content) -> str:
    form = content[0]
    if len(content) > 1 or not isinstance(form, Form):
        return "changes within a unit"
    if form.kind != "constant":
        return form.kind
    value = form.at(0.0)
    return f"{value:g}" if isinstance(value, float) else str(value)
