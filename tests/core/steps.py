"""What tests of the engine use to drive it step by step."""

from __future__ import annotations

from typing import Any

from hoptree.core.actions import Action
from hoptree.core.schedules import multistep
from tests.core.driver import Driver

LATER = multistep(0.1, at=[1], gamma=0.1)  # as 0.1, and different after an epoch


def of(kind: type[Any], actions: list[Action]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def one_worker(partitions: int = 2, **more: Any) -> Driver:
    driver = Driver(partitions, **more)
    driver.join("w")
    return driver
