"""Runs a contract suite without pytest: in a notebook, or to check that a suite detects a fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def check(contract: type, make: Callable[[], Any], **attributes: Any) -> None:
    """Run all tests of a contract, each with a new result of ``make``, and raise the first failure.

    ``attributes`` are those that a subclass of the contract may set.
    """
    suite = type("Suite", (contract,), attributes)()
    for name in sorted(dir(suite)):
        if name.startswith("test_"):
            getattr(suite, name)(make())
