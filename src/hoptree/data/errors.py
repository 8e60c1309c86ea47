"""Errors about data; every message names the column, the argument or the file."""

from hoptree.core.errors import HoptreeError


class DataError(HoptreeError, ValueError):
    """Data that cannot become a dataset, or a dataset that does not match its manifest."""


class DataChangedError(DataError):
    """A dataset that was changed after it was built: it no longer matches its manifest."""
