"""The platform: everything besides code, data, seed and values that affects the bits of training.

Only what affects bits counts: no host name, no kernel, no patch level of Python. A trainer adds what its framework
depends on. Anything that is missing here and affects bits shows in the probe.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from hoptree.core.keys import identity

# Instruction sets by which numerical libraries select their kernels.
FLAGS = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "asimd", "sve")
# Settings by which those libraries select other kernels or another order of sums. Threads belong to the trainer.
_SETTINGS = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "DNNL_DEFAULT_FPMATH_MODE",
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_DYNAMIC",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)

MIXTURE = "mixture"  # the only name in the platform of workers that differ


def machine_platform() -> dict[str, str]:
    """Return the kind of processor, and the settings of numerical libraries that are set, by name.

    >>> {"architecture", "instructions", "processor"} <= machine_platform().keys()
    True
    """
    vendor, flags = processor()
    found = {
        "architecture": platform.machine(),
        "instructions": " ".join(flag for flag in FLAGS if flag in flags),
        "processor": vendor,
    }
    return found | {name: os.environ[name] for name in _SETTINGS if os.environ.get(name)}


@cache
def processor_kind() -> str:
    """Return the model of the processor and how many of its cores this process may use, for measured times."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    model = next(named, "") or platform.processor() or platform.machine()
    return f"{model}, {cores} core{'s' if cores > 1 else ''}"


def differences(one: Mapping[str, str], two: Mapping[str, str]) -> list[str]:
    """Return the differences between two platforms, one line each.

    >>> differences({"torch": "2.12", "a": "b"}, {"torch": "2.13", "a": "b"})
    ['torch was 2.12, is 2.13']
    """
    kinds = [
        "workers on different platforms" if MIXTURE in each else "workers on one platform" for each in (one, two)
    ]
    if kinds[0] != kinds[1]:
        return [f"platform was {kinds[0]}, is {kinds[1]}"]
    names = sorted({*one, *two})
    return [
        f"{name} was {one.get(name, 'not set')}, is {two.get(name, 'not set')}"
        for name in names
        if one.get(name) != two.get(name)
    ]


def mixture(platforms: list[dict[str, str]]) -> dict[str, str]:
    """Return a platform that represents workers on different platforms, independent of their order."""
    kinds = sorted({identity("platform", kind) for kind in platforms})
    return platforms[0] if len(kinds) == 1 else {MIXTURE: " ".join(kinds)}


@cache
def processor() -> tuple[str, frozenset[str]]:
    """Return the vendor of the processor and its instruction sets, as far as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), frozenset()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    flags = fields.get("flags", fields.get("Features", "")).split()
    return fields.get("vendor_id", fields.get("CPU implementer", platform.machine())), frozenset(flags)
