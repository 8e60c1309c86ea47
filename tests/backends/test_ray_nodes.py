"""Which nodes an elastic run on Ray requests, uses and gives back, on machines that exist in memory only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from hoptree.backends.ray_cluster import RayNode
from hoptree.backends.ray_nodes import PaidNodes
from hoptree.core.events import NodeLost, NodeReleased, NodeStarted
from hoptree.elastic.instance import Instance

HEAD = RayNode("head", "10.0.0.1", {"node:__internal_head__": 1.0, "CPU": 4.0})
WORKER = {"CPU": 1.0}
PAIR = Instance("pair", devices=2, price=1.0)


class Machines:
    """Starts what is requested, one node a call of ``grow``; nodes with a ``job`` of somebody else are not idle."""

    def __init__(self, *nodes: RayNode, cpus: float = 2.0, labels: Mapping[str, str] | None = None) -> None:
        self.alive = [HEAD, *nodes]
        self.cpus = cpus
        self.labels = dict(labels or {})
        self.requested = 0
        self.drained: list[str] = []
        self.jobs: set[str] = set()
        self.started = 0

    def request(self, nodes: int, others: Sequence[RayNode]) -> None:
        self.requested = nodes + sum(node.room({"CPU": 2.0}) for node in others)

    def check(self, alive: int, *, waiting: bool) -> None: ...

    def drain(self, node: str, *, only_idle: bool) -> bool:
        if node in self.jobs and only_idle:
            return False
        self.drained.append(node)
        return True

    def release(self) -> None:
        self.requested = 0

    def grow(self) -> None:
        """Start a node if those that are there have too little room, and end one that was drained."""
        self.alive = [node for node in self.alive if node.id not in self.drained or node.id in self.jobs]
        if sum(node.room({"CPU": 2.0}) for node in self.alive) < self.requested:
            self.started += 1
            name = f"n{self.started}"
            self.alive.append(RayNode(name, f"10.0.1.{self.started}", {"CPU": self.cpus}, self.labels))


class Run:
    """The nodes of a run, looked at once a second."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.nodes = PaidNodes(PAIR, WORKER, "kind", machines)
        self.now = 0.0
        self.busy: set[str] = set()
        self.events: list[NodeStarted | NodeReleased | NodeLost] = []

    def scale(self, count: int, *release: str) -> None:
        self.nodes.scale(count, release, self.now)

    def look(self, seconds: int = 1) -> dict[str, int]:
        counts: dict[str, int] = {}
        for _ in range(seconds):
            counts = self.nodes.update(self.machines.alive, set(), self.now)
            self.nodes.give_back(self.busy, self.now)
            self.machines.grow()
            self.now += 1.0
        self.events += self.nodes.take_events()
        return counts


def test_nodes_come_one_after_another_and_their_waiting_is_known() -> None:
    run = Run(Machines())
    run.scale(2)
    assert run.look(5) == {"n1": 2, "n2": 2}
    assert run.events == [NodeStarted("n1", 2, 1.0), NodeStarted("n2", 2, 2.0)]


def test_a_node_is_drained_when_its_workers_have_left() -> None:
    run = Run(Machines())
    run.scale(2)
    run.look(5)
    run.busy = {"n1", "n2"}
    run.scale(1, "n1")
    assert run.look(3) == {"n2": 2}
    assert not run.machines.drained
    run.busy = {"n2"}
    run.look(3)
    assert run.machines.drained == ["n1"]
    assert run.events[2:] == [NodeReleased("n1")]
    assert run.machines.requested <= 3  # the head has room for two


def test_without_names_those_that_came_last_leave() -> None:
    run = Run(Machines())
    run.scale(3)
    run.look(6)
    run.scale(1)
    assert run.look(3) == {"n1": 2}
    assert run.events[3:] == [NodeReleased("n2"), NodeReleased("n3")]


