"""What has no identity: it cannot be told whether two of it do the same."""

from __future__ import annotations

from hoptree.core.errors import HoptreeError


class IdentityError(HoptreeError):
    """Something that a fingerprint would have to cover cannot be compared; the message says how to fix it."""
