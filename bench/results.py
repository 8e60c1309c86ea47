"""Writes a bench's figures into bench/RESULTS.md, with the command, the machine and the date."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

PATH = Path(__file__).parent / "RESULTS.md"


def record(section: str, command: str, text: str) -> None:
    """Replace one section of the results, and print it."""
    old = PATH.read_text() if PATH.exists() else "# Results\n\nEach section is written by the command it names.\n"
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    body = f"{begin}\n\n`{command}`, {date}, {machine()}\n\n{text.strip()}\n\n{end}"
    print(text)
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    new = pattern.sub(lambda _: body, old) if begin in old else f"{old.rstrip()}\n\n{body}\n"
    PATH.write_text(new)


def machine() -> str:
    """Return what the figures were measured on."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text())
        model = found.group(1) if found else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {sys.version.split()[0]}"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Return the mean, with the least and the greatest when they differ."""
    mean = sum(values) / len(values)
    low, high = min(values), max(values)
    text = f"{mean:.{digits}f}"
    return text if high - low < 0.5 * 10**-digits else f"{text} ({low:.{digits}f} to {high:.{digits}f})"
