"""What a kind of disturbance is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from bench.faults.run import Run


class Kind(NamedTuple):
    """What is done to a run, and the options of its study.

    ``disturb`` starts drivers and leaves them as they are; whoever calls it runs the study to its end then.
    """

    disturb: Callable[[Run], None]
    options: Mapping[str, Any] = MappingProxyType({})
