"""Options of a pool backend: limits, and functions of the driver that it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hoptree.backends.heartbeats import LIMIT
from hoptree.core.actions import Evaluate, RunUnit
from hoptree.identity.observation import Observations


@dataclass(frozen=True)
class PoolOptions:
    """Clock and limits of a pool backend.

    ``begun`` is the study's clock when the run begins. A unit that takes longer than ``unit_limit`` seconds counts
    as hung; None derives a limit from how long units take. A worker without a heartbeat for ``heartbeat_limit``
    seconds is given up. With ``wait_for_platforms``, ``start`` waits until the platforms of the workers are known.
    """

    begun: float = 0.0
    unit_limit: float | None = None
    heartbeat_limit: float = LIMIT
    wait_for_platforms: bool = False


@dataclass(frozen=True)
class PoolHooks:
    """Functions of the driver that a pool backend calls.

    ``longest`` returns an upper estimate of the seconds of a run, 0 if unknown. ``tick`` is called about every
    second while workers start. ``workers_needed`` returns how many workers would have work; with 0, missing ones
    are not replaced. ``observed`` gets the inputs that the user's code read, before the result of the run that read
    them; an error that it raises ends the run of the study.
    """

    longest: Callable[[RunUnit | Evaluate], float] = lambda _: 0.0
    tick: Callable[[], None] = lambda: None
    workers_needed: Callable[[], int] = lambda: 1
    observed: Callable[[Observations], None] = lambda _: None
