"""Claims: two drivers never claim the same units, a dead one claims nothing, and each learns what others want."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from hoptree.store import Holder, Store
from hoptree.store.claims import Claim, Claims, WantedState
from tests.store.programs import line, running

LINEAGE = "ab" * 16
# A driver that claims the lineage that it is told, and lives on.
CLAIM = """
import sys
from hoptree.store import Store
with Store(sys.argv[1], journal_url=sys.argv[2]) as store:
    claims = store.claims(store.lease(sys.argv[3]))
    print(claims.claim(sys.argv[4], 0, 0, 8).until, flush=True)
    sys.stdin.readline()
"""


def driver(open_store: Callable[..., Store], study: str) -> Claims:
    store = open_store()
    return store.claims(store.lease(study))


def test_claimed_units_are_refused_and_units_before_them_are_granted(open_store: Callable[..., Store]) -> None:
    a, b = driver(open_store, "a"), driver(open_store, "b")
    assert a.claim(LINEAGE, 4, 4, 8) == (8, "", False, ())
    assert b.claim(LINEAGE, 5, 5, 8).taken_by == "a"
    assert b.claim(LINEAGE, 0, 0, 8) == (4, "", False, ())  # up to where the other one began
    assert b.claim(LINEAGE, 8, 8, 9).taken_by == ""
    assert a.claim(LINEAGE, 4, 8, 12).taken_by == "b"
    assert a.claimed([LINEAGE, "cd"]) == {LINEAGE: [Claim("b", 8, 9)]}
    b.release([LINEAGE])
    assert a.claim(LINEAGE, 4, 8, 12).until == 12
    a.shorten({LINEAGE: (4, 9)})
    assert b.claimed([LINEAGE]) == {LINEAGE: [Claim("a", 4, 9)]}
    a.clear()
    assert b.claim(LINEAGE, 4, 4, 5).taken_by == ""


def test_a_driver_reads_the_wants_of_other_drivers(open_store: Callable[..., Store]) -> None:
    a, b = driver(open_store, "a"), driver(open_store, "b")
    b.want({LINEAGE: ({4: True, 8: False}, True), "cd": ({2: True}, False)})
    assert a.claim(LINEAGE, 0, 0, 4).wants == (WantedState("b", {4: True, 8: False}, True),)
    assert b.claim("cd", 0, 0, 4).wants == ()  # its own
    b.want({LINEAGE: ({8: True}, False)}, gone=["cd"])
    assert a.wanted([LINEAGE, "cd"]) == {LINEAGE: [WantedState("b", {8: True}, False)]}
    assert a.wanted([]) == {}


def test_claims_end_with_their_lease(open_store: Callable[..., Store], clock: Any) -> None:
    store = open_store()
    far = Holder("elsewhere", 1, "", "another place")
    lease = store.lease("far", far)
    near = open_store().lease("a")
    a = store.claims(near)
    theirs = store.claims(lease)
    assert theirs.claim(LINEAGE, 0, 0, 8).until == 8
    theirs.want({LINEAGE: ({8: True}, True)})
    assert a.claim(LINEAGE, 0, 0, 8).taken_by == "far"
    assert not a.alone()
    clock.now += 61  # no sign of life since
    near.renew()
    assert a.alone()
    assert a.claimed([LINEAGE]) == {}
    assert a.claim(LINEAGE, 0, 0, 8) == (8, "", True, ())
    lease.release()
    b = open_store().claims(open_store().lease("far"))  # another driver of the same study
    assert b.claim(LINEAGE, 0, 0, 8).taken_by == "a"


def test_a_group_does_not_count_as_another_driver_of_itself(open_store: Callable[..., Store]) -> None:
    store = open_store()
    for member in ("a", "b"):
        store.lease(member)
    assert store.claims(store.lease("a+b"), ["a", "b"]).alone()


def test_a_killed_driver_claims_nothing(tmp_path: Any, journal_url: str) -> None:
    with Store(tmp_path / "store", journal_url=journal_url) as store:
        ours = store.claims(store.lease("ours"))
        with running(CLAIM, tmp_path / "store", journal_url, "theirs", LINEAGE) as process:
            assert line(process) == "8"
            assert ours.claim(LINEAGE, 0, 0, 8).taken_by == "theirs"
            os.kill(process.pid, 9)
            process.wait()
            assert ours.claim(LINEAGE, 0, 0, 8) == (8, "", True, ())


def test_of_drivers_that_claim_at_the_same_moment_one_gets_it(open_store: Callable[..., Store]) -> None:
    drivers = {name: driver(open_store, name) for name in "abcd"}
    begin = threading.Barrier(len(drivers))
    granted: list[tuple[int, str]] = []

    def claim(name: str) -> None:
        for number in range(20):
            begin.wait()
            if not drivers[name].claim(f"{number:032}", 0, 0, 8).taken_by:
                granted.append((number, name))

    threads = [threading.Thread(target=claim, args=name) for name in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in granted) == list(range(20))
