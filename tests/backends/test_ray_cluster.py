"""A cluster that cannot be started leaves nothing behind."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from tempfile import mkdtemp

import pytest

import hoptree as ht
from hoptree.backends.ray_cluster import RayCluster


@pytest.mark.slow
def test_settings_are_restored_if_a_cluster_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    room = Path(mkdtemp(dir="/tmp"))  # sockets want short names
    monkeypatch.setenv("RAY_TMPDIR", str(room))
    level = logging.getLogger("ray").level
    with pytest.raises(ht.RefusedError, match=r"runtime_env: .*Dict\[str, str\]"):
        RayCluster(ht.Ray(runtime_env={"env_vars": {"A": 1}}), threads=1)
    assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & os.environ.keys()
    assert logging.getLogger("ray").level == level
    assert not ray.is_initialized()
    room.rmdir()  # it is empty
