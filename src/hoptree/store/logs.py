"""Error logs: full tracebacks, in files that messages name."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import final

from hoptree.core.keys import identity

_LONGEST = 150  # bytes of a study's name in a file name


@final
class Logs:
    """A folder with one text file per failure; files are never read back, so they may be removed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of_trial(self, study: str, number: int) -> Path:
        """Return the file for a trial's error."""
        name = study if len(study.encode()) <= _LONGEST else identity("log", study)
        return self.folder / f"{name}-trial-{number}.txt"

    def of_command(self) -> Path:
        """Return a new file for the error that ended a command."""
        return self.folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{secrets.token_hex(2)}.txt"

    def write(self, file: Path, text: str) -> Path | None:
        """Write a text; return None if that fails, because a log must not cause another error."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8", errors="replace")
        except OSError:
            return None
        return file
