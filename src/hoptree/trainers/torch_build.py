"""How torch was built, and which kernels it chooses on this processor."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b

import torch


@cache
def torch_build() -> dict[str, str]:
    """Return what rounding may depend on within one version of torch."""
    settings = torch.__config__.show()
    return {
        "torch build": f"{torch.__version__}, settings {blake2b(settings.encode(), digest_size=6).hexdigest()}",
        "torch kernels": torch.backends.cpu.get_cpu_capability(),
    }
