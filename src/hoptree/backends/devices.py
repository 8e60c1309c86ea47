"""The GPUs of this machine, counted without torch, so that a driver occupies none.

This was never run on a machine with GPUs: tests replace ``visible_gpus``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from itertools import takewhile
from pathlib import Path

_DRIVER = Path("/proc/driver/nvidia/gpus")  # one folder for each GPU
_PATIENCE = 20.0  # seconds for nvidia-smi


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as entries of CUDA_VISIBLE_DEVICES."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        entries = [entry.strip() for entry in chosen.split(",")]
        return list(takewhile(re.compile(r"\d+$|GPU-|MIG-").match, entries))  # CUDA ignores all after a bad entry
    return [str(number) for number in range(_count())]


def gpus_for(device: str) -> list[str]:
    """Return the GPUs for workers of a trainer with this device: none unless it wants one."""
    return visible_gpus() if device in ("cuda", "auto") else []


def _count() -> int:
    if _DRIVER.is_dir():
        return len(list(_DRIVER.iterdir()))
    command = shutil.which("nvidia-smi")
    if command is None:
        return 0
    try:
        listed = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=_PATIENCE)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return len(re.findall(r"^GPU \d+:", listed.stdout, re.MULTILINE))
