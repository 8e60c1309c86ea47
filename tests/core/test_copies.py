"""Copies for idle workers where it is not known yet whether a gang pays: they are what lets it be tried."""

from __future__ import annotations

from hoptree.core.actions import Action, CopyPartitions, RunUnit
from hoptree.core.allotment import Allotment
from hoptree.core.engine import Engine
from hoptree.core.events import Event, StateEvaluated, TrialAsked, UnitFinished, WorkerJoined, WorkerLost
from hoptree.core.invariants import InvariantChecker
from hoptree.core.lineage import config_items
from hoptree.core.profile import Profile, ProfileEntry
from hoptree.core.replication import ReplicationSettings
from hoptree.core.settings import Settings

ROOM = ReplicationSettings(100.0, (10.0, 10.0))


class Driven:
    """One trial on nodes of one worker, each with a partition of its own; all can connect to each other."""

    def __init__(self, replication: ReplicationSettings | None, widest: int = 4) -> None:
        self.engine = Engine(Settings(partitions=2), allotment=Allotment(widest), replication=replication)
        self.checker = InvariantChecker(self.engine)
        self.runs: list[RunUnit] = []
        self.copies: list[CopyPartitions] = []
        self.now = 0.0
        self.step(WorkerJoined("a", (0,)))
        self.step(WorkerJoined("b", (1,)))
        self.step(TrialAsked(0, config_items({"lr": 0.1}), 10))

    def step(self, event: Event, *, more: bool = False) -> list[Action]:
        actions = self.engine.step(event, self.now, more=more)
        self.checker.see(self.engine.state.note(event, self.now, more, actions))
        self.runs += [action for action in actions if isinstance(action, RunUnit)]
        self.copies += [action for action in actions if isinstance(action, CopyPartitions)]
        return actions

    def finish(self, seconds: float = 1.0) -> RunUnit:
        """Let the last unit that began end, and its evaluation; return it."""
        run = self.runs[-1]
        self.now += seconds
        self.step(UnitFinished(run.run, run.worker, seconds), more=run.evaluate)
        if run.evaluate:
            self.step(StateEvaluated(run.run, run.worker, {"loss": 1.0}))
        return run

    def hold(self, number: int) -> None:
        """Confirm the copies of an action."""
        held = {"a": 0, "b": 1}
        for name in self.copies[number].workers:
            self.step(WorkerJoined(name, (held[name], *self.copies[number].partitions)))


def test_an_idle_worker_copies_what_lets_a_width_be_tried() -> None:
    driven = Driven(ROOM)
    assert not driven.copies, "how long a unit takes alone is not known yet"
    driven.finish()
    (copy,) = driven.copies
    now = driven.runs[-1]
    assert copy == CopyPartitions(("b" if now.worker == "a" else "a",), (now.partition,))
    driven.hold(0)
    ended = [driven.finish(0.5) for _ in range(8)]
    assert any(run.crew for run in ended)


def test_a_worker_that_is_lost_has_no_copies_any_more() -> None:
    driven = Driven(ROOM)
    driven.finish()
    driven.hold(0)
    (name,) = driven.copies[0].workers
    driven.step(WorkerLost(name))
    driven.step(WorkerJoined(name, (0 if name == "a" else 1,)))
    for _ in range(4):
        driven.finish()
    assert [copy.workers for copy in driven.copies].count((name,)) == 2


def test_a_width_that_does_not_pay_needs_no_more_copies() -> None:
    driven = Driven(ROOM)
    driven.finish()
    driven.hold(0)
    while driven.engine.live:
        driven.finish(2.0 if driven.runs[-1].crew else 1.0)
    assert len(driven.copies) == 1
    assert sum(bool(run.crew) for run in driven.runs) == 2


def test_both_help_each_other_once_it_is_known_to_pay() -> None:
    driven = Driven(ROOM)
    while driven.engine.live:
        driven.finish(0.5 if driven.runs[-1].crew else 1.0)
        if driven.copies:
            driven.hold(-1)
    assert sorted(copy.workers for copy in driven.copies) == [("a",), ("b",)]
    assert [len(run.crew) for run in driven.runs[-4:]] == [1] * 4


def test_without_a_budget_nothing_is_copied() -> None:
    for replication in (None, ReplicationSettings(9.0, (10.0, 10.0))):
        driven = Driven(replication)
        while driven.engine.live:
            driven.finish()
        assert not driven.copies
        assert not any(run.crew for run in driven.runs)


def test_of_many_idle_nodes_some_are_tried_at_each_decision() -> None:
    """Only the node with two workers gains by copies, and it is the last of seven."""
    profile = Profile(tuple(ProfileEntry({}, "data", width, "cpu", 1.0 / width, 0, "1") for width in (1, 2)))
    engine = Engine(
        Settings(partitions=8),
        allotment=Allotment(2, profile, exact=True),
        replication=ReplicationSettings(7.0, (1.0,) * 8),
    )
    for number in range(6):
        engine.step(WorkerJoined(f"w{number}", (number,), machine=f"m{number}"), 0.0)
    for worker in ("x", "y"):
        engine.step(WorkerJoined(worker, (6, 7), machine="m6"), 0.0)
    actions = engine.step(TrialAsked(0, config_items({"lr": 0.1}), 4), 0.0)
    copies: list[list[CopyPartitions]] = []
    for now in range(3):
        copies.append([action for action in actions if isinstance(action, CopyPartitions)])
        (run,) = [action for action in actions if isinstance(action, RunUnit)]
        actions = engine.step(UnitFinished(run.run, run.worker, 1.0), now + 1.0)
    assert [len(some) for some in copies] == [0, 1, 0]
    assert copies[1][0].workers == ("x", "y")
