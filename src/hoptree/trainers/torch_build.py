"""How torch was built, and which kernels it selects on this processor."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b

import torch


def torch_platform(device: str) -> dict[str, str]:
    """Return what the bits of a unit depend on: torch's build, kernels and settings, and the kind of device."""
    found = {**torch_build(), "device": _device_kind(device)}
    if not torch.backends.mkldnn.enabled:
        found["oneDNN"] = "off"
    return found


def _device_kind(device: str) -> str:
    if device.startswith("cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    return device


@cache
def torch_build() -> dict[str, str]:
    """Return what rounding may depend on within one version of torch."""
    settings = torch.__config__.show()
    return {
        "torch build": f"{torch.__version__}, settings {blake2b(settings.encode(), digest_size=6).hexdigest()}",
        "torch kernels": torch.backends.cpu.get_cpu_capability(),
    }
