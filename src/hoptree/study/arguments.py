"""Checks of the arguments of ``Study``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hoptree.core.errors import WorkloadError
from hoptree.search.protocol import Goal, Procedure


def parse_goal(maximize: object, minimize: object) -> Goal:
    """Return the goal; raise an error unless exactly one metric is given."""
    if (maximize is None) == (minimize is None):
        raise WorkloadError(
            f"maximize={maximize!r}, minimize={minimize!r}; expected exactly one: Hoptree never guesses a direction"
        )
    metric = maximize if minimize is None else minimize
    if not isinstance(metric, str) or not metric:
        raise WorkloadError(f"maximize or minimize: {metric!r}; expected the name of a metric, such as 'accuracy'")
    return Goal(metric, maximize is not None)


def check_arguments(name: object, seed: object, share: object, save_every: object, reuse: object) -> None:
    """Raise an error if an argument has a wrong type or value."""
    if not isinstance(name, str) or not name or "/" in name:
        raise WorkloadError(f"name: {name!r}; expected a non-empty name without '/'")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise WorkloadError(f"seed: {seed!r}; expected a whole number: the same seed gives the same bits")
    if not isinstance(share, bool):
        raise WorkloadError(f"share: {share!r}; expected True or False")
    if reuse not in ("always", "never"):
        raise WorkloadError(f"reuse: {reuse!r}; expected 'always' (what fits) or 'never'")
    if isinstance(save_every, bool) or not isinstance(save_every, int) or save_every < 0:
        raise WorkloadError(
            f"save_every: {save_every!r}; expected a number of epochs, or 0 to save only when much would be lost"
        )


def as_procedures(search: Procedure | Sequence[Procedure]) -> list[Procedure]:
    """Return the procedures of a search as a list."""
    return list(search) if isinstance(search, list | tuple) else [cast("Procedure", search)]
