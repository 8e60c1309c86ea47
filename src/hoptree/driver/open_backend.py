"""Opening the backend of a run: a pool of local or Ray workers, or a backend of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hoptree.backends.choice import find_backend, make_pool
from hoptree.backends.job import TrainingJob
from hoptree.backends.pool_backend import PoolBackend
from hoptree.backends.pool_options import PoolHooks, PoolOptions
from hoptree.backends.protocol import Backend
from hoptree.backends.ray_settings import Ray
from hoptree.backends.rehearsals import RehearsalConfig, Rehearsals
from hoptree.core.layout_choice import LayoutOptions
from hoptree.core.schedules import Config
from hoptree.driver.opened_study import OpenedStudy
from hoptree.driver.options import RunOptions
from hoptree.driver.state_reuse import StateIndex
from hoptree.driver.study_group import StudyGroup
from hoptree.driver.variants import Variants
from hoptree.elastic.instance import Instance


class RehearsalPlan(NamedTuple):
    """The configs to rehearse, and those among all that start whose values change during training.

    ``layouts`` is called with the layouts that the models can have, before anything is trained.
    """

    configs: list[RehearsalConfig]
    changing: list[Config]
    layouts: Callable[[LayoutOptions], None]


def open_backend(
    opened: OpenedStudy,
    group: StudyGroup,
    options: RunOptions,
    index: StateIndex,
    rehearsal: RehearsalPlan,
    variants: Variants,
    hooks: PoolHooks,
    instance: Instance | None = None,
) -> Backend:
    """Return the backend that the options choose, not started yet; ``instance`` is the type of its nodes."""
    first, store, begun = group.first, opened.store, opened.record.now
    chosen = find_backend(options.backend)
    if chosen != "local" and not isinstance(chosen, Ray):
        return chosen.open(
            TrainingJob(
                group.name,
                first.trainer,
                first.data,
                store.states,
                store.folder,
                first.seed,
                options.workers,
                begun,
                options.memory_bytes,
                instance,
            )
        )
    pool = make_pool(
        chosen,
        options.workers,
        first.trainer,
        first.data,
        store.states,
        store.folder,
        group.name,
        opened.lease.token,
        options.heartbeat_limit,
        options.memory_bytes,
        options.replicate_bytes,
        instance,
    )
    metrics = [goal.metric for goal in group.goals.values()]
    rehearsals = Rehearsals(rehearsal.configs, metrics, variants.probed, rehearsal.changing, rehearsal.layouts)
    return PoolBackend(
        pool,
        store.states,
        seed=first.seed,
        ledger=index,
        rehearsals=rehearsals if rehearsal.configs else None,
        options=PoolOptions(begun, options.unit_limit, options.heartbeat_limit, wait_for_platforms=True),
        hooks=hooks,
    )
