"""One driver per study: whoever else comes is told who it is, and takes over from the dead only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from hoptree.store import Holder, LeaseLostError, Store, StoreTiming, StudyHeldError
from tests.store.programs import ACQUIRE, line, running, tell

FAR = Holder("far", 7, "then")


def test_the_error_of_a_second_driver_names_the_first(store, open_store, clock):
    store.lease("digits", FAR)
    clock.now += 30
    at = "1970-01-12 13:46:40 UTC"
    expected = f"digits: held by process 7 on far since {at}, last heartbeat {at}; wait"
    with pytest.raises(StudyHeldError, match=expected):
        open_store().lease("digits")
    assert open_store().lease("other").token == 1


def test_a_driver_does_not_share_with_itself(store):
    store.lease("digits")
    with pytest.raises(StudyHeldError, match=r"\(this process\)"):
        store.lease("digits")


def test_a_released_lease_is_free_at_once_and_the_token_grows(store):
    for token in (1, 2, 3):
        with store.lease("digits") as lease:
            assert lease.token == token
        with pytest.raises(LeaseLostError, match="it was released"):
            lease.renew()


def test_a_silent_holder_is_replaced_after_its_time(store, clock):
    lease = store.lease("digits", FAR)
    clock.now += 60
    lease.renew()
    clock.now += 60
    with pytest.raises(StudyHeldError, match="last heartbeat 1970-01-12 13:47:40"):
        store.lease("digits")
    clock.now += 0.1
    taken = store.lease("digits")
    assert taken.token == 2
    with pytest.raises(LeaseLostError, match="took over with token 2"):
        lease.renew()
    lease.release()  # not ours to give: the new holder keeps it
    taken.renew()


def test_an_append_is_a_heartbeat(store, clock):
    lease = store.lease("digits", FAR)
    writer = store.journal.writer("digits", lease.token)
    for _ in range(3):
        clock.now += 50
        writer.append([])
    with pytest.raises(StudyHeldError):
        store.lease("digits")


def test_the_driver_of_a_group_renews_the_leases_of_its_studies(store, clock):
    group, *members = (store.lease(name, FAR) for name in ("group", "digits", "letters"))
    group.renew_together(members)
    for _ in range(3):
        clock.now += 50
        group.renew()
    for name in ("group", "digits", "letters"):
        with pytest.raises(StudyHeldError):
            store.lease(name)
    members[0].release()
    with pytest.raises(LeaseLostError, match="digits: the lease with token 1 is not current: it was released"):
        group.renew()


def test_a_clock_that_is_set_back_takes_no_time_from_a_lease(store, clock):
    lease = store.lease("digits", FAR)
    clock.now -= 1000
    lease.renew()
    clock.now += 1060
    with pytest.raises(StudyHeldError):
        store.lease("digits")


def test_processes_that_are_certainly_dead():
    us = Holder.this_process()
    assert us == Holder.this_process()
    assert not us.is_dead(us.host, us.place)
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
        gone = Holder(us.host, child.pid, "1", us.place)
        assert gone.is_dead(us.host, us.place)
        assert not gone.is_dead("elsewhere", us.place)
        assert not gone.is_dead(us.host, "another boot")
    assert Holder(us.host, us.pid, "1", us.place).is_dead(us.host, us.place)  # the number was given again
    assert not Holder(us.host, us.pid, "", us.place).is_dead(us.host, us.place)


def test_a_zombie_is_dead():
    us = Holder.this_process()
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet reaped
        assert Holder(us.host, child.pid, "1", us.place).is_dead(us.host, us.place)


def test_of_racing_processes_one_wins(tmp_path, journal_url):
    with Store(tmp_path, journal_url=journal_url) as store:
        store.lease("released").release()
    with running(ACQUIRE, tmp_path, journal_url) as one, running(ACQUIRE, tmp_path, journal_url) as two:
        assert (line(one), line(two)) == ("ready", "ready")
        for study, token in (("released", "2"), *((f"new {number}", "1") for number in range(10))):
            tell(one, study)
            tell(two, study)
            held, won = sorted((line(one), line(two)))
            assert won == f"token {token}"
            assert f"{study}: held by process" in held


def test_a_killed_holder_is_replaced_at_once(tmp_path, journal_url):
    with running(ACQUIRE, tmp_path, journal_url) as process, Store(tmp_path, journal_url=journal_url) as store:
        assert line(process) == "ready"
        tell(process, "digits")
        assert line(process) == "token 1"
        with pytest.raises(StudyHeldError, match=f"held by process {process.pid} "):
            store.lease("digits")
        process.kill()
        process.wait()
        assert store.lease("digits").token == 2


def test_a_process_of_this_host_that_runs_keeps_its_lease_however_late_its_heartbeat_is(tmp_path, journal_url):
    with running(ACQUIRE, tmp_path, journal_url) as process:
        assert line(process) == "ready"
        tell(process, "digits")
        assert line(process) == "token 1"
        with Store(
            tmp_path, journal_url=journal_url, timing=StoreTiming(clock=lambda: time.time() + 1000)
        ) as store:
            with pytest.raises(StudyHeldError):
                store.lease("digits")
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            assert store.lease("digits").token == 2
        os.kill(process.pid, signal.SIGCONT)
