"""Errors of values that cannot be compared between runs."""

from __future__ import annotations

from hoptree.core.errors import HoptreeError


class IdentityError(HoptreeError):
    """A part of a fingerprint cannot be compared between runs; the message says how to fix it."""