def test_a_node_can_be_replaced_and_the_next_one_is_requested_at_once() -> None:
    run = Run(Machines())
    run.scale(1)
    run.look(3)
    run.busy = {"n1"}
    run.scale(1, "n1")
    assert run.look(3) == {"n2": 2}  # while the first one still trains
    run.busy = set()
    run.look(3)
    assert run.events[2:] == [NodeReleased("n1")]


def test_a_node_that_vanishes_is_lost_and_is_replaced() -> None:
    run = Run(Machines())
    run.scale(1)
    run.look(3)
    run.machines.alive = [HEAD]
    assert run.look(3) == {"n2": 2}
    assert run.events[1] == NodeLost("n1")
    assert isinstance(run.events[2], NodeStarted)


def test_nodes_of_another_size_do_not_make_it_request_more_and_more(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(Machines(cpus=8.0))
    run.scale(1)
    run.look(30)
    assert run.machines.started == 1
    assert run.events == []
    assert "has come, and is not used, since it is no pair" in caplog.text


def test_labels_decide_which_nodes_count() -> None:
    big = RayNode("big", "10.0.0.2", {"CPU": 8.0}, {"kind": "pair"})
    other = RayNode("other", "10.0.0.3", {"CPU": 2.0}, {"kind": "single"})
    run = Run(Machines(big, other))
    run.scale(1)
    assert run.look() == {"big": 2}


def test_a_node_that_was_there_before_stays_if_others_use_it(caplog: pytest.LogCaptureFixture) -> None:
    run = Run(Machines(RayNode("old", "10.0.0.2", {"CPU": 2.0})))
    run.machines.jobs = {"old"}
    run.scale(1)
    assert run.look() == {"old": 2}
    run.scale(1, "old")
    run.look(10)
    assert run.machines.drained == []
    assert NodeReleased("old") in run.events
    assert "is used by others" in caplog.text
    assert "old" not in run.look()


def test_a_requested_node_is_drained_even_if_others_use_it_by_now() -> None:
    run = Run(Machines())
    run.scale(2)
    run.look(5)
    run.machines.jobs = {"n2"}
    run.scale(1)
    run.look(10)
    assert run.machines.drained == ["n2"]
    run.look(30)
    assert run.events[2:] == [NodeReleased("n2")]


def test_a_node_that_is_started_again_for_repair_is_left_alone() -> None:
    run = Run(Machines())
    run.scale(2)
    run.look(5)
    run.scale(1, "n2")
    run.look(3)
    run.machines.alive.append(RayNode("again", "10.0.1.2", {"CPU": 2.0}))
    assert run.look(3) == {"n1": 2}
    assert not [event for event in run.events if event == NodeStarted("again", 2)]


def test_nothing_is_requested_while_all_nodes_are_in_use() -> None:
    """Ray never forgets a request: the nodes of a driver that was killed would run for ever."""
    run = Run(Machines())
    run.scale(2)
    run.look(10)
    assert run.machines.requested > 0
    run.look(60)
    assert run.machines.requested == 2  # the room of the head, which is not requested
    run.scale(3)
    assert len(run.look(3)) == 3


def test_all_requested_nodes_are_given_back_at_the_end() -> None:
    run = Run(Machines(RayNode("old", "10.0.0.2", {"CPU": 2.0})))
    run.scale(3)
    run.look(6)
    run.nodes.close()
    assert run.machines.drained == ["n1", "n2"]
    assert run.machines.requested == 0


def test_without_an_autoscaler_all_nodes_with_room_are_used() -> None:
    nodes = PaidNodes(PAIR, WORKER, "kind", None)
    alive = [HEAD, RayNode("a", "10.0.0.2", {"CPU": 1.0}), RayNode("b", "10.0.0.3", {"GPU": 1.0})]
    nodes.scale(1, ["a"], 0.0)
    assert nodes.update(alive, set(), 0.0) == {"head": 2, "a": 1}
    assert nodes.take_events() == [NodeStarted("head", 2), NodeStarted("a", 1)]
