"""A trial: one config that a study trains, its budget and its reports."""

from __future__ import annotations

from typing import NamedTuple, final

from hoptree.core.actions import Ending
from hoptree.core.events import Asker, Metrics
from hoptree.core.lineage import History
from hoptree.core.nodes import Place, State
from hoptree.core.transitions import TRIAL, TrialEvent, TrialStatus, wrong_transition


class EarlierHistory(NamedTuple):
    """The root and variant under which a trial was trained before it was moved, and the epochs it was granted."""

    root: str
    variant: str
    until: int


@final
class Trial:
    """One config that a study trains, with the budget granted so far."""

    __slots__ = (
        "alone", "asked_by", "barrier", "curve", "earlier", "ending", "every", "final", "followed", "history",
        "lost_state", "number", "onward", "open", "owed", "pinned", "reached", "reason", "retries", "root",
        "standing", "study", "tree_owner", "until", "variant", "wanting",
    )  # fmt: skip

    def __init__(self, number: int, history: History, root: str, study: str, every: int) -> None:
        self.number = number
        self.history = history
        self.root = root
        self.variant = ""
        self.onward: tuple[str, str] | None = None  # root and variant for further epochs; None: unchanged
        self.earlier: tuple[EarlierHistory, ...] = ()  # oldest first
        self.study = study
        self.every = every
        self.standing = number  # the first trial that was requested together with it
        self.asked_by: Asker | None = None
        self.alone = False
        self.tree_owner = number  # if alone: the trial whose private tree it uses
        self.barrier = False
        self.until = 0
        self.followed = 0  # the epoch up to which nodes count it as live; 0 when it has ended
        self.reached = 0
        self.open: dict[int, Place] = {}  # epochs whose report is due, with their places
        self.wanting: set[int] = set()  # those of them whose state has to be trained
        self.curve: dict[int, Metrics] = {}  # reported metrics, by epoch
        self.final: Place | None = None  # where it ended, if it is complete
        self.lost_state = False  # whether its final state was lost and not retrained yet
        self.pinned: State | None = None
        self.ending: Ending | None = None
        self.reason = ""
        self.owed: tuple[int, ...] = ()  # if failed: epochs whose report was still due
        self.retries = 0  # how often it was retried after a failure

    @property
    def epochs(self) -> int:
        """The epochs it was granted, or, if it was stopped or failed, the epochs it has reported."""
        return self.reached if self.ending in ("stopped", "failed") else self.until

    @property
    def done(self) -> int:
        """The epochs it has completed: all if it is complete, else those it has reported."""
        return self.until if self.ending == "complete" else self.reached

    @property
    def status(self) -> TrialStatus:
        """How it ended, or "running"."""
        return self.ending or "running"

    def change(self, event: TrialEvent) -> None:
        """Change the status by an event, or raise TransitionError if the table ``TRIAL`` does not allow it."""
        target = TRIAL[self.status].get(event)
        if target is None:
            raise wrong_transition(self, "trial", self.status, event)
        self.ending = None if target == "running" else target

    def add_report(self, epoch: int, metrics: Metrics) -> None:
        """Record a report; one that was requested later may belong to an earlier epoch."""
        del self.open[epoch]
        self.reached = max(self.reached, epoch)
        last = next(reversed(self.curve), 0)
        self.curve[epoch] = metrics
        if epoch < last:
            self.curve = dict(sorted(self.curve.items()))

    def end_at(self, place: Place | None) -> None:
        """Record the place where it ended complete; None: it is not complete."""
        if self.final is not None:
            node, unit = self.final
            node.finals[unit].remove(self)
            if not node.finals[unit]:
                del node.finals[unit]
        self.final, self.lost_state = place, False
        if place is not None:
            place.node.finals.setdefault(place.unit, []).append(self)

    def owe(self, until: int) -> None:
        """Record epochs that were granted after it had failed: they become due if it is retried."""
        self.owed = tuple(sorted({*self.owed, *due_epochs(self, until)}))
        self.until = max(self.until, until)

    def retry(self) -> list[int]:
        """Continue after a failure, and return the epochs whose reports are due."""
        due, self.owed = list(self.owed), ()
        self.change("retried")
        self.reason = ""
        self.retries += 1
        return due

    @property
    def tree(self) -> str:
        """The tree in which it is trained: the shared one, its own, or that of the trial it branched from."""
        return self.tree_of(self.variant)

    def tree_of(self, variant: str) -> str:
        """Return the tree in which it would be trained under a variant; only private trees contain a slash."""
        if not self.alone:
            return variant
        return f"{variant}/{self.study}/{self.tree_owner}" if variant else f"{self.study}/{self.tree_owner}"

    @property
    def base(self) -> tuple[str, str]:
        """The root and the variant under which it is trained."""
        return self.root, self.variant

    @property
    def base_to_come(self) -> tuple[str, str]:
        """The root and the variant under which further epochs and branches are trained."""
        return self.onward or self.base

    def must_move(self, until: int) -> bool:
        """Return whether an extension to an epoch has to be trained under another root.

        An epoch that it has reported needs no training: the report is repeated.
        """
        return self.ending == "complete" and self.onward is not None and until not in self.curve

    def move(self, root: str, variant: str) -> None:
        """Start again under another root; reports from the root before are no part of its curve."""
        self.earlier += (EarlierHistory(self.root, self.variant, self.until),)
        self.root, self.variant, self.onward = root, variant, None
        self.curve = {}
        self.reached = 0

    def __repr__(self) -> str:
        return f"trial {self.number}"


def due_epochs(trial: Trial, until: int) -> list[int]:
    """Return the epochs whose reports become due when a trial is granted epochs up to ``until``."""
    every = trial.every
    due = [*(range((trial.until // every + 1) * every, until, every) if every else ()), until]
    return [epoch for epoch in due if epoch not in trial.open]
