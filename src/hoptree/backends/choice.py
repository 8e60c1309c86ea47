"""Which backend a study runs on: from the user's setting to a pool of workers."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hoptree.backends import devices
from hoptree.backends.heartbeats import LIMIT, beat_interval
from hoptree.backends.job import BackendSettings
from hoptree.backends.local import LocalPool, slot_folders_of_study
from hoptree.backends.plugins import find_plugin, plugins
from hoptree.backends.processes import ProcessOptions
from hoptree.backends.protocol import NodeOffer
from hoptree.backends.ray_settings import Ray, RayPoolOptions, check_count
from hoptree.backends.worker_handle import WorkerPool
from hoptree.core.errors import MissingExtraError, WorkloadError

if TYPE_CHECKING:
    from hoptree.data import Dataset
    from hoptree.elastic.instance import Instance
    from hoptree.store.states import StateStore
    from hoptree.trainers.base import Trainer

BUILT_IN = ("local", "ray")
Where: TypeAlias = str | Ray | BackendSettings


def check_backend(backend: Where, workers: int | None, memory: int = 0) -> None:
    """Raise an error unless this is a backend; nothing is opened."""
    if workers is not None:
        check_count("workers", workers)
    found = find_backend(backend)
    if isinstance(found, Ray) and find_spec("ray") is None:
        raise MissingExtraError("backend: needs ray, which is not installed; pip install 'hoptree[ray]'")
    if isinstance(found, Ray) and workers is not None and found.workers not in (None, workers):
        raise WorkloadError(f"workers: {workers}, but ht.Ray(workers={found.workers}); give the number only once")
    if isinstance(found, Ray) and memory and "memory" in found.resources_per_worker:
        given = found.resources_per_worker["memory"]
        raise WorkloadError(
            f"memory_per_worker: {memory} bytes, but ht.Ray(resources_per_worker=…) has memory {given}; give it "
            "only once"
        )


def find_backend(backend: Where) -> Literal["local"] | Ray | BackendSettings:
    """Return "local", the settings of Ray, or the settings of another backend.

    A name that is not built in is looked up among the plug-ins of installed packages.
    """
    if backend in BUILT_IN:
        return Ray() if backend == "ray" else "local"
    if isinstance(backend, str):
        return _registered(backend)
    if isinstance(backend, Ray) or (not isinstance(backend, type) and _has_open(backend)):
        return backend
    if isinstance(backend, type):
        raise WorkloadError(f"backend: the class {backend.__qualname__}; expected {backend.__qualname__}(…)")
    if callable(getattr(backend, "submit", None)):
        raise WorkloadError(
            f"backend: {backend!r} has submit() but no open(job); expected its settings, an object whose "
            "open(job) returns a backend for one run of the study"
        )
    raise WorkloadError(f"backend: {backend!r}; expected {_expected()}")


def worker_count(workers: int | None, trainer: Trainer) -> int:
    """Return the given number of workers, by default one per GPU, or as many as this machine has CPUs for."""
    if workers is not None:
        return workers
    return len(devices.gpus_for(trainer.device)) or max(1, (os.cpu_count() or 1) // trainer.threads)


def make_pool(
    backend: Literal["local"] | Ray,
    workers: int | None,
    trainer: Trainer,
    dataset: Dataset,
    states: StateStore,
    folder: Path,
    study: str,
    token: int,
    heartbeat_limit: float = LIMIT,
    memory: int = 0,
    copies: int = 0,
    instance: Instance | None = None,
) -> WorkerPool:
    """Return the pool that trains a study; its workers start when ``recruit`` is called.

    ``token`` is the fencing token of the driver's lease, ``memory`` that of a worker in bytes, 0 if not limited.
    A node that holds a part of the data may take ``copies`` of so many bytes. ``instance`` is the type of the nodes
    that come and go, if they are paid for.
    """
    beat = beat_interval(heartbeat_limit)
    if backend == "local":
        count = worker_count(workers, trainer)
        slots = slot_folders_of_study(folder, study)
        options = ProcessOptions(beat, devices.gpus_for(trainer.device), memory)
        return LocalPool(trainer, dataset, states, workers=count, slots=slots, token=token, options=options)
    from hoptree.backends.ray_pool import RayPool

    ray_options = RayPoolOptions(beat, memory, copies, instance)
    return RayPool(backend.asked(workers), trainer, dataset, states, study, ray_options)


def node_offer(
    backend: Where, instance: Instance, trainer: Trainer, workers: int | None = None, memory: int = 0
) -> NodeOffer:
    """Return what a backend has of an instance type, without requesting anything; it may have to connect.

    This machine is one node, and a backend of another kind says for itself by an ``offer`` method, if it has one.
    """
    found = find_backend(backend)
    if isinstance(found, Ray):
        from hoptree.backends.ray_offer import cluster_offer

        return cluster_offer(found.asked(workers), instance, trainer, memory)
    offer = getattr(found, "offer", None)
    return offer(instance) if callable(offer) else NodeOffer(scales=False, nodes=1)


def _registered(name: str) -> BackendSettings:
    """Return the settings that a package registers under a name; of a class, an instance with its defaults."""
    plugin = find_plugin("backends", name)
    if plugin is None:
        raise WorkloadError(f"backend: {name!r}; expected {_expected()}")
    loaded = plugin.load()
    found = loaded
    if isinstance(loaded, type) or not _has_open(loaded):
        try:
            found = loaded()
        except Exception as error:
            raise WorkloadError(
                f"backend: {name!r} of the package {plugin.package} cannot be created without arguments "
                f"({type(error).__name__}: {error}); import {plugin.value} and pass backend={name}(…)"
            ) from error
    if not _has_open(found):
        raise WorkloadError(
            f"backend: {name!r} of the package {plugin.package} is {found!r}, which has no open(job); expected the "
            "settings of a backend, or a class of settings"
        )
    settings: BackendSettings = found
    return settings


def _has_open(settings: Any) -> bool:
    return callable(getattr(settings, "open", None))


def _expected() -> str:
    names = [repr(plugin.name) for plugin in plugins("backends")]
    registered = f"one of {', '.join(names)} (registered by installed packages), " if names else ""
    return f"'local', 'ray', ht.Ray(address=…), {registered}or the settings of a custom backend"
