"""The protocol between the code that follows a study and the code that shows it in another program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hoptree.mirror.trial_snapshot import TrialSnapshot


class Mirror(Protocol):
    """Shows the trials of one study in another program; only differences are written."""

    def show(self, trials: Sequence[TrialSnapshot]) -> None:
        """Write the changes of some trials."""
        ...

    def close(self) -> None:
        """Release all resources; nothing is shown afterwards."""
        ...
