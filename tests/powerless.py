"""Processes that may write only what their user may write, even where the tests are run by root."""

import ctypes
import sys

_DROP = 24  # PR_CAPBSET_DROP
_OVERRIDE, _READ = 1, 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


def powerless() -> None:
    """To be called between fork and exec: what is executed then obeys permissions; others than root do anyway."""
    if sys.platform == "linux":
        for capability in (_OVERRIDE, _READ):
            ctypes.CDLL(None).prctl(_DROP, capability, 0, 0, 0)
