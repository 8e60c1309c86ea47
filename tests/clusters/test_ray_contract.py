"""Actors on a real Ray cluster keep the contract of a backend."""

from __future__ import annotations

import pytest

import hoptree as ht
from hoptree.backends import Backend, BackendSettings, TrainingJob
from hoptree.backends.pool_backend import PoolBackend
from hoptree.testing import BackendContract
from tests.clusters.conftest import Nodes
from tests.testing.test_backends import NoLedger

pytestmark = pytest.mark.slow


class OnRay:
    def __init__(self, where: ht.Ray) -> None:
        self.where = where

    def open(self, job: TrainingJob) -> Backend:
        from hoptree.backends.ray_pool import RayPool

        pool = RayPool(self.where.asked(job.workers), job.trainer, job.dataset, job.states, job.study)
        return PoolBackend(pool, job.states, seed=job.seed, ledger=NoLedger())


class TestRay(BackendContract):
    processes = True

    @pytest.fixture
    def backend(self, nodes: Nodes) -> BackendSettings:
        nodes.add(1, cpus=2)
        return OnRay(nodes.where())
