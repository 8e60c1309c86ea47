"""Errors about spaces and searches."""

from hoptree.core.errors import HoptreeError


class SpaceError(HoptreeError, ValueError):
    """A space that cannot be searched; the message starts with the name of the faulty parameter."""


class ConfigRefusedError(HoptreeError):
    """A config that its space rejects; another one is drawn, and users see this only if all are rejected."""


class NoExtensionError(HoptreeError):
    """A changed search that does not extend the earlier search of the study; the message says what differs."""
