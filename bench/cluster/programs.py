"""Runs a program beside a cluster that outlives it, and reads what it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.speed.measure import ONE_THREAD, ROOT, ProgramError


def run(
    module: str,
    out: Path,
    *arguments: object,
    log: Path,
    meanwhile: Callable[[], object] | None = None,
    period: float = 0.2,
) -> tuple[float, dict[str, Any]]:
    """Run ``python -m module`` and return its seconds, from start to exit, with its ``result.json``.

    ``meanwhile`` is called again and again until it ends.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, stdout=output, stderr=output
        )
        try:
            while meanwhile is not None and process.poll() is None:
                meanwhile()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(period)
            code = process.wait()
            seconds = time.perf_counter() - began
        finally:
            process.kill()
            process.wait()
    if code:
        raise ProgramError(f"{' '.join(command)} ended with {code}:\n{log.read_text()[-3000:]}")
    return seconds, json.loads((out / "result.json").read_text())
