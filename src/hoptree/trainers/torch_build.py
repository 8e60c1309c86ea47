"""How torch was built, and which kernels it selects on this processor."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b

import torch

from hoptree.trainers.torch_device import find_device


def torch_platform(device: str) -> dict[str, str]:
    """Return what the bits of a unit depend on: torch's build, kernels and settings, and the kind of device."""
    found = {**torch_build(), "device": device_kind(device)}
    if not torch.backends.mkldnn.enabled:
        found["oneDNN"] = "off"
    return found


def device_kind(device: str) -> str:
    """Return the name of the GPU that this process would use, else "cpu"; a missing GPU has the name given."""
    if device == "auto":
        device = str(find_device(device))
    if device.startswith("cuda") and torch.cuda.is_available():
        find_device("cuda")
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
