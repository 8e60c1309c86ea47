"""The waist between what follows a study and what shows it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hoptree.mirror.trial_snapshot import TrialSnapshot


class Mirror(Protocol):
    """Shows the trials of one study in another program; what is there already is changed only where it differs."""

    def show(self, trials: Sequence[TrialSnapshot]) -> None:
        """Write what is new of some trials."""
        ...

    def close(self) -> None:
        """Let go of what is held; nothing is shown afterwards."""
        ...
