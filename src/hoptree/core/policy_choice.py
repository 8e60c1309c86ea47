"""What a user gives as the policy of a run: a name, a policy, or the starts of a solved schedule."""

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
_TRIED = 8  # trials with which a policy is tried out


def check_policy(given: object) -> None:
    """Refuse what is no policy at all."""
    if isinstance(given, str) and given not in POLICIES:
        raise unknown_policy(given)
    if isinstance(given, type) or not isinstance(given, str | Policy | Sequence):
        raise unknown_policy(given)


def planned(
    starts: Sequence[Sequence[float]], histories: Sequence[History], root: str, partitions: int
) -> PlannedOrder:
    """Name the rows of a solved schedule by the lineages that begin so."""
    try:
        fits = len(starts) == len(histories) and all(len(row) == partitions for row in starts)
        rows = [[float(start) for start in row] for row in starts]
    except (TypeError, ValueError):
        raise unknown_policy(starts) from None
    if not fits:
        raise WorkloadError(
            f"policy: starts of {len(starts)} configs; expected {len(histories)} rows of {partitions}"
        )
    plan = Plan(partitions, order="free")  # in strict order nobody chooses
    begin = plan.root(root)
    keys = [plan.path(phases, begin, 1)[0].key for phases in histories]
    return PlannedOrder(dict(zip(keys, rows, strict=True)))


def try_out(policy: Policy, settings: Settings, asked: Iterable[TrialAsked]) -> None:
    """Refuse a policy that answers nonsense about the first trials, before any worker is started.

    A copy of it is asked, where it can be copied: it may keep in mind what it was asked before.
    """
    try:
        own = deepcopy(policy)
    except Exception:
        return  # its answers are looked at while it runs
    engine = Engine(settings, policy=own)
    for event in list(asked)[:_TRIED]:
        engine.step(event, 0.0, more=True)
    engine.step(WorkerJoined("tried out", tuple(range(settings.partitions))), 0.0)


def named(settings: Settings, given: PolicyChoice) -> Settings:
    """Return settings with the policy that is given by its name, if one is."""
    return msgspec.structs.replace(settings, policy=given) if isinstance(given, str) else settings
