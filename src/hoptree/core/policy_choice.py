"""The policy that a user chooses for a study: a name, a policy, or the starts of a solved schedule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import TypeAlias

import msgspec

from hoptree.core.engine import Engine
from hoptree.core.errors import WorkloadError
from hoptree.core.events import TrialAsked, WorkerJoined
from hoptree.core.lineage import History
from hoptree.core.plan import Plan
from hoptree.core.policies import POLICIES, PlannedOrder, Policy, unknown_policy
from hoptree.core.settings import Settings

PolicyChoice: TypeAlias = str | Policy | Sequence[Sequence[float]]
_TRIED = 8  # number of trials with which a policy is tried out


def check_policy(given: object) -> None:
    """Raise an error if a value is not a policy."""
    if isinstance(given, str) and given not in POLICIES:
        raise unknown_policy(given)
    if isinstance(given, type) or not isinstance(given, str | Policy | Sequence):
        raise unknown_policy(given)


def planned(
    starts: Sequence[Sequence[float]], histories: Sequence[History], root: str, partitions: int
) -> PlannedOrder:
    """Return the policy for a solved schedule, whose rows belong to the configs in order."""
    try:
        fits = len(starts) == len(histories) and all(len(row) == partitions for row in starts)
        rows = [[float(start) for start in row] for row in starts]
    except (TypeError, ValueError):
        raise unknown_policy(starts) from None
    if not fits:
        raise WorkloadError(
            f"policy: starts of {len(starts)} configs; expected {len(histories)} rows of {partitions}"
        )
    plan = Plan(partitions, order="free")  # strict order leaves no choice
    begin = plan.root(root)
    keys = [plan.path(phases, begin, 1)[0].key for phases in histories]
    return PlannedOrder(dict(zip(keys, rows, strict=True)))


def try_out(policy: Policy, settings: Settings, asked: Iterable[TrialAsked]) -> None:
    """Raise an error if a policy returns invalid values for the first trials, before any worker is started.

    Use a copy of it, as a policy may have state; one that cannot be copied is not tried.
    """
    try:
        own = deepcopy(policy)
    except Exception:
        return  # its return values are checked during the run
    engine = Engine(settings, policy=own)
    for event in list(asked)[:_TRIED]:
        engine.step(event, 0.0, more=True)
    engine.step(WorkerJoined("tried out", tuple(range(settings.partitions))), 0.0)


def named(settings: Settings, given: PolicyChoice) -> Settings:
    """Return settings with the given policy, if it is given by name."""
    return msgspec.structs.replace(settings, policy=given) if isinstance(given, str) else settings
