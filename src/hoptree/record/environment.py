"""The environment of a run: what bits may depend on besides code, data and seed."""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

# Instruction sets by which numerical libraries choose their kernels.
_FLAGS = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "asimd", "sve")
_LIBRARIES = ("numpy", "torch")  # only if imported: an unused library changes nothing


def environment() -> dict[str, str]:
    """Return versions, platform and processor, by name, as text.

    >>> sorted(environment())[:3]
    ['cpu', 'cpu flags', 'hoptree']
    """
    found = dict(_machine())
    for name in _LIBRARIES:
        if name in sys.modules:
            found[name] = _version(name)
    if "torch" in sys.modules:
        from hoptree.trainers.torch_build import torch_build

        found |= torch_build()
    return found


@cache
def _machine() -> dict[str, str]:
    cpu, flags = _processor()
    return {
        "cpu": cpu,
        "cpu flags": " ".join(flag for flag in _FLAGS if flag in flags),
        "hoptree": _version("hoptree"),
        "platform": f"{platform.system()} {platform.machine()}, {'-'.join(platform.libc_ver()) or 'no libc'}",
        "python": platform.python_version(),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from source without being installed
        return "unknown"


def _processor() -> tuple[str, set[str]]:
    """Return the processor's name and instruction sets, as far as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), set()
    about = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    return about.get("model name", platform.machine()), set(about.get("flags", about.get("Features", "")).split())
