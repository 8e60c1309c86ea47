"""Drivers and workers on a Ray cluster that are killed, stopped or interrupted: no actor stays."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from functools import cache
from typing import Any

from bench.faults.kinds import Kind
from bench.faults.run import Run
from bench.faults.stops import LIMIT

PATIENCE = 30.0  # seconds in which the cluster ends the actors of a lost driver


class Cluster:
    """A cluster of one node on this machine, with its door closed, that lives as long as the campaign."""

    def __init__(self) -> None:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        import ray
        from ray.cluster_utils import Cluster as Nodes

        self._folder = tempfile.mkdtemp(prefix="hf")  # short: names of sockets lie in it
        head = {
            "num_cpus": 2,
            "include_dashboard": False,
            "object_store_memory": 100 << 20,
            "temp_dir": self._folder,
        }
        self._nodes = Nodes(initialize_head=True, head_node_args=head)
        self.address = str(self._nodes.address)
        ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)

    def actors(self) -> list[dict[str, Any]]:
        """Return those that are not dead."""
        from ray._private.state import actors

        return [actor for actor in actors().values() if actor["State"] != "DEAD"]

    def processes(self) -> list[int]:
        """Return the processes of actors that are alive."""
        return [int(actor["Pid"]) for actor in self.actors() if actor["State"] == "ALIVE" and actor.get("Pid")]

    def close(self) -> None:
        """End it."""
        import ray

        ray.shutdown()
        self._nodes.shutdown()  # type: ignore[no-untyped-call]
        shutil.rmtree(self._folder, ignore_errors=True)


def kill_driver(run: Run) -> None:
    _join(run)
    driver = run.begin()
    if run.moment():
        run.note("driver killed")
        driver.send(signal.SIGKILL)
        run.stop(driver)


def interrupt(run: Run) -> None:
    _join(run)
    driver = run.begin()
    if run.moment():
        run.note("interrupted")
        driver.send(signal.SIGINT, group=True)
        run.stop(driver)


def kill_worker(run: Run) -> None:
    _signal_worker(run, signal.SIGKILL)


def stop_worker(run: Run) -> None:
    """Stop the process of an actor for good; the cluster is asked to end it."""
    _signal_worker(run, signal.SIGSTOP)


def _signal_worker(run: Run, number: signal.Signals) -> None:
    cluster = _join(run)
    run.begin()
    if run.moment(0.0, 0.7) and (processes := cluster.processes()):
        chosen = run.random.choice(processes)
        run.note(f"{number.name} to the actor's process {chosen}")
        with suppress(ProcessLookupError):
            os.kill(chosen, number)


def _join(run: Run) -> Cluster:
    cluster = _cluster()
    run.variables |= {name: os.environ[name] for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")}
    run.variables["RAY_ADDRESS"] = cluster.address
    run.looks.append(lambda: _look(run, cluster))
    return cluster


def _look(run: Run, cluster: Cluster) -> None:
    limit = time.monotonic() + PATIENCE
    while (left := cluster.actors()) and time.monotonic() < limit:
        time.sleep(0.1)
    if left:
        run.found("orphan", f"{len(left)} actors live on: {[actor['State'] for actor in left]}")


@cache
def _cluster() -> Cluster:
    cluster = Cluster()
    atexit.register(cluster.close)
    return cluster


_ON_RAY: dict[str, Any] = {"run": {"backend": "ray", "heartbeat_limit": LIMIT}}

KINDS = {
    "ray-driver-killed": Kind(kill_driver, _ON_RAY),
    "ray-interrupted": Kind(interrupt, _ON_RAY),
    "ray-worker-killed": Kind(kill_worker, _ON_RAY),
    "ray-worker-stopped": Kind(stop_worker, _ON_RAY),
}
