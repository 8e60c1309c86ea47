"""Disk space for tests that write gigabytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

GIB = 1 << 30


@contextmanager
def room(folder: Path, size: int) -> Iterator[Path]:
    """Skip a test without enough space, and empty its folder at the end: pytest would keep it for three runs."""
    free = shutil.disk_usage(folder).free
    if free < size:
        wanted = f"{free / GIB:.1f} GiB free, {size / GIB:.1f} needed"
        pytest.skip(f"{folder}: {wanted}; set TMPDIR to a folder on a larger disk")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
