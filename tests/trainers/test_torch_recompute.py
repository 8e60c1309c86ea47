"""Activation checkpointing computes again from the same generators, also from those of a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hoptree.trainers.torch_recompute import recomputed


class Generators:
    """A stand-in for the generator of a GPU: its state is how often it was drawn from."""

    def __init__(self) -> None:
        self.drawn = 0

    def state(self) -> torch.Tensor:
        return torch.tensor([self.drawn])

    def set_state(self, state: torch.Tensor) -> None:
        self.drawn = int(state)


class DrawsOnGpu(nn.Module):
    """Multiplies by what the stand-in draws, as dropout on a GPU would."""

    def __init__(self, generators: Generators) -> None:
        super().__init__()
        self.generators = generators
        self.inner = nn.Identity()  # a block has parts
        self.calls: list[tuple[int, bool, torch.dtype]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.generators.drawn += 1
        self.calls.append(
            (self.generators.drawn, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
        )
        result: torch.Tensor = self.inner(x) * self.generators.drawn
        return result


@pytest.mark.filterwarnings("ignore:User provided device_type of 'cuda'")
def test_what_was_drawn_on_a_gpu_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    generators = Generators()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", generators.state)
    monkeypatch.setattr(torch.cuda, "set_rng_state", generators.set_state)
    module = nn.ModuleDict({"a": DrawsOnGpu(generators), "b": DrawsOnGpu(generators)})
    first, second = module["a"], module["b"]
    assert isinstance(first, DrawsOnGpu)
    assert isinstance(second, DrawsOnGpu)
    x = torch.ones(3, requires_grad=True)
    with recomputed(module):
        second(first(x)).sum().backward()
    assert [call[0] for call in first.calls] == [1, 1]
    assert [call[0] for call in second.calls] == [2, 2]
    assert generators.drawn == 2  # as it was after the first computation
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3
