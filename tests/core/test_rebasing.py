"""A trial begins again under another root: what stays, what is trained anew, and where it is stored."""

from __future__ import annotations

import pytest

from hoptree.core.actions import Action, Report, RunUnit
from hoptree.core.engine import Engine
from hoptree.core.events import (
    StateEvaluated,
    StateLost,
    TrialAsked,
    TrialBranched,
    TrialExtended,
    TrialRebased,
    UnitFinished,
    WorkerJoined,
)
from hoptree.core.lineage import config_items
from hoptree.core.settings import Settings
from hoptree.core.trial import Trial


class Run:
    """An engine with one worker that does what it is told at once."""

    def __init__(self) -> None:
        self.engine = Engine(Settings(1, ahead=False))
        self.trees: list[tuple[str, int]] = []  # where units were trained, and which
        self.reports: list[tuple[int, int]] = []
        self.step(WorkerJoined("w", (0,)))

    def step(self, event: object) -> None:
        self._do(self.engine.step(event, 0.0))  # type: ignore[arg-type]

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Report):
                self.reports.append((action.trial, action.epoch))
            if isinstance(action, RunUnit):
                self.trees.append((action.tree, action.unit))
                self._do(self.engine.step(UnitFinished(action.run, "w"), 0.0))
                if action.evaluate:
                    self._do(self.engine.step(StateEvaluated(action.run, "w", {"loss": 1.0}), 0.0))

    def trial(self, number: int = 0) -> Trial:
        return self.engine.trials[number]


@pytest.fixture
def run() -> Run:
    made = Run()
    made.step(TrialAsked(0, config_items({"lr": 0.1}), until=2, every=1, root="old", variant="v1"))
    assert made.trees == [("v1", 0), ("v1", 1)]
    made.trees.clear()
    return made


def test_a_complete_trial_stays_as_it_is(run: Run) -> None:
    final = run.trial().final
    run.step(TrialRebased(0, "new", "v2"))
    assert (run.trial().ending, run.trial().final, run.trees) == ("complete", final, [])
    run.step(TrialExtended(0, 1))  # told again as it was
    assert (run.trial().base, run.trees, run.reports[-1]) == (("old", "v1"), [], (0, 1))


def test_an_extension_is_trained_from_the_beginning_with_the_new_code(run: Run) -> None:
    run.step(TrialRebased(0, "new", "v2"))
    run.step(TrialExtended(0, 3))
    assert run.trees == [("v2", 0), ("v2", 1), ("v2", 2)]
    assert run.trial().base == ("new", "v2")
    assert list(run.trial().curve) == [3]


def test_a_branch_is_trained_from_the_beginning_with_the_new_code(run: Run) -> None:
    run.step(TrialRebased(0, "new", "v2"))
    run.step(TrialBranched(1, 0, 1, config_items({"lr": 0.2}), 2))
    assert run.trees == [("v2", 0), ("v2", 1)]
    assert run.trial(1).base == ("new", "v2")
    assert run.trial().base == ("old", "v1")


def test_a_lost_state_of_another_root_is_not_trained_again(run: Run) -> None:
    final = run.trial().final
    assert final is not None
    run.step(TrialRebased(0, "new", "v2"))
    run.step(StateLost(final.node.id, final.unit))
    assert (run.trees, run.engine.finished) == ([], True)
    run.step(TrialRebased(0, "old", "v1"))  # the code of then is back
    assert run.trees == [("v1", 0), ("v1", 1)]


def test_an_unshared_trial_has_a_private_tree_under_every_variant() -> None:
    made = Run()
    made.step(TrialAsked(0, config_items({"lr": 0.1}), until=1, study="s", root="r", alone=True, variant="v1"))
    made.step(TrialAsked(1, config_items({"lr": 0.1}), until=1, study="s", root="r", alone=True))
    made.step(TrialAsked(2, config_items({"lr": 0.1}), until=1, study="s", root="r", variant="v1"))
    assert [tree for tree, _ in made.trees] == ["v1/s/0", "s/1", "v1"]
    assert [node.is_private for node in made.engine.plan.walk()] == [True, True, False]
