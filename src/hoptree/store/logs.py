"""Logs: what went wrong in full, in files that messages name."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import final

from hoptree.core.keys import identity

_LONGEST = 150  # bytes of a study's name in a file's name


@final
class Logs:
    """A folder of texts, one file per failure; nothing is read back from it, so any of them may be removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of_trial(self, study: str, number: int) -> Path:
        """Return the file in which a trial's failure is told."""
        name = study if len(study.encode()) <= _LONGEST else identity("log", study)
        return self.folder / f"{name}-trial-{number}.txt"

    def of_command(self) -> Path:
        """Return a new file for what has ended a command."""
        return self.folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{secrets.token_hex(2)}.txt"

    def write(self, file: Path, text: str) -> Path | None:
        """Write a text; None if that cannot be: a log must not end what it tells about."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8", errors="replace")
        except OSError:
            return None
        return file
