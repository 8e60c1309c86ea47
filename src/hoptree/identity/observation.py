"""What a user's code reads while it runs in a worker, by subject, with the digest of its content."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

Observations: TypeAlias = dict[str, str]


def present(observations: Iterable[str]) -> Observations:
    """Return what the same subjects contain now, in this process; "" for what is not there."""
    return {subject: _present(subject) for subject in observations}


def _present(subject: str) -> str:
    kind, _, name = subject.partition(":")
    if kind == "environment":
        text = os.environ.get(name)
        return "" if text is None else blake2b(text.encode(), digest_size=16).hexdigest()
    try:
        return blake2b(Path(name).read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return ""
