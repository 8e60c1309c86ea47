"""The failure of a gang's unit is reported when the last of its workers has left it."""

from __future__ import annotations

from itertools import permutations

import pytest

from hoptree.backends.gangs import Gangs
from hoptree.core.actions import Origin, RunUnit
from hoptree.core.events import Event, UnitFailed
from hoptree.core.lineage import history, segments


def unit(run: int, *workers: str) -> RunUnit:
    leader, *crew = workers
    values = segments(history({"lr": 0.1}), partitions=1, units=1)[0].values
    origin = Origin(values.at(0.0), 0)
    return RunUnit(run, leader, 1, 1, 0, 0, 0, "key", values, leader, origin, "key", crew=tuple(crew))


def failed(run: int) -> list[Event]:
    return [UnitFailed(run, "a", "lost", "system")]


def test_workers_keep_their_connections_until_their_gang_changes_or_parts() -> None:
    gangs = Gangs("s")
    names = []
    for run, workers in enumerate([("a", "b"), ("a", "b"), ("b", "a"), ("a", "b"), ("a", "c"), ("a", "b")]):
        names.append({member.name for _, member in gangs.form(unit(run, *workers), "here")})
    assert names == [{"s-1"}, {"s-1"}, {"s-2"}, {"s-3"}, {"s-4"}, {"s-5"}]
    gangs.part(unit(9, "a", "b"))
    assert gangs.form(unit(10, "a", "b"), "here")[0][1].name == "s-6"


def test_each_worker_learns_its_rank_and_where_the_leader_is() -> None:
    formed = Gangs("s").form(unit(1, "a", "b", "c", "d"), "host:1")
    assert [(name, member.rank, member.size, member.rendezvous) for name, member in formed] == [
        (name, rank, 4, "host:1") for rank, name in enumerate("abcd")
    ]


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_events_are_held_until_the_last_worker_has_left(order: tuple[str, ...]) -> None:
    gangs = Gangs("s")
    gangs.form(unit(1, "a", "b", "c"), "here")
    *first, last = order
    assert gangs.leave(1, first[0]) == []
    assert gangs.hold(1, failed(1)) == []
    assert gangs.leave(1, first[1]) == []
    assert gangs.busy(1) == [last]
    assert gangs.leave(1, last) == failed(1)
    assert gangs.leave(1, last) == []  # once


def test_events_of_a_second_failure_are_held_too() -> None:
    gangs = Gangs("s")
    gangs.form(unit(1, "a", "b"), "here")
    assert gangs.hold(1, failed(1)) == []
    assert gangs.hold(1, failed(1)) == []
    assert gangs.leave(1, "a") == []
    assert gangs.leave(1, "b") == failed(1) * 2


def test_a_run_of_one_worker_is_reported_at_once() -> None:
    assert Gangs("s").hold(7, failed(7)) == failed(7)


def test_a_worker_that_is_out_of_memory_explains_what_its_leader_has_reported() -> None:
    gangs = Gangs("s")
    gangs.form(unit(1, "a", "b"), "here")
    assert gangs.hold(1, failed(1)) == []
    gangs.leave(1, "a")
    short = UnitFailed(1, "b", "out of memory", "memory", limit=100)
    gangs.explain(short)
    assert gangs.leave(1, "b") == [UnitFailed(1, "a", "out of memory", "memory", limit=100)]
    gangs.explain(short)  # nothing is held any more
