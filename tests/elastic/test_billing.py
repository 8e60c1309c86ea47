"""The cost of one node: the minimum, the idle tail, data, and billing per function."""

import pytest

from hoptree.core.errors import WorkloadError
from hoptree.elastic.billing import charge
from hoptree.elastic.instance import Instance


def test_seconds_are_paid_but_at_least_the_minimum() -> None:
    instance = Instance("made-up", devices=4, price=36.0)
    assert charge(instance, 10.0) == pytest.approx(0.6)
    assert charge(instance, 100.0) == pytest.approx(1.0)


def test_the_idle_tail_counts_towards_the_minimum() -> None:
    instance = Instance("made-up", devices=4, price=36.0, idle_tail=40.0)
    assert charge(instance, 10.0) == pytest.approx(0.6)
    assert charge(instance, 100.0) == pytest.approx(1.4)


def test_data_is_paid_once_for_each_start() -> None:
    instance = Instance("made-up", devices=4, price=36.0, data_price=0.01)
    assert charge(instance, 100.0, data_gb=150.0) == pytest.approx(1.0 + 1.5)


def test_per_function_only_seconds_of_training_are_paid() -> None:
    instance = Instance("made-up", devices=4, price=36.0, idle_tail=40.0, billing="function", data_price=0.01)
    assert charge(instance, 1000.0, busy_device_seconds=400.0, data_gb=1.0) == pytest.approx(1.01)


@pytest.mark.parametrize("wrong", [{"seconds": -1.0}, {"seconds": 1.0, "data_gb": float("nan")}])
def test_negative_amounts_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(WorkloadError, match="0 or more"):
        charge(Instance("made-up", devices=1, price=1.0), **wrong)
