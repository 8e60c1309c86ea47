"""An instance type: what a node of a provider has, what it costs, and how long it takes to come."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from hoptree.core.errors import WorkloadError


class Instance(msgspec.Struct, frozen=True):
    """One type of node of a provider.

    ``price`` is paid per hour and instance, for at least ``minimum`` seconds. ``provision`` are the seconds from a
    request until the instance runs, which are not paid; ``start`` those until it can train, which are paid. Where
    they are None, they are measured on the cluster. ``idle_tail`` are seconds that are paid after an instance has
    been released, ``data_price`` is paid for each GB that an instance reads when it starts. ``spot`` instances may
    be taken away by the provider at any time. With ``billing="function"`` only the seconds in which a device trains
    are paid.
    """

    name: str
    devices: int
    price: float
    minimum: float = 60.0
    provision: float | None = None
    start: float | None = None
    idle_tail: float = 0.0
    data_price: float = 0.0
    spot: bool = False
    max_count: int | None = None
    billing: Literal["instance", "function"] = "instance"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise WorkloadError(f"Instance name: {self.name!r}; expected the provider's name, such as 'p3.8xlarge'")
        for field in ("devices", "max_count"):
            value = getattr(self, field)
            if value is None and field == "max_count":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise WorkloadError(
                    f"Instance({self.name!r}) {field}: {value!r}; expected a whole number, at least 1"
                )
        for field in ("price", "minimum", "provision", "start", "idle_tail", "data_price"):
            value = getattr(self, field)
            if value is None and field in ("provision", "start"):
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not (math.isfinite(value) and value >= 0):
                what = "dollars" if "price" in field else "seconds"
                raise WorkloadError(f"Instance({self.name!r}) {field}: {value!r}; expected {what}, 0 or more")
        if self.billing not in ("instance", "function"):
            raise WorkloadError(
                f"Instance({self.name!r}) billing: {self.billing!r}; expected 'instance' or 'function'"
            )
