"""The process groups of a gang: gloo for tensors in the memory of the host, NCCL for tensors on GPUs.

NCCL is for the sums and gathers of the layout "data"; other layouts are refused on GPUs. It was never run: tests
put gloo in its place.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, final

import torch
import torch.distributed

from hoptree.core.layouts import DATA, SINGLE
from hoptree.trainers.gang import GangMember

distributed: Any = torch.distributed  # torch declares no types for its stores and for the options of its groups

HOST: Final = "cpu"


def memory_of(tensor: torch.Tensor) -> str:
    """Return the kind of device in whose memory a tensor is: "cpu" or "cuda"."""
    return tensor.device.type


def gpu_refusal(kind: str, device: torch.device) -> str:
    """Return "" if workers with such devices can train a unit together in this layout, else why not."""
    if device.type == HOST or kind == SINGLE:
        return ""
    if kind != DATA:
        return "the model is on a GPU, where this layout has not been tried; expected device='cpu'"
    return "" if distributed.is_nccl_available() else "the model is on a GPU, and this build of torch has no NCCL"


@final
class GangGroups:
    """The groups of one gang; that of the GPUs is made when it is first used, by all ranks at the same point."""

    def __init__(self, store: Any, member: GangMember, host: str, timeout: timedelta) -> None:
        self._store, self._member, self._timeout = store, member, timeout
        options = distributed.ProcessGroupGloo._Options()
        options._timeout = timeout
        options._devices = [distributed.ProcessGroupGloo.create_device(hostname=host)]
        self.host: Any = distributed.ProcessGroupGloo(store, member.rank, member.size, options)
        self._gpus: Any = None

    def of(self, tensor: torch.Tensor) -> Any:
        """Return the group for the memory that a tensor is in."""
        if memory_of(tensor) == HOST:
            return self.host
        if self._gpus is None:
            options = distributed.ProcessGroupNCCL.Options()
            options._timeout = self._timeout
            store = distributed.PrefixStore("gpus", self._store)
            self._gpus = distributed.ProcessGroupNCCL(store, self._member.rank, self._member.size, options)
        return self._gpus
