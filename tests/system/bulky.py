"""A trainer whose models need more memory than a worker may use, unless they are offloaded or divided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hoptree.core.layouts import Layout
from hoptree.trainers.base import UnitSpec
from hoptree.trainers.gang import GangMember, ModelPlacement
from tests.system.plain import Plain

LIMIT = 8 * 2**30  # bytes that a worker may use; memory that is never touched costs nothing
TOO_LARGE = 64 * 2**30


class Bulky(Plain):
    """``model`` are the bytes of a model in memory, ``step`` those of a unit beyond the rehearsal."""

    def __init__(self, offloads: bool = True, shards: int = 1) -> None:
        super().__init__()
        self.offloads = offloads
        self.shards = shards

    def build(self, values: Mapping[str, Any], seed: int) -> Any:
        return self.build_part(values, seed, ModelPlacement())

    def build_part(self, values: Mapping[str, Any], seed: int, placement: ModelPlacement) -> Any:
        ballast = 0 if placement.layout.offload and self.offloads else values["model"] // placement.size
        return {
            **super().build(values, seed),
            "ballast": np.zeros(ballast, np.uint8),
            "layout": placement.layout.name,
        }

    def train(self, model: Any, data: Any, unit: UnitSpec) -> None:
        whole = not Layout.parse(model["layout"]).offload
        if whole and unit.partitions > 1:
            np.zeros(int(unit.at(0, 1)["step"]), np.uint8)
        super().train(model, data, unit)

    def train_together(self, model: Any, data: Any, unit: UnitSpec, gang: GangMember) -> None:
        self.train(model, data, unit)  # each trains the whole, to the same bits

    def layout_kinds(self, model: Any) -> dict[str, str]:
        kinds = {"single": "", "pipeline": "the model has one layer; expected two or more"}
        return {**kinds, "sharded": ""} if self.shards > 1 else kinds

    def can_offload(self, model: Any) -> str:
        return "" if self.offloads else "these models stay in memory"

    def architecture(self, model: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: values[name] for name in ("model", "step")}

    def hidden_state(self, model: Any) -> Mapping[str, str]:
        return {}
