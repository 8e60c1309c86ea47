"""Billing: what the nodes of a provider cost."""

from __future__ import annotations

from hoptree.core.errors import WorkloadError
from hoptree.elastic.instance import Instance

HOUR = 3600.0


def charge(instance: Instance, seconds: float, *, busy_device_seconds: float = 0.0, data_gb: float = 0.0) -> float:
    """Return what one node costs that was released ``seconds`` after it started.

    Per instance, the idle tail is added, and the minimum is paid at least. Per function, the seconds in which its
    devices trained are paid. What the node read at its start (``data_gb``) is paid in both cases.

    >>> charge(Instance("p3.8xlarge", devices=4, price=12.24), 30)
    0.204
    """
    for field, value in (
        ("seconds", seconds),
        ("busy_device_seconds", busy_device_seconds),
        ("data_gb", data_gb),
    ):
        if not value >= 0:
            raise WorkloadError(f"{field}: {value!r}; expected a number, 0 or more")
    if instance.billing == "function":
        paid = busy_device_seconds / instance.devices
    else:
        paid = max(seconds + instance.idle_tail, instance.minimum)
    return paid * instance.price / HOUR + data_gb * instance.data_price
