"""The options of one run of a study: they may differ from run to run, and results do not depend on them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from hoptree.backends.choice import check_backend
from hoptree.backends.heartbeats import LIMIT, check_heartbeat_limit
from hoptree.core.durations import parse_duration
from hoptree.core.errors import WorkloadError
from hoptree.core.policy_choice import check_policy
from hoptree.core.settings import DEFAULT_POLICY
from hoptree.driver.elastic_settings import check_budget, check_instance
from hoptree.elastic.instance import Instance
from hoptree.progress import choose_display
from hoptree.store.ledger import parse_size

if TYPE_CHECKING:
    from hoptree.progress.display import Display


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of ``Study.run``, which documents them."""

    workers: int | None = None
    backend: Any = "local"  # a name, ht.Ray(…), or the settings of a backend
    accept_changes: bool = False
    same_platform: bool = False
    memory_per_worker: str | float | None = None
    replicate_idle: str | float | None = None
    unit_limit: float | None = None
    heartbeat_limit: float = LIMIT
    mirror: Any = None
    quiet: bool = False
    display: Any = None  # a Display; None: one that suits the terminal, notebook or log
    time_limit: str | float | None = None
    deadline: str | float | None = None
    budget: float | None = None
    instance: Instance | None = None
    policy: Any = DEFAULT_POLICY  # a name, a Policy or the starts of a schedule

    def __post_init__(self) -> None:
        check_backend(self.backend, self.workers, self.memory_bytes)
        _ = self.replicate_bytes, self.time_limit_seconds  # raises if they are no size and no duration
        self._check_plan()
        limit = self.unit_limit
        number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (number and 0 < limit < math.inf):
            raise WorkloadError(f"unit_limit: {limit!r}; expected a number of seconds above 0")
        check_heartbeat_limit(self.heartbeat_limit)
        check_policy(self.policy)

    @property
    def memory_bytes(self) -> int:
        """The memory of a worker in bytes; 0 if it is not limited."""
        if self.memory_per_worker is None:
            return 0
        size = parse_size(self.memory_per_worker, "memory_per_worker")
        if size == 0:
            raise WorkloadError(
                f"memory_per_worker: {self.memory_per_worker!r}; expected a size above 0 such as '2 GB', or None "
                "for no limit"
            )
        return size

    @property
    def replicate_bytes(self) -> int:
        """The bytes of copies that an idle node may take; 0 if none."""
        return 0 if self.replicate_idle is None else parse_size(self.replicate_idle, "replicate_idle")

    @property
    def time_limit_seconds(self) -> float | None:
        """The seconds after which the run ends; None if it is not limited."""
        return None if self.time_limit is None else parse_duration(self.time_limit, "time_limit")

    @property
    def deadline_seconds(self) -> float | None:
        """The seconds in which the run is to end; None if there is no deadline."""
        return None if self.deadline is None else parse_duration(self.deadline, "deadline")

    def _check_plan(self) -> None:
        """Raise an error if the arguments do not say for what nodes are to be planned."""
        _ = self.deadline_seconds
        if self.budget is not None:
            check_budget(self.budget)
        if self.deadline is not None and self.budget is not None:
            raise WorkloadError(
                f"deadline={self.deadline!r}, budget={self.budget!r}; expected one of them: the cheapest plan that "
                "meets a deadline, or the fastest within a budget"
            )
        if self.instance is not None:
            check_instance(self.instance)
        named = "deadline" if self.deadline is not None else "budget" if self.budget is not None else ""
        if named and self.instance is None:
            raise WorkloadError(
                f"{named}: without an instance; give the terms of a node too, such as "
                "instance=ht.Instance('p3.8xlarge', devices=4, price=12.24), or use time_limit to end a run"
            )
        if self.instance is not None and not named:
            raise WorkloadError(
                f"instance: {self.instance.name!r} without a deadline or a budget; expected one of them, such as "
                "deadline='2 h'"
            )

    def make_display(self) -> Display:
        """Return the display that shows progress."""
        if self.display is not None:
            return self.display  # type: ignore[no-any-return]
        return choose_display(self.quiet)
