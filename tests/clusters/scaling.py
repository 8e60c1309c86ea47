"""A cluster with Ray's own autoscaler on this machine, whose nodes are processes that come and go."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from tests.clusters.conftest import token_required

_NODE: dict[str, Any] = {"node_config": {}, "min_workers": 0}
_EMPTY_LISTS = (
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)


@contextmanager
def autoscaling_cluster(
    types: Mapping[str, Mapping[str, Any]], *, idle_seconds: float = 6.0, most: int = 8
) -> Iterator[str]:
    """Start a cluster of these node types, each with its ``resources``, and return its address; no node runs yet.

    The autoscaler ends a node that was idle for ``idle_seconds``, and starts at most so many.
    """
    from ray._private.services import get_node_ip_address

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"{get_node_ip_address()}:{port}"
    hidden = mkdtemp(prefix="ray-", dir="/tmp")  # else other programs would join it; sockets want short names
    config = Path(hidden) / "scaling.json"
    config.write_text(json.dumps(_config(address, types, idle_seconds, most)))
    ray = str(Path(sys.executable).parent / "ray")
    settings = [f"--autoscaling-config={config}", "--num-cpus=0", f"--port={port}"]
    around = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
        "RAY_FAKE_CLUSTER": "1",
        "RAY_TMPDIR": hidden,
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_failure_threshold": "4",
        "RAY_health_check_timeout_ms": "2000",
    }
    command = [ray, "start", "--head", "--block", "--include-dashboard=false", *settings]
    with token_required():
        head = subprocess.Popen(
            command, env={**os.environ, **around}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_for(lambda: is_open(address), "the cluster does not start")
            yield address
        finally:
            head.terminate()
            head.wait()
            end_processes(hidden)
            rmtree(hidden, ignore_errors=True)


def _config(address: str, types: Mapping[str, Mapping[str, Any]], idle_seconds: float, most: int) -> dict[str, Any]:
    from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID

    return {
        "cluster_name": "scaling",
        "max_workers": most,
        "idle_timeout_minutes": idle_seconds / 60,
        "provider": {
            "type": "external",
            "module": "tests.clusters.machine_provider.MachineProvider",
            "head_node_id": FAKE_HEAD_NODE_ID,
            "gcs_address": address,
            "use_node_id_as_ip": True,  # they all have the same address
            "disable_node_updaters": True,  # nodes here are processes: nobody logs in to set them up
            "disable_launch_config_check": True,
            "foreground_node_launch": True,
            "launch_multiple": True,
            "worker_liveness_check": False,
        },
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "file_mounts_sync_continuously": False,
        **{name: [] for name in _EMPTY_LISTS},
        "available_node_types": {
            "ray.head.default": {**_NODE, "resources": {"CPU": 0}, "max_workers": 0},
            **{name: {**_NODE, "max_workers": most, **given} for name, given in types.items()},
        },
    }


def end_processes(mark: str) -> None:
    """End the processes whose command line has this text: nodes outlive the monitor that started them."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            with suppress(OSError):
                if mark in (folder / "cmdline").read_text(errors="replace"):
                    os.kill(int(folder.name), signal.SIGKILL)


def wait_for(what: Callable[[], bool], otherwise: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 900
    while not what():
        assert time.monotonic() < end, otherwise
        time.sleep(0.2)


def is_open(address: str) -> bool:
    """Return whether a cluster answers."""
    from ray._raylet import GcsClient

    try:
        return bool(GcsClient(address=address).internal_kv_get(b"CLUSTER_METADATA", b"cluster"))
    except Exception:
        return False
