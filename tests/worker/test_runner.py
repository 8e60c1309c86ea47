"""Units in one process: which state a model has when the user's code fails."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hoptree.store import FolderStates
from hoptree.trainers.base import UnitSpec
from hoptree.worker.messages import StateSource
from hoptree.worker.model_cache import ModelCache
from hoptree.worker.runner import CommandRunner
from tests.system.plain import Plain, dataset
from tests.worker.test_loop import train


class BreaksOnce(Plain):
    """Fails after its first unit has changed the model."""

    broken = False

    def train(self, model: Any, data: Any, unit: UnitSpec) -> None:
        super().train(model, data, unit)
        if not self.broken:
            self.broken = True
            raise ValueError("it broke")


def test_a_unit_that_failed_half_way_starts_again_from_its_state(tmp_path: Path) -> None:
    states = FolderStates(tmp_path / "states")
    states.put("stored", {"w": np.full(16, 2.0)}, {"units": 1})
    data = dataset(tmp_path)
    command = train(0, unit=1, source=StateSource("stored"))

    def trained(runner: CommandRunner) -> Any:
        return runner.train(command, lambda _: nullcontext()).state.arrays["w"].tolist()

    breaks = BreaksOnce()
    runner = CommandRunner(breaks, data, ModelCache(breaks, states))
    with pytest.raises(ValueError, match="it broke"):
        trained(runner)
    assert trained(runner) == trained(CommandRunner(Plain(), data, ModelCache(Plain(), states)))
