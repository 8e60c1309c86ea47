"""Which backend a study runs on: what users say, and the pool that it comes to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from hoptree.backends.local import LocalPool, slots_of
from hoptree.backends.member import Pool
from hoptree.backends.ray_settings import Ray, check_count
from hoptree.core.errors import WorkloadError

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

Where: TypeAlias = str | Ray


def check_backend(backend: Where, workers: int | None) -> None:
    """Refuse what is no backend, before anything is opened."""
    if workers is not None:
        check_count("workers", workers)
    if backend in ("local", "ray"):
        return
    if not isinstance(backend, Ray):
        raise WorkloadError(f"backend: {backend!r}; expected 'local', 'ray' or ht.Ray(address=…)")
    if workers is not None and backend.workers not in (None, workers):
        raise WorkloadError(f"workers: {workers}, but ht.Ray(workers={backend.workers}); give the number once")


def worker_count(workers: int | None, threads: int) -> int:
    """Return how many workers this machine gets, if nobody says."""
    return max(1, (os.cpu_count() or 1) // threads) if workers is None else workers


def make_pool(
    backend: Where,
    workers: int | None,
    trainer: Trainer,
    dataset: Dataset,
    states: StateStore,
    folder: Path,
    study: str,
) -> Pool:
    """Return the pool in which a study is trained; its workers start when they are recruited."""
    if backend == "local":
        count = worker_count(workers, trainer.threads)
        return LocalPool(trainer, dataset, states, workers=count, slots=slots_of(folder, study))
    from hoptree.backends.ray_pool import RayPool

    settings = backend if isinstance(backend, Ray) else Ray()
    return RayPool(settings.asked(workers), trainer, dataset, states, study)
