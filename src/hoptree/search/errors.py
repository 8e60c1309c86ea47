"""What can be wrong with a space."""

from hoptree.core.errors import HoptreeError


class SpaceError(HoptreeError, ValueError):
    """A space that cannot be searched; the message begins with the offending name."""


class ConfigRefusedError(HoptreeError):
    """A config that its space refuses: another one is drawn, and nobody sees this unless all are refused."""


class NoExtensionError(HoptreeError):
    """A search that is not what was begun under its name, nor more of it; the message says what differs."""
